//go:build linux

package keeper_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
)

// do carries out an operation that must succeed, and returns its output.
func (b *box) do(t *testing.T, r channel.Request, in io.Reader) (string, wire.Result) {
	t.Helper()
	var out bytes.Buffer
	if r.ID == "" {
		r.ID = fmt.Sprintf("%s %d", r.Op, time.Now().UnixNano())
	}
	res, err := b.call(r, channel.Streams{Stdin: in, Stdout: &out})
	if err != nil || res.Problem != "" {
		t.Fatalf("%s: %+v, %v", r.Op, res, err)
	}
	return out.String(), res
}

func archive(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{
			Name:     name,
			Mode:     0o600,
			Size:     int64(len(text)),
			Typeflag: tar.TypeReg,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestFilesBelongToTheSandbox(t *testing.T) {
	b := start(t, options{keep: []string{"-config", `{"a":1}`}})
	b.do(t, channel.Request{Op: channel.OpPut, Path: []byte("/data")}, archive(t, map[string]string{"x": "text"}))
	b.do(t, channel.Request{Op: channel.OpSecrets}, archive(t, map[string]string{"token": "secret"}))
	out, _, _ := b.run(t, "stat -c '%U:%u %g %a' /workspace /data /data/x /workspace/config.json /run/secrets "+
		"/run/secrets/token /tmp; cat /data/x /run/secrets/token /workspace/config.json; mkdir /workspace/own && chmod 700 "+
		"/workspace/own && cd /workspace/own && pwd")
	u := strconv.Itoa(user)
	for _, want := range []string{"textsecret{\"a\":1}", "/workspace/own", u + " " + u + " 700\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q has no %q", out, want)
		}
	}
	if n := strings.Count(out, ":"+u+" "+u); n != 7 {
		t.Errorf("%d of 7 files belong to the sandbox: %s", n, out)
	}
	_, _, res := b.exec(t,
		channel.Request{ID: "own", Exec: &channel.Exec{Args: []string{"true"}, Cwd: "/workspace/own"}}, "")
	if res.ExitCode != 0 {
		t.Errorf("a directory that only the sandbox may enter: %+v", res)
	}
	packed, res := b.do(t, channel.Request{Op: channel.OpGet, Path: []byte("/data"), ReportData: true}, nil)
	if !strings.Contains(packed, "text") || res.Data == "" || res.CPUTime == 0 {
		t.Errorf("%d bytes, %+v", len(packed), res)
	}
	stat, _ := b.do(t,
		channel.Request{Op: channel.OpFile, File: &wire.FileRequest{Op: wire.FileStat, Path: []byte("/data/x")}}, nil)
	var info wire.FileInfo
	if err := json.Unmarshal([]byte(stat), &info); err != nil || info.Size != 4 {
		t.Errorf("%s, %v", stat, err)
	}
	usage, _ := b.do(t, channel.Request{Op: channel.OpUsage}, nil)
	var used wire.Usage
	if err := json.Unmarshal([]byte(usage), &used); err != nil || used.MemoryBytes == 0 {
		t.Errorf("%s, %v", usage, err)
	}
}

// TestASaveStopsProgramsWhileItPacks saves while a program repeatedly replaces a file.
func TestASaveStopsProgramsWhileItPacks(t *testing.T) {
	b := start(t, options{})
	b.run(t, "(i=0; while :; do i=$((i+1)); echo $i > /data/c; mv /data/c /data/a; sleep 0.01; done) > /dev/null 2>&1 & "+
		"until [ -e /data/a ]; do :; done")
	packed, res := b.do(t, channel.Request{Op: channel.OpSave, Path: []byte("/data")}, nil)
	if res.Data == "" || !strings.Contains(packed, "a\x00") {
		t.Errorf("%d bytes, %+v", len(packed), res)
	}
	first, _, _ := b.run(t, "cat /data/a")
	testwait.Until(t, 10*time.Second, "the program continues", func() bool {
		next, _, _ := b.run(t, "cat /data/a")
		return next != first
	})
	b.do(t, channel.Request{Op: channel.OpSave, Path: []byte("/data"), Save: &channel.Save{End: true}}, nil)
	if out, _, _ := b.run(t, "ps | grep -c '[s]leep 0.01'"); strings.TrimSpace(out) != "0" {
		t.Errorf("%s programs survive", out)
	}
}

func TestAProcessHasALogAndEndsWhole(t *testing.T) {
	b := start(t, options{})
	done := make(chan wire.Result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		server := line("setsid sleep 4321 & echo started; nc -l -p 7777 < /dev/null; exit 5")
		res, err := b.client.Call(ctx, channel.Request{Op: channel.OpProcess, ID: "server", Exec: server}, channel.Streams{})
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	b.do(t, channel.Request{Op: channel.OpPort, Port: 7777}, nil)
	if log, _ := b.do(t, channel.Request{Op: channel.OpFollow, ID: "server", Follow: &channel.Follow{Now: true}},
		nil); log != "started\n" {
		t.Errorf("the log is %q", log)
	}
	if res := <-done; res.ExitCode != 5 || res.StdoutBytes == 0 {
		t.Errorf("%+v", res)
	}
	if out, _, _ := b.run(t, "ps | grep -c '[s]leep 4321'"); strings.TrimSpace(out) != "0" {
		t.Errorf("%s processes survive", out)
	}
}

// slow reads slowly at first, so that a command gets ahead.
type slow struct {
	bytes.Buffer
	waited bool
}

func (s *slow) Write(p []byte) (int, error) {
	if !s.waited {
		s.waited = true
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // a slow reader
	}
	return s.Buffer.Write(p)
}

func TestALargeOutputArrivesWhole(t *testing.T) {
	b := start(t, options{})
	const mib = 40
	var out slow
	began := time.Now()
	res, err := b.call(channel.Request{Op: channel.OpExec, ID: "large", Exec: line(fmt.Sprintf(
		"yes 'a line of sixteen' | head -c %d", mib<<20))}, channel.Streams{Stdout: &out})
	want := bytes.Repeat([]byte("a line of sixteen\n"), mib<<20/18+1)[:mib<<20]
	if err != nil || res.ExitCode != 0 || !res.Dropped || res.StdoutBytes != mib<<20 || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%d bytes, %+v, %v", out.Len(), res, err)
	}
	t.Logf("%d MiB in %s", mib, time.Since(began))
	kept, _ := b.do(t, channel.Request{Op: channel.OpFollow, ID: "large", Follow: &channel.Follow{}}, nil)
	if len(kept) != 16<<20 {
		t.Errorf("%d bytes are kept", len(kept))
	}
}

func TestWaysToEndASandbox(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(t *testing.T, b *box)
		code string
	}{
		"shutdown": {func(t *testing.T, b *box) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			// There is no answer.
			_, _ = b.client.Call(ctx, channel.Request{Op: channel.OpShutdown, ID: "end"}, channel.Streams{})
		}, "143"},
		"file": {func(t *testing.T, b *box) {
			if err := os.WriteFile(filepath.Join(filepath.Dir(b.socket), guest.EndFile), nil, 0o600); err != nil {
				t.Error(err)
			}
		}, "143"},
		"stop": {func(t *testing.T, b *box) { b.docker(t, "stop", b.name) }, "143"},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, options{})
			b.run(t, "sleep 1000 > /dev/null 2>&1 &")
			began := time.Now()
			row.end(t, b)
			if code := b.docker(t, "wait", b.name); code != row.code || time.Since(began) > 8*time.Second {
				t.Errorf("exit code %s after %s", code, time.Since(began))
			}
		})
	}
}

// TestTheGuestIsSmallAndQuick measures 1,000 commands.
func TestTheGuestIsSmallAndQuick(t *testing.T) {
	b := start(t, options{})
	var trips, inside []time.Duration
	for i := range 1000 {
		began := time.Now()
		res, err := b.call(channel.Request{Op: channel.OpExec, ID: strconv.Itoa(i), Exec: &channel.Exec{
			Args: []string{"/bin/true"}, Cwd: "/workspace", Timeout: time.Minute}}, channel.Streams{})
		if err != nil || res.ExitCode != 0 {
			t.Fatal(res, err)
		}
		trips, inside = append(trips, time.Since(began)), append(inside, res.Duration)
	}
	slices.Sort(trips)
	slices.Sort(inside)
	t.Logf("a command takes %s inside, %s with its round trip (medians)", inside[500], trips[500])
	const most = 12 << 10
	total := 0
	testwait.Poll(15*time.Second, func() bool { // it returns memory once it is idle
		total = b.memory(t)
		return total <= most
	})
	t.Logf("the guest has %d KiB after 1,000 commands", total)
	if total == 0 || total > most {
		t.Errorf("that is more than %d KiB", most)
	}
}

// memory returns the memory of process 1 and its broker, in KiB.
func (b *box) memory(t *testing.T) (total int) {
	t.Helper()
	for _, l := range strings.Split(b.docker(t, "top", b.name, "-eo", "pid,args"), "\n")[1:] {
		pid, _, _ := strings.Cut(strings.TrimSpace(l), " ")
		text, err := exec.Command("grep", "^Pss:", "/proc/"+pid+"/smaps_rollup").Output()
		if err != nil {
			continue // it has ended
		}
		kib, err := strconv.Atoi(strings.Fields(string(text))[1])
		if err != nil {
			t.Error(err)
		}
		total += kib
	}
	return total
}

func TestProgramsThatKeepTooMuchAreEnded(t *testing.T) {
	b := start(t, options{keep: []string{"-disk", strconv.Itoa(20 << 20)}})
	_, errOut, res := b.run(t, "i=0; while [ $i -lt 100 ]; do "+
		"dd if=/dev/zero of=/workspace/f$i bs=1M count=1 2>/dev/null; i=$((i+1)); sleep 0.1; done")
	if res.ExitCode != 137 || !strings.Contains(errOut, "disk_exceeded") {
		t.Errorf("%q, %+v", errOut, res)
	}
	if out, _, _ := b.run(t, "rm /workspace/f*; echo removed"); out != "removed\n" {
		t.Errorf("%q", out)
	}
}

// TestDirectoriesAreHandedOverOnce uses a volume with files of other users, a link out of it, and a mount of the host.
func TestDirectoriesAreHandedOverOnce(t *testing.T) {
	host, volume := t.TempDir(), t.TempDir()
	outside := filepath.Join(host, "file")
	for _, err := range []error{
		os.WriteFile(outside, nil, 0o644), os.MkdirAll(filepath.Join(volume, "deep/er"), 0o700),
		os.Mkdir(filepath.Join(volume, "mnt"), 0o755), os.Symlink("/mnt/host/file", filepath.Join(volume, "link")),
		os.WriteFile(filepath.Join(volume, "deep/er/own"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b := start(t, options{run: []string{"-v", volume + ":/data", "-v", host + ":/data/mnt", "-v", host + ":/mnt/host"}})
	const list = "cd /data; stat -c '%n %u' . deep deep/er deep/er/own link mnt mnt/file /mnt/host/file"
	out, _, _ := b.run(t, list)
	u := strconv.Itoa(user)
	want := strings.NewReplacer("U", u).
		Replace(". U\ndeep U\ndeep/er U\ndeep/er/own U\nlink U\nmnt 0\nmnt/file 0\n/mnt/host/file 0\n")
	if out != want {
		t.Errorf("%s, want %s", out, want)
	}
	if err := os.Chown(filepath.Join(volume, "deep"), 0, 0); err != nil {
		t.Fatal(err)
	}
	b.docker(t, "restart", "-t", "1", b.name)
	if out, _, _ := b.run(t, list); !strings.HasPrefix(out, ". "+u+"\ndeep 0\n") {
		t.Errorf("a restart hands over again: %s", out)
	}
}
