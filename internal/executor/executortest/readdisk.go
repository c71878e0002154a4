package executortest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// onDisk describes what ReadDisk returns, one entry per line. Other files are the backend's.
func (w *world) onDisk(t *testing.T, h driver.Handle, path string) (string, error) {
	t.Helper()
	disk, ok := w.x.(driver.DiskReader)
	if !ok {
		t.Fatal("the executor reads no disks")
	}
	r, err := disk.ReadDisk(t.Context(), h, path)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }() // only read
	var lines []string
	for tr := tar.NewReader(r); ; {
		e, err := tr.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(lines)
			return strings.Join(lines, "\n"), nil
		}
		must(t, err)
		content, err := io.ReadAll(io.LimitReader(tr, 100))
		must(t, err)
		if e.Typeflag != tar.TypeDir {
			lines = append(lines, fmt.Sprintf("%c %s %s%s", e.Typeflag, e.Name, e.Linkname, content))
		}
	}
}

// needDisk skips the test unless the backend reads files of sandboxes at rest.
func (w *world) needDisk(t *testing.T) {
	t.Helper()
	if _, ok := w.x.(driver.DiskReader); !ok {
		t.Skip("the backend does not read the files of sandboxes at rest")
	}
}

func readDisk(t *testing.T, w *world) {
	w.needDisk(t)
	h := w.spawn(t)
	must(t, w.x.CopyTo(t.Context(), h, "/workspace/app/.git", pack(t, file("HEAD", "ref"), file("refs/heads/a", "1"))))
	_, err := w.onDisk(t, h, "/workspace/app/.git")
	wantError(t, err, sandbox.Conflict, sandbox.ReasonInvalidState)
	modes := []sandbox.SleepMode{sandbox.SleepStop}
	if w.x.Capabilities().Pause {
		modes = append([]sandbox.SleepMode{sandbox.SleepPause}, modes...)
	}
	for _, mode := range modes {
		must(t, w.x.Wake(t.Context(), h))
		must(t, w.x.Sleep(t.Context(), h, mode))
		got, err := w.onDisk(t, h, "/workspace/app/.git")
		must(t, err)
		if want := "0 .git/HEAD ref\n0 .git/refs/heads/a 1"; got != want {
			t.Errorf("after %s, read\n%s\nwant\n%s", mode, got, want)
		}
		_, err = w.onDisk(t, h, "/workspace/none")
		wantError(t, err, sandbox.NotFound, sandbox.ReasonFileNotFound)
	}
	other := h
	other.SandboxID = w.spec().SandboxID
	_, err = w.onDisk(t, other, "/workspace")
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}

// readDiskOfAttacker freezes and reads a sandbox whose code forks, spins, and changes links on the way all the time.
func readDiskOfAttacker(t *testing.T, w *world) {
	w.needDisk(t)
	w.needExec(t)
	if !w.x.Capabilities().Pause {
		t.Skip("the backend cannot pause")
	}
	h := w.spawn(t)
	w.sh(t, h, `mkdir /workspace/app /workspace/app/.git && echo inside > /workspace/app/.git/HEAD
		ln -s /etc /workspace/link
		cat > /workspace/attack <<-'END'
			(while :; do sleep 100 & done) &
			for i in 1 2 3 4; do (while :; do :; done) & done
			while :; do
				mv /workspace/app /workspace/real; ln -s / /workspace/app; rm /workspace/app; mv /workspace/real /workspace/app
			done
		END
		setsid sh /workspace/attack > /dev/null 2>&1 &`)
	time.Sleep(time.Second)
	began := time.Now()
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
	got, err := w.onDisk(t, h, "/workspace/app/.git")
	if err != nil {
		wantError(t, err, sandbox.NotFound, sandbox.ReasonFileNotFound) // it was frozen between two changes
	} else if got != "0 .git/HEAD inside\n" {
		t.Errorf("read %q", got)
	}
	if link, err := w.onDisk(t, h, "/workspace/link"); err != nil || link != "2 link /etc" {
		t.Errorf("a link is read as %q, %v", link, err)
	}
	must(t, w.x.Kill(t.Context(), h))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("freezing, reading and killing took %s", took)
	}
}
