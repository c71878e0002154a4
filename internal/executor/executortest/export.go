package executortest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testExport(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	for name, test := range map[string]func(*testing.T, *world){
		"an awake sandbox is read and goes on":             exportAwake,
		"a paused sandbox is read and stays so":            exportPaused,
		"a stopped sandbox is read and stays so":           exportStopped,
		"one that went down by itself is read":             exportCrashed,
		"one that is not there is not found":               exportMissing,
		"a sandbox goes on when its reader goes away":      exportGivenUp,
		"a sandbox of a reader whose time is up goes on":   exportTimedOut,
		"what is read is one moment's":                     exportConsistent,
		"what runs again meanwhile is not taken for whole": exportWoken,
		"one that ended at its deadline is read":           exportEnded,
		"much is read with little memory":                  exportLarge,
		"another sandbox gets the same files":              exportRestored,
		"the next generation owns what one has left":       exportInherited,
		"files of one that is at rest are read":            readDisk,
		"one that attacks is frozen and read":              readDiskOfAttacker,
		"hostile files are read as files":                  readDiskOfHostileFiles,
		"a hostile directory leads to no other":            readDiskOfHostileRoots,
		"a disk that is too large to read is let go":       readDiskTooLarge,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

const exported = "0 memory/day.md 640 it rained\n"

// remembering creates a sandbox with a file in /data and another file.
func (w *world) remembering(t *testing.T) driver.Handle {
	t.Helper()
	h := w.spawn(t)
	day := file("memory/day.md", "it rained")
	day.Mode = 0o640
	must(t, w.x.CopyTo(t.Context(), h, "/data", pack(t, day)))
	must(t, w.x.CopyTo(t.Context(), h, "/workspace", pack(t, file("scratch", "x"))))
	return h
}

// export describes the files and links in /data, one per line.
func (w *world) export(t *testing.T, h driver.Handle) string {
	t.Helper()
	r, err := w.x.Export(t.Context(), h)
	must(t, err)
	var lines []string
	for tr := tar.NewReader(r); ; {
		e, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		content, err := io.ReadAll(tr)
		must(t, err)
		if e.Typeflag != tar.TypeDir {
			lines = append(lines,
				fmt.Sprintf("%c %s %o %s%s\n", e.Typeflag, path.Clean(e.Name), e.Mode&0o7777, e.Linkname, content))
		}
	}
	_, err = io.Copy(io.Discard, r)
	must(t, errors.Join(err, r.Close()))
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func (w *world) wantExport(t *testing.T, h driver.Handle, state sandbox.State) {
	t.Helper()
	if got := w.export(t, h); got != exported {
		t.Errorf("read\n%s\nwant\n%s", got, exported)
	}
	w.wantState(t, h, state)
}

func exportAwake(t *testing.T, w *world) {
	h := w.remembering(t)
	for range 2 {
		w.wantExport(t, h, sandbox.StateRunning)
	}
}

func exportPaused(t *testing.T, w *world) {
	if !w.x.Capabilities().Pause {
		t.Skip("the backend cannot pause")
	}
	h := w.remembering(t)
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
	w.wantExport(t, h, sandbox.StatePaused)
}

func exportStopped(t *testing.T, w *world) {
	h := w.remembering(t)
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	w.wantExport(t, h, sandbox.StateStopped)
}

func exportCrashed(t *testing.T, w *world) {
	h := w.remembering(t)
	w.StopBehindBack(t, h)
	w.awaitStopped(t, h)
	w.wantExport(t, h, sandbox.StateStopped)
}

func exportMissing(t *testing.T, w *world) {
	_, err := w.x.Export(t.Context(), w.spec().Handle)
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	other := w.spawn(t)
	other.Instance = "another-instance"
	_, err = w.x.Export(t.Context(), other)
	wantError(t, err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
}

// exportedMegabytes exceeds all buffers on the path. It is smaller for a stand-in, which is slow.
func (w *world) exportedMegabytes() int64 {
	if w.StandIn {
		return 48
	}
	return 200
}

// filled creates a sandbox with a large non-zero file in /data.
func (w *world) filled(t *testing.T) driver.Handle {
	t.Helper()
	w.needExec(t)
	h := w.spawn(t)
	w.sh(t, h, fmt.Sprintf("yes 0123456789abcde | head -c %d > /data/large", w.exportedMegabytes()<<20))
	return h
}

func exportGivenUp(t *testing.T, w *world) {
	h := w.filled(t)
	r, err := w.x.Export(t.Context(), h)
	must(t, err)
	_, err = io.ReadFull(r, make([]byte, 1<<20))
	must(t, errors.Join(err, r.Close()))
	w.wantState(t, h, sandbox.StateRunning)
	if got := w.sh(t, h, "echo fine").stdout(); got != "fine\n" {
		t.Errorf("afterwards the sandbox says %q", got)
	}
}

func exportTimedOut(t *testing.T, w *world) {
	h := w.filled(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := w.x.Export(ctx, h)
	must(t, err)
	_, err = io.ReadFull(r, make([]byte, 1<<20))
	must(t, err)
	cancel()
	if n, err := io.Copy(io.Discard, r); err == nil {
		t.Errorf("a stream without its end ended after %d bytes like a whole one", n)
	}
	must(t, r.Close())
	w.wantState(t, h, sandbox.StateRunning)
}

// exportConsistent exports repeatedly while a program writes in order. The second file is never ahead of the first,
// although much data lies between them.
func exportConsistent(t *testing.T, w *world) {
	w.needExec(t)
	h := w.spawn(t)
	w.sh(t, h, fmt.Sprintf("yes | head -c %d > /data/between", w.exportedMegabytes()<<18)+`
		cat > /workspace/count <<-'END'
			i=0
			while i=$((i+1)); do
				echo $i > /workspace/n; cp /workspace/n /data/.n; mv /data/.n /data/a; cp /workspace/n /data/.n; mv /data/.n /data/c
			done
		END
		setsid sh /workspace/count > /dev/null 2>&1 &
		until [ -e /data/c ]; do sleep 0.01; done`)
	last := 0
	for range 3 {
		first, second := w.counters(t, h)
		if first != second && first != second+1 {
			t.Errorf("the program had written %d and then %d", first, second)
		}
		if first < last { // it may be no further on a busy machine
			t.Errorf("the program stands at %d, and stood at %d before", first, last)
		}
		last = first
	}
}

// counters reads the numbers in /data/a and /data/c from an export.
func (w *world) counters(t *testing.T, h driver.Handle) (first, second int) {
	t.Helper()
	for line := range strings.Lines(w.exportWithout(t, h, "between")) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			continue // a file that is being written
		}
		switch name {
		case "a":
			first = n
		case "c":
			second = n
		}
	}
	return first, second
}

// exportWithout describes all files of an export except one: name and content.
func (w *world) exportWithout(t *testing.T, h driver.Handle, without string) string {
	t.Helper()
	r, err := w.x.Export(t.Context(), h)
	must(t, err)
	var b strings.Builder
	for tr := tar.NewReader(r); ; {
		e, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if name := path.Clean(e.Name); name != without && e.Typeflag == tar.TypeReg {
			content, err := io.ReadAll(tr)
			must(t, err)
			_, _ = fmt.Fprintf(&b, "%s %s\n", name, strings.TrimSpace(string(content)))
		}
	}
	must(t, r.Close())
	return b.String()
}

func exportWoken(t *testing.T, w *world) {
	if !w.x.Capabilities().Pause {
		t.Skip("the backend cannot pause")
	}
	h := w.remembering(t)
	r, err := w.x.Export(t.Context(), h)
	must(t, err)
	wake(t, w.x, h)
	_, err = io.Copy(io.Discard, r)
	wantError(t, err, sandbox.Conflict, sandbox.ReasonInvalidState)
	must(t, r.Close())
	w.wantState(t, h, sandbox.StateRunning)
}

func exportEnded(t *testing.T, w *world) {
	w.needExec(t)
	h := w.spawn(t, deadlineIn(12*time.Second))
	must(t, w.x.CopyTo(t.Context(), h, "/data", pack(t, file("last", "words"))))
	w.awaitStopped(t, h)
	if got := w.export(t, h); got != "0 last 644 words\n" {
		t.Errorf("read %q", got)
	}
}

func exportLarge(t *testing.T, w *world) {
	h := w.filled(t)
	r, err := w.x.Export(t.Context(), h)
	must(t, err)
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var read int64
	for err == nil {
		var n int64
		n, err = io.CopyN(io.Discard, r, 10<<20)
		read += n
		runtime.GC() // count only live memory, not garbage
		runtime.ReadMemStats(&now)
		// Other tests grow it too.
		if grown := int64(now.HeapAlloc) - int64(before.HeapAlloc); grown > w.exportedMegabytes()<<20/4 {
			t.Fatalf("after %d bytes the heap has grown by %d", read, grown)
		}
	}
	if !errors.Is(err, io.EOF) || read < w.exportedMegabytes()<<20 {
		t.Errorf("%d bytes came, then %v", read, err)
	}
	must(t, r.Close())
}

// exportRestored moves a sandbox's data to another sandbox, with both ends of the contract.
func exportRestored(t *testing.T, w *world) {
	w.needExec(t)
	from, to := w.spawn(t), w.spawn(t)
	w.sh(t, from, `cd /data; mkdir -p memory 'skills/with space' locked; head -c 100000 /dev/urandom > memory/noise; echo hi > 'skills/with space/ü'
		printf '' > empty; echo run > run; chmod 755 run; echo read > read; chmod 400 read; ln memory/noise hard; ln -s memory/noise soft; ln -s nowhere dangling
		touch -d 2020-02-02 memory/noise; echo x > locked/x; chmod 555 locked; touch -d 2020-02-02 locked skills; chmod 0 empty`)
	r, err := w.x.Export(t.Context(), from)
	must(t, err)
	must(t, w.x.CopyTo(t.Context(), to, "/data", r))
	must(t, r.Close())
	const fingerprint = `cd /data
		find . -mindepth 1 ! '(' -user $(id -u) -group $(id -g) ')'
		find . -mindepth 1 -exec stat -c '%n %F %a %h' {} + -type l -exec readlink {} ';' | sort
		find . -mindepth 1 ! -type l -exec stat -c '%n %Y' {} + | sort
		chmod 600 empty; find . -type f -exec sha256sum {} + | sort`
	want, got := w.sh(t, from, fingerprint), w.sh(t, to, fingerprint)
	if got.stdout() != want.stdout() || strings.Count(want.stdout(), "\n") < 30 {
		t.Errorf("restored\n%s%s\nwant\n%s%s", got.stdout(), got.Stderr, want.stdout(), want.Stderr)
	}
}
