package executortest

import (
	"archive/tar"
	"context"
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

// onDisk describes the result of ReadDisk, one entry per line. The backend owns other files.
func (w *world) onDisk(t *testing.T, h driver.Handle, path string) (string, error) {
	t.Helper()
	r, err := w.disk(t).ReadDisk(t.Context(), h, path)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }() // the stream was only read
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

// disk skips the test unless the backend reads files of sleeping sandboxes.
func (w *world) disk(t *testing.T) driver.DiskReader {
	t.Helper()
	disk, ok := w.x.(driver.DiskReader)
	if !ok {
		t.Skip("the backend does not read the files of sandboxes at rest")
	}
	return disk
}

func readDisk(t *testing.T, w *world) {
	w.disk(t)
	h := w.spawn(t)
	must(t, w.x.CopyTo(t.Context(), h, "/workspace/app/.git", pack(t, file("HEAD", "ref"), file("refs/heads/a", "1"))))
	_, err := w.onDisk(t, h, "/workspace/app/.git")
	wantError(t, err, sandbox.Conflict, sandbox.ReasonInvalidState)
	modes := []sandbox.SleepMode{sandbox.SleepStop}
	if w.x.Capabilities().Pause {
		modes = append([]sandbox.SleepMode{sandbox.SleepPause}, modes...)
	}
	for _, mode := range modes {
		wake(t, w.x, h)
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

// readDiskOfAttacker freezes and reads a sandbox whose code always forks, spins, and changes links on the path.
func readDiskOfAttacker(t *testing.T, w *world) {
	w.disk(t)
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
	time.Sleep(time.Second) //nolint:forbidigo // the attack goes on for a while
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

// atRest runs a script in a sandbox, then pauses it. A backend that cannot pause stops it.
func (w *world) atRest(t *testing.T, h driver.Handle, script string) {
	t.Helper()
	if got := w.sh(t, h, "exec 2>&1; set -e; "+script); got.ExitCode != 0 {
		t.Fatalf("the script ends with %d: %s", got.ExitCode, got.stdout())
	}
	mode := sandbox.SleepStop
	if w.x.Capabilities().Pause {
		mode = sandbox.SleepPause
	}
	must(t, w.x.Sleep(t.Context(), h, mode))
}

// binder creates a socket.
const binder = `package main

import "syscall"

func main() {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: "/workspace/app/.git/objects/socket"})
	}
	if err != nil {
		panic(err)
	}
}
`

// readDiskOfHostileFiles reads files that must not stop a reader or lead it elsewhere.
func readDiskOfHostileFiles(t *testing.T, w *world) {
	w.disk(t)
	w.needExec(t)
	h := w.spawn(t)
	must(t, w.x.CopyTo(t.Context(), h, "/workspace", pack(t, executable("binder", Compile(t, binder)))))
	w.atRest(t, h, `
		mkdir -p /workspace/app/.git/objects /workspace/outside; cd /workspace/app/.git
		echo outside > ../../outside/secret; printf ref > HEAD
		/workspace/binder; test -S objects/socket; mkfifo objects/fifo
		ln -s /etc/passwd absolute; ln -s ../../outside up; ln -s loop loop; ln -s ../../outside/secret file
		ln HEAD zz-hard
		echo 1 > "$(printf 'new\nline')"; echo 2 > "$(printf 'b\377\376')"; echo 3 > ..x; echo 4 > ./-rf; echo 5 > 'a\b'
		echo 6 > "$(printf '%0250d' 0)"
		mkdir many; cd many; i=0; while [ $i -lt 3000 ]; do : > f$i; i=$((i+1)); done; cd ..
		mkdir deep; cd deep; i=0
		while [ $i -lt 120 ]; do mkdir "$(printf '%050d' 0)" && cd "$(printf '%050d' 0)" || break; i=$((i+1)); done; : > end`)
	began := time.Now()
	text, err := w.onDisk(t, h, "/workspace/app/.git")
	must(t, err)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	got, many := make(map[string]bool), 0
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "new\nline", "new+line"), "\n") {
		if got[line] = true; strings.HasPrefix(line, "0 .git/many/") {
			many++
		}
	}
	for _, want := range []string{
		"0 .git/HEAD ref", "6 .git/objects/fifo ", "2 .git/absolute /etc/passwd", "2 .git/up ../../outside", "2 .git/loop loop",
		"2 .git/file ../../outside/secret", "1 .git/zz-hard .git/HEAD", "0 .git/new+line 1", "0 .git/b\xff\xfe 2",
		"0 .git/..x 3", "0 .git/-rf 4", `0 .git/a\b 5`, "0 .git/" + strings.Repeat("0", 250) + " 6",
	} {
		if !got[want] {
			t.Errorf("there is no %q", want)
		}
	}
	if many != 3000 || strings.Contains(text, "root:") || strings.Contains(text, " outside") {
		t.Errorf("%d of 3000 files are read, or a file from outside: %.3000q", many, text)
	}
	must(t, w.x.Kill(t.Context(), h))
}

// readDiskOfHostileRoots reads a directory that is another kind of file or behind a link.
func readDiskOfHostileRoots(t *testing.T, w *world) {
	w.disk(t)
	w.needExec(t)
	h := w.spawn(t)
	w.atRest(t, h, `
		mkdir -p /workspace/real/.git /workspace/a /workspace/b /workspace/c; cd /workspace
		echo HEAD > real/.git/HEAD
		echo "gitdir: ../real/.git" > a/.git; ln -s ../real/.git b/.git; mkfifo c/.git
		ln -s real d; ln -s ../../../etc e; ln -s f f; ln -s /proc/1/root g`)
	for name, want := range map[string]string{
		"a": "0 .git gitdir: ../real/.git\n", "b": "2 .git ../real/.git", "c": "6 .git ", "d": "0 .git/HEAD HEAD\n", // within
		"e": "", "f": "", "g": "",
	} {
		got, err := w.onDisk(t, h, "/workspace/"+name+"/.git")
		if want == "" && err == nil || want != "" && err != nil || got != want {
			t.Errorf("%s is read as %q, want %q: %v", name, got, want, err)
		}
	}
}

// readDiskTooLarge gives up reading files that consist of holes. It then removes the sandbox without delay.
func readDiskTooLarge(t *testing.T, w *world) {
	w.disk(t)
	w.needExec(t)
	h := w.spawn(t, func(s *driver.SandboxSpec) { s.Resources.DiskMB = 10240 })
	w.atRest(t, h, `mkdir -p /workspace/app/.git; cd /workspace/app/.git
		for i in 1 2 3 4 5 6 7 8 9; do truncate -s 9G $i; done`)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	began := time.Now()
	r, err := w.disk(t).ReadDisk(ctx, h, "/workspace/app/.git")
	must(t, err)
	n, err := io.Copy(io.Discard, r)
	if err == nil || n >= 81<<30 {
		t.Errorf("all %d bytes were read", n)
	}
	_ = r.Close() // the read returned the error
	must(t, w.x.Kill(t.Context(), h))
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("giving up and removing took %s", took)
	}
}
