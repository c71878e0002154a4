//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// newOwn returns a Worker with the test's identity, and the directory that stands for /.
func newOwn(t *testing.T) (Worker, string) {
	t.Helper()
	if _, err := os.Stat("/dev/shm"); err == nil {
		t.Setenv("TMPDIR", "/dev/shm") // creating many files is faster there
	}
	base := newBase(t)
	return Worker{base: base}, base
}

// soon runs an operation, and fails if it takes longer than a limit.
func soon(t *testing.T, what string, limit time.Duration, operation func() wire.Result) wire.Result {
	t.Helper()
	done := make(chan wire.Result, 1)
	start := time.Now()
	go func() { done <- operation() }()
	select {
	case res := <-done:
		if took := time.Since(start); took > limit {
			t.Errorf("%s took %s", what, took)
		}
		return res
	case <-time.After(limit + 20*time.Second):
		t.Fatalf("%s does not end", what)
		return wire.Result{}
	}
}

// wide fills a directory with many names of one file.
func wide(t *testing.T, dir string, names int) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o644))
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	for i := range names {
		if i%30_000 == 0 && i > 0 { // file systems limit the names of a file
			must(t, unix.Unlinkat(fd, "file", 0))
			must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o644))
		}
		must(t, unix.Linkat(fd, "file", fd, fmt.Sprintf("%d-a-name-that-is-not-short-%d", i%977, i), 0))
	}
}

// deep creates nested directories.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(fd, "d", 0o755))
		child, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = child
	}
	must(t, unix.Close(fd))
}

// memoryDuring returns the largest growth of the heap's used memory during an operation.
func memoryDuring(operation func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // as in the guest
	debug.FreeOSMemory()
	heap := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before, most := heap(), uint64(0)
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			runtime.GC()
			most = max(most, heap())
			time.Sleep(time.Millisecond) //nolint:forbidigo // the interval of measurements
		}
	}()
	operation()
	stop.Store(true)
	<-done
	return max(most, before) - before
}

func TestMemoryIsBounded(t *testing.T) {
	w, base := newOwn(t)
	for name, fill := range map[string]func(string){
		"wide": func(dir string) { wide(t, dir, 40_000) },
		"deep": func(dir string) { deep(t, dir, 500) },
		"large": func(dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte("x"), 32<<20), 0o644))
		},
	} {
		dir := filepath.Join(base, "workspace", name)
		must(t, os.Mkdir(dir, 0o755))
		fill(dir)
		p := []byte("/workspace/" + name)
		for what, r := range map[string]channel.Request{
			"get":   {Op: channel.OpGet, Path: p},
			"list":  onFile(wire.FileRequest{Op: wire.FileList, Path: p, Limit: 1000}),
			"usage": onFile(wire.FileRequest{Op: wire.FileUsage, Path: p, Limit: 1_000_000}),
		} {
			grown := memoryDuring(func() {
				works(t, what, w.Serve(t.Context(), r, strings.NewReader(""), wire.NewWriter(io.Discard)))
			})
			t.Logf("%s of %s: %d KiB", what, name, grown>>10)
			if grown > 2<<20 {
				t.Errorf("%s of %s takes %d bytes of memory", what, name, grown)
			}
		}
		grown := memoryDuring(func() { works(t, "save", w.Save(t.Context(), string(p), channel.Save{}, io.Discard)) })
		t.Logf("save of %s: %d KiB", name, grown>>10)
		if grown > maxLinks+2<<20 {
			t.Errorf("saving %s takes %d bytes of memory", name, grown)
		}
		stream, writer := io.Pipe()
		go func() { writer.CloseWithError(plainGet(w, p, writer)) }()
		grown = memoryDuring(func() {
			works(t, "put", w.Serve(t.Context(), channel.Request{Op: channel.OpPut, Path: []byte("/data")}, stream,
				wire.NewWriter(io.Discard)))
		})
		t.Logf("put of %s: %d KiB, with what makes its archive", name, grown>>10)
		if grown > 4<<20 {
			t.Errorf("unpacking %s takes %d bytes of memory", name, grown)
		}
		_, err := io.Copy(io.Discard, stream)
		must(t, err)
		grown = memoryDuring(func() {
			_, res := serve(t.Context(), w, onFile(wire.FileRequest{Op: wire.FileRemove, Path: p, Recursive: true}), nil)
			works(t, "remove", res)
		})
		t.Logf("remove of %s: %d KiB", name, grown>>10)
		if grown > 2<<20 {
			t.Errorf("removing %s takes %d bytes of memory", name, grown)
		}
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

// plainGet writes the archive of a path.
func plainGet(w Worker, p []byte, out io.Writer) error {
	d := &wire.Demux{Stdout: out}
	res := w.Serve(context.Background(), channel.Request{Op: channel.OpGet, Path: p},
		strings.NewReader(""), wire.NewWriter(d))
	if res.Problem != "" {
		return fmt.Errorf("%s", res.Message)
	}
	return nil
}

// TestATreeThatIsTooDeep checks that it is counted in part, not packed in part, and can be removed in parts.
func TestATreeThatIsTooDeep(t *testing.T) {
	w, base := newOwn(t)
	deep(t, filepath.Join(base, "workspace"), maxLevels+100)
	out, res := serve(t.Context(), w,
		onFile(wire.FileRequest{Op: wire.FileUsage, Path: []byte("/workspace"), Limit: 1_000_000}), nil)
	works(t, "usage", res)
	var used wire.DiskUsage
	must(t, json.Unmarshal(out, &used))
	if used.Complete || used.Files < maxLevels-1 {
		t.Errorf("the usage is %+v", used)
	}
	_, res = serve(t.Context(), w, channel.Request{Op: channel.OpGet, Path: []byte("/workspace/d/d")}, nil)
	fails(t, "get", res, "nested too deeply")
	inner := "/workspace" + strings.Repeat("/d", 1000)
	_, res = serve(t.Context(), w,
		onFile(wire.FileRequest{Op: wire.FileRemove, Path: []byte(inner), Recursive: true}), nil)
	works(t, "remove", res)
}

// TestTheEndOfAContextEndsEachOperation includes operations that wait for their caller.
func TestTheEndOfAContextEndsEachOperation(t *testing.T) {
	w, base := newOwn(t)
	must(t, os.Mkdir(filepath.Join(base, "workspace", "wide"), 0o755))
	wide(t, filepath.Join(base, "workspace", "wide"), 100_000)
	hole, err := os.Create(filepath.Join(base, "data", "hole"))
	must(t, err)
	must(t, hole.Truncate(1<<40))
	must(t, hole.Close())
	for name, c := range map[string]struct {
		r       channel.Request
		in      []byte
		stalled bool // the output accepts nothing
	}{
		"put whose input stops": {
			r:  channel.Request{Op: channel.OpPut, Path: []byte("/workspace")},
			in: archive(t, strings.Repeat("x", 2000), tar.Header{Typeflag: tar.TypeReg, Name: "half"}).Bytes()[:1024],
		},
		"write whose input stops": {
			r:  onFile(wire.FileRequest{Op: wire.FileWrite, Path: []byte("/workspace/f")}),
			in: []byte{1, 0, 0, 0, 9, 'h', 'a'},
		},
		"secrets whose input stops": {r: channel.Request{Op: channel.OpSecrets}, in: make([]byte, 100)},
		"get that is not taken":     {r: channel.Request{Op: channel.OpGet, Path: []byte("/data")}, stalled: true},
		"get of a long file":        {r: channel.Request{Op: channel.OpGet, Path: []byte("/data")}},
		"get of many files":         {r: channel.Request{Op: channel.OpGet, Path: []byte("/workspace")}},
		"removal of many files": {
			r: onFile(wire.FileRequest{Op: wire.FileRemove, Path: []byte("/workspace/wide"), Recursive: true}),
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		in, feed := io.Pipe()
		taken, out := io.Pipe()
		go func() { _, _ = feed.Write(c.in) }() // ends with the pipe
		if !c.stalled {
			go func() { _, _ = io.Copy(io.Discard, taken) }() // ends with the pipe
		}
		time.AfterFunc(20*time.Millisecond, cancel)
		res := soon(t, name, time.Second+20*time.Millisecond,
			func() wire.Result { return w.Serve(ctx, c.r, in, wire.NewWriter(out)) })
		fails(t, name, res, context.Canceled.Error())
		must(t, in.Close())
		must(t, taken.Close())
		must(t, out.Close())
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	res := soon(t, "save", time.Second, func() wire.Result { return w.Save(ctx, "/data", channel.Save{}, io.Discard) })
	fails(t, "save", res, context.Canceled.Error())
	unfinished, err := filepath.Glob(filepath.Join(base, "*", ".unfinished*"))
	if err != nil || len(unfinished) > 0 {
		t.Errorf("there are %v: %v", unfinished, err)
	}
}

// TestNothingWaitsForAPipe includes a pipe that replaces a directory at that moment, and a lease on a file.
func TestNothingWaitsForAPipe(t *testing.T) {
	w, base := newOwn(t)
	at := func(name string) string { return filepath.Join(base, "workspace", name) }
	must(t, unix.Mkfifo(at("pipe"), 0o666))
	must(t, os.Symlink("pipe", at("link")))
	must(t, os.WriteFile(at("leased"), []byte("x"), 0o644))
	leased, err := os.OpenFile(at("leased"), os.O_RDWR, 0)
	must(t, err)
	defer leased.Close()
	_, err = unix.FcntlInt(leased.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	must(t, err)
	for _, name := range []string{"pipe", "link", "leased", "pipe/sub", "link/sub", "."} {
		p := []byte("/workspace/" + name)
		requests := map[string]channel.Request{"get": {Op: channel.OpGet, Path: p}, "put": {Op: channel.OpPut, Path: p}}
		for _, op := range []wire.FileOp{wire.FileStat, wire.FileList, wire.FileUsage} {
			requests[string(op)] = onFile(wire.FileRequest{Op: op, Path: p, Limit: 10})
		}
		for what, r := range requests {
			soon(t, what+" "+name, 5*time.Second, func() wire.Result {
				_, res := serve(t.Context(), w, r, archive(t, ""))
				return res
			})
		}
	}
	must(t, os.Mkdir(at("dir"), 0o755))
	must(t, unix.Mkfifo(at("other"), 0o666))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, at("dir"), unix.AT_FDCWD, at("other"), unix.RENAME_EXCHANGE) // both exist
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	results := map[string]int{}
	for range 6000 {
		res := soon(t, "put", attemptLimit, func() wire.Result {
			_, res := serve(t.Context(), w, channel.Request{Op: channel.OpPut, Path: []byte("/workspace/dir")}, archive(t, ""))
			return res
		})
		results[res.Problem]++
	}
	t.Logf("problems: %v", results)
}

func TestAFileIsWrittenWholeOrNotAtAll(t *testing.T) {
	w, base := newOwn(t)
	file := filepath.Join(base, "workspace", "f")
	write := onFile(wire.FileRequest{Op: wire.FileWrite, Path: []byte("/workspace/f"), Mode: 0o640})
	_, res := serve(t.Context(), w, write, framed("first"))
	works(t, "write", res)
	var sent bytes.Buffer
	_, err := sent.ReadFrom(framed("second, which is longer"))
	must(t, err)
	for cut := range sent.Len() {
		_, res := serve(t.Context(), w, write, bytes.NewReader(sent.Bytes()[:cut]))
		fails(t, "content that is cut off", res, "nothing was changed")
	}
	var failed bytes.Buffer
	frames := wire.NewWriter(&failed)
	_, err = io.WriteString(frames.Stdout(), "third")
	must(t, err)
	must(t, frames.Result(wire.Result{Problem: wire.ProblemFailed, Message: "no more"}))
	_, res = serve(t.Context(), w, write, &failed)
	fails(t, "content that fails", res, "no more; nothing was changed")
	entries, err := os.ReadDir(filepath.Dir(file))
	must(t, err)
	info, err := os.Stat(file)
	must(t, err)
	if b, err := os.ReadFile(file); err != nil || string(b) != "first" || len(entries) != 1 || info.Mode() != 0o640 {
		t.Errorf("the file holds %q with mode %s, beside %v: %v", b, info.Mode(), entries, err)
	}
}

func TestSecretsThatAreCutOffChangeNothing(t *testing.T) {
	w, base := newOwn(t)
	dir := filepath.Join(base, "run", "secrets")
	must(t, os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o400))
	stream := archive(t, "new", tar.Header{Typeflag: tar.TypeReg, Name: "a"},
		tar.Header{Typeflag: tar.TypeReg, Name: "b"}).Bytes()
	for cut := 0; cut < len(stream)-512; cut += 64 { // the reader accepts one block of the end mark instead of two
		_, res := serve(t.Context(), w, channel.Request{Op: channel.OpSecrets}, bytes.NewReader(stream[:cut]))
		if b, err := os.ReadFile(filepath.Join(dir, "old")); res.Problem == "" || err != nil || string(b) != "old" {
			t.Fatalf("after %d bytes the old secret is %q: %v, %+v", cut, b, err, res)
		}
	}
	must(t, os.MkdirAll(filepath.Join(dir, "a", "deep"), 0o755))
	must(t, os.Chmod(filepath.Join(dir, "a"), 0))
	wide(t, dir, 5000)
	_, res := serve(t.Context(), w, channel.Request{Op: channel.OpSecrets}, bytes.NewReader(stream))
	works(t, "secrets", res)
	entries, err := fs.Glob(os.DirFS(dir), "*")
	if err != nil || strings.Join(entries, " ") != "a b" {
		t.Errorf("there are %v: %v", entries, err)
	}
	for _, name := range []string{"../a", "a/b", "/a", "", ".", "..", ".unfinished-a"} {
		_, res := serve(t.Context(), w, channel.Request{Op: channel.OpSecrets},
			archive(t, "x", tar.Header{Typeflag: tar.TypeReg, Name: name}))
		fails(t, "a secret named "+name, res, "is not a valid secret")
	}
}
