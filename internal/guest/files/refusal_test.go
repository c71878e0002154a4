//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// TestRequestsThatCannotWorkAreInvalid: the caller must change them, so they are not failures of the sandbox.
func TestRequestsThatCannotWorkAreInvalid(t *testing.T) {
	t.Parallel()
	base := newBase(t)
	w := Worker{base: base}
	own(t, filepath.Join(base, "workspace/file"), os.Geteuid(), 0o644, "kept")
	long := strings.Repeat("n", 256)
	whole := archive(t, strings.Repeat("x", 5000), tar.Header{Typeflag: tar.TypeReg, Name: "half", Mode: 0o644}).Bytes()
	put := func(dir string, in []byte) wire.Result {
		_, res := serve(t.Context(), w, channel.Request{Op: channel.OpPut, Path: []byte(dir)}, bytes.NewReader(in))
		return res
	}
	one := func(r wire.FileRequest) wire.Result {
		var in io.Reader
		if r.Op == wire.FileWrite {
			in = framed("x")
		}
		_, res := serve(t.Context(), w, onFile(r), in)
		return res
	}
	get := func(p string) wire.Result {
		_, res := serve(t.Context(), w, channel.Request{Op: channel.OpGet, Path: []byte(p)}, nil)
		return res
	}
	for name, c := range map[string]struct {
		res  wire.Result
		want string
	}{
		"an archive cut in a file":   {put("/workspace", whole[:3000]), "half: refused: the tar stream ends before the end"},
		"an archive cut in a header": {put("/workspace", whole[:300]), "not a tar stream"},
		"an archive into a file":     {put("/workspace/file", whole), "not a directory"},
		"an archive below a file":    {put("/workspace/file/below", whole), "not a directory"},
		"an entry below a file": {put("/workspace", archive(t, "x",
			tar.Header{Typeflag: tar.TypeReg, Name: "file/below", Mode: 0o644}).Bytes()), "not a directory"},
		"an entry with a long name": {put("/workspace", archive(t, "x",
			tar.Header{Typeflag: tar.TypeReg, Name: long, Mode: 0o644}).Bytes()), "255 bytes"},
		"a write to a long name":   {one(wire.FileRequest{Op: wire.FileWrite, Path: []byte("/workspace/" + long)}), "255 bytes"},
		"a stat of a long name":    {one(wire.FileRequest{Op: wire.FileStat, Path: []byte("/data/" + long)}), "255 bytes"},
		"a removal of a long name": {one(wire.FileRequest{Op: wire.FileRemove, Path: []byte("/data/" + long)}), "255 bytes"},
		"a read of a long name":    {get("/workspace/" + long), "255 bytes"},
		"a write below a file":     {one(wire.FileRequest{Op: wire.FileWrite, Path: []byte("/workspace/file/x")}), "not a directory"},
		"a read below a file":      {get("/workspace/file/x"), "not a directory"},
	} {
		if c.res.Problem != wire.ProblemInvalid || !strings.Contains(c.res.Message, c.want) {
			t.Errorf("%s: the result is %q, %q, want invalid with %q", name, c.res.Problem, c.res.Message, c.want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(base, "workspace/file")); string(got) != "kept" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

// TestANewlineIsAName like any other.
func TestANewlineIsAName(t *testing.T) {
	t.Parallel()
	w := Worker{base: newBase(t)}
	name := []byte("/workspace/two\nlines")
	_, res := serve(t.Context(), w, onFile(wire.FileRequest{Op: wire.FileWrite, Path: name, Mode: 0o644}), framed("x"))
	works(t, "write", res)
	_, res = serve(t.Context(), w, channel.Request{Op: channel.OpGet, Path: name}, nil)
	works(t, "read", res)
	_, res = serve(t.Context(), w, onFile(wire.FileRequest{Op: wire.FileRemove, Path: name}), nil)
	works(t, "remove", res)
}

// TestADirectoryWithoutRightsIsRemoved: its owner could change its mode, so the owner's modes do not keep it.
func TestADirectoryWithoutRightsIsRemoved(t *testing.T) {
	t.Parallel()
	prepare := func(base string) {
		for _, mode := range []os.FileMode{0, 0o300, 0o500, 0o600} {
			dir := filepath.Join(base, "workspace", "locked"+mode.String())
			own(t, dir, sandboxID, os.ModeDir|0o700, "")
			own(t, filepath.Join(dir, "sub"), sandboxID, os.ModeDir|0o700, "")
			own(t, filepath.Join(dir, "sub/file"), sandboxID, 0o600, "x")
			must(t, unix.Chmod(filepath.Join(dir, "sub"), uint32(mode)))
			must(t, unix.Chmod(dir, uint32(mode)))
		}
	}
	w, inside := asBroker(t, brokerCaps, prepare, func(base string) {
		if left, err := os.ReadDir(filepath.Join(base, "workspace")); err != nil || len(left) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	})
	if !inside {
		return
	}
	for _, mode := range []os.FileMode{0, 0o300, 0o500, 0o600} {
		_, res := serve(t.Context(), w, onFile(wire.FileRequest{
			Op: wire.FileRemove, Path: []byte("/workspace/locked" + mode.String()), Recursive: true,
		}), nil)
		works(t, "remove one with the mode "+mode.String(), res)
	}
}
