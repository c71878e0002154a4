//go:build linux

package shellstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/fork"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// TestMain also runs as the guest, the last child of a shell.
func TestMain(m *testing.M) {
	if descriptor, err := strconv.Atoi(os.Getenv("GO_TEST_STATE")); err == nil {
		pipe, err := strconv.ParseUint(os.Args[len(os.Args)-1], 10, 64)
		if err == nil {
			err = Tell(descriptor, pipe)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// outside refuses every directory.
func outside(string) (string, error) { return "", errors.New("outside of the roots") }

// raw returns the report of a shell.
func raw(texts ...string) []byte { return []byte(strings.Join(texts, "\x00") + "\x00\x00") }

func TestTheStateOfAShellIsWhatItChanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		raw  []byte
		want *wire.ShellState
	}{
		{"a shell that does not tell", nil, nil},
		{"nothing", raw("/etc", "A=1", "B=2"), &wire.ShellState{Outside: "/etc", Set: map[string]string{}}},
		{"changes", raw("/etc", "A=3", "C=x=y", "EMPTY="),
			&wire.ShellState{Outside: "/etc", Set: map[string]string{"A": "3", "C": "x=y", "EMPTY": ""}, Unset: []string{"B"}}},
		{"what is a shell's own", raw("/etc", "A=1", "B=2", "PWD=/x", "OLDPWD=/y", "SHLVL=2", "_=z"),
			&wire.ShellState{Outside: "/etc", Set: map[string]string{}}},
		{"what is no text", raw("/etc", "A=1", "B=2", "C=\xff"), &wire.ShellState{Outside: "/etc", Set: map[string]string{}}},
		{"half of it", []byte("/etc\x00A=1\x00"), &wire.ShellState{Problem: errNoState.Error()}},
		{"twice", append(raw("/etc", "A=1"), raw("/etc", "A=1")...), &wire.ShellState{Problem: errNoState.Error()}},
		{"a directory without a root", raw("etc", "A=1"), &wire.ShellState{Problem: errNoState.Error()}},
		{"a variable without a name", raw("/etc", "=1"), &wire.ShellState{Problem: errNoState.Error()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &Collector{Began: []string{"A=1", "B=2"}}
			if _, err := s.Write(c.raw); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, s.State(outside)); d != "" {
				t.Errorf("want (-), got (+):\n%s", d)
			}
		})
	}
}

func TestTheStateOfAShellIsBounded(t *testing.T) {
	t.Parallel()
	for _, size := range []int{wire.MaxShellState, MaxRaw, 10 * MaxRaw} {
		s := &Collector{}
		for _, piece := range [][]byte{[]byte("/etc\x00A="), []byte(strings.Repeat("x", size)), []byte("\x00\x00")} {
			if n, err := s.Write(piece); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
		}
		if got := s.State(outside); got == nil || got.Problem == "" || len(got.Set) != 0 || s.raw.Len() > MaxRaw {
			t.Errorf("of %d bytes, %d are held, and the state is %+v", size, s.raw.Len(), got)
		}
	}
}

// TestEveryShellReportsItsState runs the trap in each shell of this machine, with a program in the guest's place.
func TestEveryShellReportsItsState(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sh", "dash", "bash", "busybox"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		descriptor, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD, fork.ExtraDescriptor) // the child inherits it
		if err != nil {
			t.Fatal(err)
		}
		args, err := Command("cd /; export NEW='a b'; exit 3", descriptor, w)
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(path, args[1:]...)
		if name == "busybox" {
			c.Args = append([]string{"busybox"}, args...)
		}
		c.Env = []string{"GO_TEST_STATE=" + strconv.Itoa(descriptor), "PATH=/usr/bin:/bin"}
		out, runErr := c.CombinedOutput()
		for _, shut := range []func() error{w.Close, func() error { return unix.Close(descriptor) }} {
			if err := shut(); err != nil {
				t.Error(err)
			}
		}
		s := &Collector{Began: c.Env}
		for b := make([]byte, 4096); ; {
			n, err := r.Read(b)
			if _, werr := s.Write(b[:n]); werr != nil || err != nil {
				break
			}
		}
		want := &wire.ShellState{Outside: "/", Set: map[string]string{"NEW": "a b"}}
		if d := cmp.Diff(want, s.State(outside)); d != "" || c.ProcessState.ExitCode() != 3 {
			t.Errorf("%s: exit code %d (%v), %s: want (-), got (+):\n%s", name, c.ProcessState.ExitCode(), runErr, out, d)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAStateIsNotWrittenToAnotherFile(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		t.Fatal(err)
	}
	if err := Tell(int(f.Fd()), s.Ino); err == nil {
		t.Error("the state was written to a file that is no pipe")
	}
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzShellState: a shell's report comes from a sandbox. Any report is refused, or fits into a result and names no
// variable twice.
func FuzzShellState(f *testing.F) {
	f.Add(raw("/workspace", "A=1"))
	f.Add(raw("/workspace"))
	f.Add([]byte("/\x00\x00\x00A=\x00\x00"))
	f.Add([]byte("\x00\x00"))
	f.Add([]byte("/a\x00=\x00\x00"))
	f.Fuzz(func(t *testing.T, told []byte) {
		s := &Collector{Began: []string{"A=1", "B=2"}}
		if _, err := s.Write(told); err != nil {
			t.Fatal(err)
		}
		state := s.State(outside)
		if (state == nil) != (len(told) == 0) {
			t.Fatalf("%q is %+v", told, state)
		}
		if state == nil {
			return
		}
		b, err := json.Marshal(state)
		var again wire.ShellState
		if err != nil || json.Unmarshal(b, &again) != nil || len(b) > wire.MaxShellState {
			t.Errorf("%d bytes as JSON, %v", len(b), err)
		}
		for name, value := range state.Set {
			if name == "" || strings.ContainsAny(name+value, "\x00") || again.Set[name] != value {
				t.Errorf("variable %q is %q, and %q after its travel", name, value, again.Set[name])
			}
		}
	})
}
