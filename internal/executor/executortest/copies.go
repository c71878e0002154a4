package executortest

import (
	"archive/tar"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// filesOfAnyName: Linux allows every byte in a name except slash and NUL.
func filesOfAnyName(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, `mkdir -p any; cd any; d=$(printf 'd\377'); mkdir "$d"; echo 1 > "$d/$(printf '\300\200')"; ln -s "$d" "$(printf 'l\377')"`)
	want := "5 any/ 755 \n5 any/d\xff/ 755 \n0 any/d\xff/\xc0\x80 644 1\n\n2 any/l\xff 777 d\xff\n"
	r, err := w.x.CopyFrom(t.Context(), h, "/workspace/any")
	must(t, err)
	archive, err := io.ReadAll(r)
	must(t, errors.Join(err, r.Close()))
	if got := unpack(t, io.NopCloser(strings.NewReader(string(archive)))); got != want {
		t.Errorf("read\n%q\nwant\n%q", got, want)
	}
	must(t, w.x.CopyTo(t.Context(), h, "/workspace/any/d\xff/copy\xfe", strings.NewReader(string(archive))))
	r, err = w.x.CopyFrom(t.Context(), h, "/workspace/any/d\xff/copy\xfe/any")
	must(t, err)
	if got := unpack(t, r); got != want {
		t.Errorf("written and read again\n%q\nwant\n%q", got, want)
	}
}

// busyWriter writes, truncates, renames and removes as fast as it can. It replaces files by pipes, directories and
// links.
const busyWriter = `cd /workspace/busy && (
i=0
while :; do
	for f in a b c d; do
		for n in 1 2 3 4 5 6 7 8; do echo "line $i of a file that is being written"; done > $f
		: > $f; echo $i > t; mv t $f; rm -f $f
		mkfifo $f; rm -f $f; mkdir $f; rmdir $f; ln -s /etc/passwd $f; rm -f $f
	done
	i=$((i+1))
done ) >/dev/null 2>&1 &`

// filesBusy copies a directory while a process writes to it at full speed. Nothing hangs, and every copy that is
// reported as complete is a whole archive.
func filesBusy(t *testing.T, w *world, _ driver.Handle) {
	h := w.spawn(t)
	w.sh(t, h, "mkdir -p /workspace/busy\n"+busyWriter+"\nhead -c 3000000 /dev/zero | tr '\\0' x > /workspace/busy/large")
	complete := 0
	for range 15 {
		r, err := w.x.CopyFrom(t.Context(), h, "/workspace/busy")
		if err == nil {
			err = wholeArchive(r)
		}
		if err == nil {
			complete++
		} else if sandbox.CodeOf(err) != sandbox.Failed {
			t.Errorf("a copy of what is being written ended with %v", err)
		}
	}
	if complete < 10 {
		t.Errorf("of 15 copies only %d were complete", complete)
	}
}

// wholeArchive reads a complete archive, and checks that it contains the large file.
func wholeArchive(r io.ReadCloser) error {
	large := int64(0)
	for entries := tar.NewReader(r); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(err, r.Close())
		}
		n, err := io.Copy(io.Discard, entries)
		if err != nil {
			return errors.Join(err, r.Close())
		}
		if h.Name == "busy/large" {
			large = n
		}
	}
	_, err := io.Copy(io.Discard, r) // the transfer's final error
	if large != 3000000 && err == nil {
		err = errors.New("the large file is missing in an archive that is said to be complete")
	}
	return errors.Join(err, r.Close())
}

// filesPaused: a sandbox is paused in the middle of a copy, in each direction, and continues.
func filesPaused(t *testing.T, w *world, _ driver.Handle) {
	if !w.x.Capabilities().Pause {
		t.Skip("the backend has no pause")
	}
	h := w.spawn(t)
	content := strings.Repeat("0123456789abcdef", 1<<20)
	pauseAndWake := func() error {
		if err := w.x.Sleep(t.Context(), h, sandbox.SleepPause); err != nil {
			return err
		}
		o, err := w.x.Inspect(t.Context(), h)
		if err == nil && o.State != sandbox.StatePaused {
			err = errors.New("the sandbox is not paused but " + string(o.State))
		}
		_, wakeErr := w.x.Wake(t.Context(), h)
		return errors.Join(err, wakeErr)
	}
	archive, paused := pack(t, file("large", content)), make(chan error, 1)
	pause := callOnRead(func() { paused <- pauseAndWake() })
	must(t, w.x.CopyTo(t.Context(), h, "/workspace", io.MultiReader(io.LimitReader(archive, 8<<20), pause, archive)))
	must(t, <-paused)
	r, err := w.x.CopyFrom(t.Context(), h, "/workspace/large")
	must(t, err)
	head, err := io.ReadAll(io.LimitReader(r, 1<<20))
	must(t, err)
	must(t, pauseAndWake())
	if got := unpack(t, struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(string(head)), r), r}); got != "0 large 644 "+content+"\n" {
		t.Errorf("%d bytes came back of %d", len(got), len(content))
	}
}

// filesStopped: a sandbox is stopped in the middle of a copy, in each direction. The copy ends with an error.
func filesStopped(t *testing.T, w *world, _ driver.Handle) {
	h := w.spawn(t)
	w.sh(t, h, "head -c 50000000 /dev/zero > /workspace/large")
	r, err := w.x.CopyFrom(t.Context(), h, "/workspace/large")
	must(t, err)
	_, err = io.ReadFull(r, make([]byte, 1000))
	must(t, err)
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	if _, err = io.Copy(io.Discard, r); err == nil {
		t.Error("the copy of a sandbox that was stopped says that it is complete")
	}
	must(t, r.Close())
	wake(t, w.x, h)
	archive, stopped := pack(t, file("half", strings.Repeat("x", 8<<20))), make(chan error, 1)
	stop := callOnRead(func() { stopped <- w.x.Sleep(t.Context(), h, sandbox.SleepStop) })
	if err := w.x.CopyTo(t.Context(), h, "/workspace",
		io.MultiReader(io.LimitReader(archive, 4<<20), stop, archive)); err == nil {
		t.Error("the copy to a sandbox that was stopped says that it is complete")
	}
	must(t, <-stopped)
	wake(t, w.x, h)
	w.wantOutput(t, h, "echo fine", "fine\n")
}

// callOnRead is an empty stream that calls a function when it is read.
type callOnRead func()

func (f callOnRead) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}
