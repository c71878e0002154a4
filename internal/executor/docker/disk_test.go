package docker_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// bounded creates a sandbox with a disk limit of 32 MB.
func (w *world) bounded(t *testing.T) driver.Handle {
	t.Helper()
	spec := w.spec()
	spec.Resources.DiskMB = 32
	must(t, w.x.Spawn(t.Context(), spec))
	return spec.Handle
}

// ends runs a script to its end, as the sandbox's user.
func (w *world) ends(t *testing.T, h driver.Handle, script string) sandbox.ExecResult {
	t.Helper()
	return w.endsAs(t, h, "", script)
}

func (w *world) endsAs(t *testing.T, h driver.Handle, user, script string) sandbox.ExecResult {
	t.Helper()
	r, err := sandbox.ExecRequest{
		Command: []string{"sh", "-c", script},
		User:    user,
		Timeout: sandbox.Duration(time.Minute),
	}.Normalize()
	must(t, err)
	res, err := w.x.Exec(t.Context(), h, r)
	must(t, err)
	return res
}

func TestProgramsThatKeepMoreThanTheDiskAreEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	beside := w.bounded(t)
	w.exec(t, beside,
		"sh", "-c", "sleep 7301 >/dev/null 2>&1 & dd if=/dev/zero of=/workspace/below bs=1M count=24 2>/dev/null")
	t.Run("more", func(t *testing.T) { moreThanTheDisk(t, w) })
	const look = "grep -l 'sleep.[7]301' /proc/[0-9]*/cmdline | wc -l; wc -c < /workspace/below"
	if got := w.exec(t, beside, "sh", "-c", look); got != "1\n25165824\n" {
		t.Errorf("the sandbox beside them has %q", got)
	}
}

func moreThanTheDisk(t *testing.T, w *world) {
	for name, script := range map[string]string{
		"in both directories": "dd if=/dev/zero of=/workspace/a bs=1M count=24; dd if=/dev/zero of=/data/b bs=1M count=24",
		"in many files":       "i=0; while [ $i -lt 400 ]; do dd if=/dev/zero of=/data/$i bs=64k count=2; i=$((i+1)); done",
		"in files without a name": "exec 3>/workspace/a 4>/data/b; rm /workspace/a /data/b; " +
			"dd if=/dev/zero bs=1M count=24 >&3; dd if=/dev/zero bs=1M count=24 >&4",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := w.bounded(t)
			res := w.ends(t, h, script+"; date +%s; sleep 50")
			const killed = 128 + 9
			if res.ExitCode != killed || res.TimedOut || !strings.Contains(string(res.Stderr), "disk_exceeded") {
				t.Fatalf("it ended with exit code %d, timed out %t: %s", res.ExitCode, res.TimedOut, res.Stderr)
			}
			if res.Duration.D() > 10*time.Second {
				t.Errorf("it ended after %s", res.Duration)
			}
			if got := w.ends(t, h, "rm -rf /workspace/* /data/*; sleep 2; echo removed"); string(got.Stdout) != "removed\n" {
				t.Errorf("removing files ended with %d: %q, %s", got.ExitCode, got.Stdout, got.Stderr)
			}
			const below = "dd if=/dev/zero of=/workspace/c bs=1M count=24 2>/dev/null; sleep 2; echo written"
			if got := w.ends(t, h, below); string(got.Stdout) != "written\n" {
				t.Errorf("writing again ended with %d: %q, %s", got.ExitCode, got.Stdout, got.Stderr)
			}
		})
	}
}

// What a directory denies its owner can neither hide files nor end a program.
func TestADirectoryThatDeniesAccessIsMeasured(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	t.Run("of another user", func(t *testing.T) {
		t.Parallel()
		h := w.bounded(t)
		w.ends(t, h, "mkdir -m 1777 p")
		closed := make(chan sandbox.ExecResult)
		go func() {
			closed <- w.ends(t, h, "until [ -d p/h ]; do sleep 0.1; done; mkdir p/i; echo x >p/i/f; touch p/closed; chmod 700 p")
		}()
		// The other user writes in its working directory, to whose parent it has no access any more.
		res := w.endsAs(t, h, "4242:4242", "mkdir -m 700 p/h; cd p/h; while [ -e ../h ]; do sleep 0.1; done; "+
			"for f in 1 2; do dd if=/dev/zero of=$f bs=1M count=20; done; sleep 50")
		if res.ExitCode != 128+9 || !strings.Contains(string(res.Stderr), "disk_exceeded") {
			t.Errorf("a program that hides 40 MB of 32 ended with %d: %s", res.ExitCode, res.Stderr)
		}
		if res := <-closed; res.ExitCode != 0 {
			t.Errorf("the parent was closed with %d: %s", res.ExitCode, res.Stderr)
		}
	})
	for _, mode := range []string{"644", "444", "600", "200", "0"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := w.bounded(t)
			few := "mkdir -p d/e; echo x >d/e/f; chmod " + mode + " d; for i in $(seq 8); do sleep 0.5; done; echo done"
			if res := w.ends(t, h, few); res.ExitCode != 0 || string(res.Stdout) != "done\n" {
				t.Errorf("a program beside it ended with %d: %s", res.ExitCode, res.Stderr)
			}
			much := "mkdir m; exec 3>m/f; chmod " + mode + " m; dd if=/dev/zero bs=1M count=40 >&3; sleep 50"
			if res := w.ends(t, h, much); res.ExitCode != 128+9 || !strings.Contains(string(res.Stderr), "disk_exceeded") {
				t.Errorf("a program that hides 40 MB of 32 ended with %d: %s", res.ExitCode, res.Stderr)
			}
		})
	}
}

// Files that a caller writes are within the disk limit, too: no program that could be ended writes them.
func TestFilesOfACallerAreWithinTheDiskLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.bounded(t)
	megabyte := strings.Repeat("x", 1<<20)
	var many bytes.Buffer
	to := tar.NewWriter(&many)
	for i := range 100 {
		must(t, to.WriteHeader(&tar.Header{Name: fmt.Sprint("f", i), Mode: 0o644, Size: 1 << 20}))
		_, err := io.WriteString(to, megabyte)
		must(t, err)
	}
	must(t, to.Close())
	err := w.x.CopyTo(t.Context(), h, "/workspace/many", bytes.NewReader(many.Bytes()))
	if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "disk_exceeded") {
		t.Errorf("100 MB of 32 are copied with %v", err)
	}
	write := func(name string) error {
		return w.x.WriteFile(t.Context(), h, sandbox.FileWrite{Path: "/workspace/" + name}, strings.NewReader(megabyte+megabyte))
	}
	for i := range 10 {
		if err = write(fmt.Sprint("g", i)); err != nil {
			break
		}
	}
	if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "disk_exceeded") {
		t.Errorf("another 20 MB are written with %v", err)
	}
	used, err := strconv.Atoi(strings.TrimSpace(string(w.ends(t, h, "du -sm /workspace | cut -f1").Stdout)))
	if err != nil || used > 40 {
		t.Errorf("%d MB are used, of 32: %v", used, err)
	}
	must(t, w.x.RemoveFile(t.Context(), h, sandbox.FileRemoval{Path: "/workspace/many", Recursive: true}))
	must(t, write("after"))
}
