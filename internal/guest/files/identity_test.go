//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
)

// TestFilesOfOtherUsersStayClosed checks that neither the broker's own rights nor another user's help a request.
func TestFilesOfOtherUsersStayClosed(t *testing.T) {
	owners := map[string]int{"other": otherID, "broker": brokerID, "root": 0}
	w, inside := asBroker(t, brokerCaps, func(base string) {
		for name, id := range owners {
			dir := filepath.Join(base, "workspace", name)
			own(t, dir, id, os.ModeDir|0o700, "")
			own(t, filepath.Join(dir, "file"), id, 0o600, "PRIVATE")
			own(t, filepath.Join(base, "workspace", name+".txt"), id, 0o600, "PRIVATE")
		}
	}, func(base string) {
		for name := range owners {
			for _, p := range []string{name + "/file", name + ".txt"} {
				if b, err := os.ReadFile(filepath.Join(base, "workspace", p)); err != nil || string(b) != "PRIVATE" {
					t.Errorf("%s holds %q: %v", p, b, err)
				}
			}
			if entries, err := os.ReadDir(filepath.Join(base, "workspace", name)); err != nil || len(entries) != 1 {
				t.Errorf("in %s there are %v: %v", name, entries, err)
			}
		}
	})
	if !inside {
		return
	}
	for name := range owners {
		dir := "/workspace/" + name
		for what, try := range map[string]func() ([]byte, wire.Result){
			"get the directory": func() ([]byte, wire.Result) {
				return serve(t.Context(), w, channel.Request{Op: channel.OpGet, Path: []byte(dir)}, nil)
			},
			"get the file": func() ([]byte, wire.Result) {
				return serve(t.Context(), w, channel.Request{Op: channel.OpGet, Path: []byte(dir + ".txt")}, nil)
			},
			"put": func() ([]byte, wire.Result) {
				return serve(t.Context(), w, channel.Request{Op: channel.OpPut, Path: []byte(dir)},
					archive(t, "x", tar.Header{Typeflag: tar.TypeReg, Name: "file", Mode: 0o644}))
			},
			"write": func() ([]byte, wire.Result) {
				return serve(t.Context(), w,
					onFile(wire.FileRequest{Op: wire.FileWrite, Path: []byte(dir + "/file"), Mode: 0o644}), framed("x"))
			},
			"list": func() ([]byte, wire.Result) {
				return serve(t.Context(), w, onFile(wire.FileRequest{Op: wire.FileList, Path: []byte(dir), Limit: 10}), nil)
			},
			"remove": func() ([]byte, wire.Result) {
				return serve(t.Context(), w, onFile(wire.FileRequest{Op: wire.FileRemove, Path: []byte(dir), Recursive: true}), nil)
			},
		} {
			out, res := try()
			fails(t, name+": "+what, res, "permission denied")
			if bytes.Contains(out, []byte("PRIVATE")) {
				t.Errorf("%s: %s: the content was sent", name, what)
			}
		}
	}
}

// TestFilesBelongToTheSandbox tries any owner and any bits in an archive.
func TestFilesBelongToTheSandbox(t *testing.T) {
	when := time.Unix(1_600_000_000, 0)
	w, inside := asBroker(t, brokerCaps, nil, func(base string) {
		want := map[string]os.FileMode{
			"data/d":               os.ModeDir | 0o551,
			"data/d/f":             0o751,
			"data/d/l":             os.ModeSymlink | 0o777,
			"data/d/h":             0o751,
			"data/made/on/the/way": 0o640,
			"workspace/new/file":   0o755,
			"run/secrets/token":    0o400,
		}
		for name, mode := range want {
			info, err := os.Lstat(filepath.Join(base, name))
			if err != nil {
				t.Error(err)
				continue
			}
			s := info.Sys().(*syscall.Stat_t)
			if s.Uid != sandboxID || s.Gid != sandboxID || info.Mode() != mode {
				t.Errorf("%s is %s of %d:%d, want %s", name, info.Mode(), s.Uid, s.Gid, mode)
			}
			if (name == "data/d" || name == "data/d/f") && !info.ModTime().Equal(when) {
				t.Errorf("%s was modified at %s", name, info.ModTime())
			}
		}
	})
	if !inside {
		return
	}
	foreign := func(h tar.Header) tar.Header {
		h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime = 0x7000_0020, 0x7000_0020, "root", "root", when
		return h
	}
	_, res := serve(t.Context(), w, channel.Request{Op: channel.OpPut, Path: []byte("/data")}, archive(t, "content",
		foreign(tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o7551}),
		foreign(tar.Header{Typeflag: tar.TypeReg, Name: "d/f", Mode: 0o6751}),
		foreign(tar.Header{Typeflag: tar.TypeSymlink, Name: "d/l", Linkname: "f"}),
		foreign(tar.Header{Typeflag: tar.TypeLink, Name: "d/h", Linkname: "d/f"}),
		foreign(tar.Header{Typeflag: tar.TypeReg, Name: "made/on/the/way", Mode: 0o640}),
	))
	works(t, "put", res)
	_, res = serve(t.Context(), w, onFile(wire.FileRequest{
		Op:   wire.FileWrite,
		Path: []byte("/workspace/new/file"),
		Mode: 0o755 | uint32(os.ModeSetuid) | 0o4000,
	}), framed("x"))
	works(t, "write", res)
	_, res = serve(t.Context(), w, channel.Request{Op: channel.OpSecrets},
		archive(t, "s", tar.Header{Typeflag: tar.TypeReg, Name: "token"}))
	works(t, "secrets", res)
	out, res := serve(t.Context(), w, channel.Request{Op: channel.OpGet, Path: []byte("/data/d")}, nil)
	works(t, "get", res)
	for entries := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := entries.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		if h.PAXRecords != nil {
			t.Errorf("%s has a second header: %v", h.Name, h.PAXRecords)
		}
	}
}

// TestNothingIsDoneWithoutTheIdentity covers a kernel that changes no identity and reports no error, see package
// identity.
func TestNothingIsDoneWithoutTheIdentity(t *testing.T) {
	w, inside := asBroker(t, brokerCaps[:1],
		func(base string) { must(t, os.Chmod(filepath.Join(base, "workspace"), 0o777)) }, func(base string) {
			if entries, err := os.ReadDir(filepath.Join(base, "workspace")); err != nil || len(entries) > 0 {
				t.Errorf("there are %v: %v", entries, err)
			}
		})
	if !inside {
		return
	}
	write := onFile(wire.FileRequest{Op: wire.FileWrite, Path: []byte("/workspace/f"), Mode: 0o644})
	_, res := serve(t.Context(), w, write, framed("x"))
	fails(t, "without CAP_SETGID", res, "supplementary groups")
	for _, id := range []Identity{{UID: brokerID, GID: 1}, {UID: -1, GID: 1}, {UID: 1, GID: -1}, {UID: 1 << 31, GID: 1}} {
		_, res = serve(t.Context(), Worker{identity: &id, base: w.base}, write, framed("x"))
		fails(t, "an id that no sandbox has", res, "not valid for a sandbox")
	}
}

// TestNoThreadKeepsTheIdentity checks that the broker's remaining threads have its own identity.
func TestNoThreadKeepsTheIdentity(t *testing.T) {
	w, inside := asBroker(t, brokerCaps, nil, nil)
	if !inside {
		return
	}
	before := statusOf(t, "self/task/"+strconv.Itoa(os.Getpid()))
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			for range 100 {
				_, res := serve(t.Context(), w, onFile(wire.FileRequest{Op: wire.FileStat, Path: []byte("/workspace")}), nil)
				works(t, "stat", res)
			}
		})
	}
	calls.Wait()
	if after := statusOf(t, "self/task/"+strconv.Itoa(os.Getpid())); after != before {
		t.Errorf("the first thread has %s, and had %s", after, before)
	}
	// Threads end after their goroutines.
	testwait.NoError(t, 10*time.Second, "each thread has the identity of the first", func() error {
		changed := 0
		tasks, err := os.ReadDir("/proc/self/task")
		must(t, err)
		for _, task := range tasks {
			if s := statusOf(t, "self/task/"+task.Name()); s != "" && s != before {
				changed++
			}
		}
		if changed > 0 {
			return fmt.Errorf("%d of %d threads have another identity", changed, len(tasks))
		}
		t.Logf("%d threads: %s", len(tasks), before)
		return nil
	})
}

// statusOf returns the ids and effective capabilities of a thread, "" for one that has ended.
func statusOf(t *testing.T, thread string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + thread + "/status")
	if err != nil {
		return ""
	}
	var kept []string
	for line := range strings.Lines(string(b)) {
		for _, field := range []string{"Uid:", "Gid:", "CapEff:"} {
			if strings.HasPrefix(line, field) {
				kept = append(kept, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return strings.Join(kept, ", ")
}
