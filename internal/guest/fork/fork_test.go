//go:build linux

package fork_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/fork"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
)

func TestMain(m *testing.M) {
	// Commands must not inherit the test's own descriptors.
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const shell = "/bin/sh"

// needRoot skips a test that changes the user.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("user 0 is needed to start commands as other users")
	}
}

// run runs a shell line as a user, and returns its output and status.
func run(t *testing.T, change func(*fork.Command), line string) (string, unix.WaitStatus) {
	t.Helper()
	c, out := command(t, line)
	if change != nil {
		change(&c)
	}
	child, err := starter(t).Start(c)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Files[1].Close() // the command has its own
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	status, err := child.Wait()
	if err != nil {
		t.Fatal(err)
	}
	done(t, child)
	return string(text), status
}

func command(t *testing.T, line string) (fork.Command, *os.File) {
	t.Helper()
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []*os.File{dir, null, r, w} {
			_ = f.Close() // a test may have closed it
		}
	})
	return fork.Command{
		Path: shell, Args: []string{"sh", "-c", line}, Env: []string{"PATH=/bin:/usr/bin", "A=b c"}, Dir: dir,
		Files: [3]*os.File{null, w, w}, UID: 123456, GID: 123457, Nice: 5, OOMScore: 500,
	}, r
}

func done(t *testing.T, child *fork.Child) {
	t.Helper()
	if err := child.Close(); err != nil {
		t.Error(err)
	}
	gone(t, child.Supervisor)
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	testwait.Until(t, 5*time.Second, fmt.Sprintf("process %d is gone", pid),
		func() bool { return unix.Kill(pid, 0) != nil })
}

// starter returns a starter that ends with the test. Its commands share memory, as those of most sandboxes do.
func starter(t testing.TB) *fork.Starter {
	t.Helper()
	s, err := fork.NewStarter()
	if err != nil {
		t.Fatal(err)
	}
	s.ShareMemory(true)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := unix.Wait4(s.PID(), nil, 0, nil); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestACommandRunsAsItsUserWithoutPrivileges(t *testing.T) {
	needRoot(t)
	out, status := run(t, func(c *fork.Command) { c.Processes = 77 },
		`id -u; id -g; id -G; pwd; echo "$A"; cat /proc/self/oom_score_adj
		grep -E "^(Cap|SigBlk|SigIgn)" /proc/self/status; ulimit -p; nice; ls /proc/self/fd | wc -l`)
	want := []string{"123456", "123457", "123457", "/", "b c", "500"}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 16 || !slices.Equal(lines[:6], want) {
		t.Fatalf("it wrote %q", out)
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[6:13] {
		name, value, _ := strings.Cut(line, ":\t")
		if name == "SigIgn" && strings.Contains(string(own), line+"\n") { // the parent of this test ignores signals
			continue
		}
		if strings.Trim(value, "0") != "" {
			t.Errorf("%s is %s", name, value)
		}
	}
	if !slices.Equal(lines[13:15], []string{"77", "5"}) {
		t.Errorf("limit of processes, priority: %q", lines[13:15])
	}
	if strings.TrimSpace(lines[15]) != "4" { // ls has three, and one for the directory
		t.Errorf("%s descriptors are open", lines[15])
	}
	if status.ExitStatus() != 0 {
		t.Errorf("it ended with %d", status.ExitStatus())
	}
}

func TestACommandHasTheGroupsThatItIsGiven(t *testing.T) {
	needRoot(t)
	change := func(c *fork.Command) { c.UID, c.GID, c.Groups = 4711, 4712, []uint32{4713, 4714} }
	if out, _ := run(t, change, "id -G"); out != "4712 4713 4714\n" {
		t.Errorf("its groups are %q", out)
	}
}

func TestWhyACommandCannotStart(t *testing.T) {
	needRoot(t)
	for name, row := range map[string]struct {
		change func(*fork.Command)
		want   error
	}{
		"no program":   {func(c *fork.Command) { c.Path = "/none" }, unix.ENOENT},
		"no directory": {func(c *fork.Command) { c.Dir = c.Files[0] }, unix.ENOTDIR},
		"not allowed":  {func(c *fork.Command) { c.Path = "/etc/passwd" }, unix.EACCES},
	} {
		c, _ := command(t, "")
		row.change(&c)
		_, err := starter(t).Start(c)
		var step *fork.Error
		if !errors.Is(err, row.want) || !errors.As(err, &step) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDescendantsStayBelowTheSupervisor(t *testing.T) {
	needRoot(t)
	c, out := command(t,
		`(setsid sh -c 'sleep 0.1; cut -d" " -f4 /proc/self/stat >&1; exec sleep 0.2' &) ; sleep 0.6; exit 3`)
	child, err := starter(t).Start(c)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Files[1].Close() // the command has its own
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		t.Error("the daemon did not report")
	}
	status, err := child.Wait()
	if err != nil || status.ExitStatus() != 3 {
		t.Error(status, err)
	}
	done(t, child)
}

func TestASignalledCommand(t *testing.T) {
	needRoot(t)
	if _, status := run(t, nil, "kill -9 $$"); status.Signal() != unix.SIGKILL {
		t.Error(status)
	}
}

func TestACommandWithACopyOfTheSupervisorsMemory(t *testing.T) {
	needRoot(t)
	s := starter(t)
	s.ShareMemory(false)
	c, out := command(t, "id -u; exit 3")
	child, err := s.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Files[1].Close() // the command has its own
	text, err := io.ReadAll(out)
	if status, waitErr := child.Wait(); errors.Join(err, waitErr) != nil || status.ExitStatus() != 3 ||
		string(text) != "123456\n" {
		t.Errorf("it wrote %q and ended with %v: %v, %v", text, status, err, waitErr)
	}
	done(t, child)
	c, _ = command(t, "")
	c.Path = "/none"
	if _, err := s.Start(c); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a program that does not exist: %v", err)
	}
}

func TestAnotherCommandsPipesAreNotHeldOpen(t *testing.T) {
	needRoot(t)
	held, heldIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	c, _ := command(t, "exec sleep 30")
	child, err := starter(t).Start(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := heldIn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := held.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the pipe does not end: %v", err)
	}
	if err := unix.Kill(child.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status, err := child.Wait(); err != nil || status.Signal() != unix.SIGKILL {
		t.Error(status, err)
	}
	done(t, child)
}

func BenchmarkStart(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("user 0 is needed to start commands as other users")
	}
	dir, _ := os.Open("/")
	null, _ := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	defer dir.Close()
	defer null.Close()
	start := starter(b).Start
	for b.Loop() {
		child, err := start(fork.Command{Path: "/bin/busybox", Args: []string{"true"}, Dir: dir,
			Files: [3]*os.File{null, null, null}, UID: 123456, GID: 123457, Nice: 5, OOMScore: 500})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := child.Wait(); err != nil {
			b.Fatal(err)
		}
		if err := child.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAStarterThatWasKilledIsReplaced(t *testing.T) {
	needRoot(t)
	s := starter(t)
	start := func() (*fork.Child, error) {
		c, _ := command(t, "exit 3")
		return s.Start(c)
	}
	first := s.PID()
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(first, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	child, err := start()
	if err != nil {
		t.Fatal(err)
	}
	if status, err := child.Wait(); err != nil || status.ExitStatus() != 3 {
		t.Error(status, err)
	}
	done(t, child)
	if s.PID() == first {
		t.Error("the starter is the one that was killed")
	}
}

func TestACommandWhoseStartWasGivenUpNeverRuns(t *testing.T) {
	needRoot(t)
	s := starter(t)
	if err := unix.Kill(s.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c, out := command(t, "echo it runs")
	if _, err := s.Start(c); !errors.Is(err, fork.ErrStopped) {
		t.Errorf("the start of a command by a starter that stands still: %v", err)
	}
	_ = c.Files[1].Close() // the command has its own
	if err := unix.Kill(s.PID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(out); err != nil || len(text) > 0 {
		t.Errorf("nothing waits for it, but it wrote %q: %v", text, err)
	}
}

func TestACommandOutlivesItsStarter(t *testing.T) {
	needRoot(t)
	s := starter(t)
	c, out := command(t, "sleep 0.3; echo late; exit 4")
	child, err := s.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Files[1].Close() // the command has its own
	if err := unix.Kill(s.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if status, waitErr := child.Wait(); errors.Join(err, waitErr) != nil || status.ExitStatus() != 4 ||
		string(text) != "late\n" {
		t.Errorf("it wrote %q and ended with %v: %v, %v", text, status, err, waitErr)
	}
	done(t, child)
}

func TestArgumentsOfAnySizeThatTheKernelTakes(t *testing.T) {
	needRoot(t)
	many := func(n int) func(*fork.Command) {
		return func(c *fork.Command) {
			c.Args = append(c.Args, "sh")
			for range n {
				c.Args = append(c.Args, strings.Repeat("x", 99))
			}
		}
	}
	for _, n := range []int{10_000, 1} { // a large plan must leave nothing for the next one
		if out, status := run(t, many(n), `echo $#; echo "$A"`); out != strconv.Itoa(n)+"\nb c\n" || status != 0 {
			t.Errorf("with %d arguments it wrote %q and ended with %v", n, out, status)
		}
	}
	c, _ := command(t, "")
	many(50_000)(&c)
	if _, err := starter(t).Start(c); !errors.Is(err, unix.E2BIG) {
		t.Errorf("5 MB of arguments: %v", err)
	}
}
