package fake

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

const configFile = "/workspace/config.json"

// file is what a sandbox has under one path: an entry of a tar stream.
type file struct {
	header  tar.Header // but for its name and size
	content []byte
}

func plain(content []byte) file {
	return file{header: tar.Header{Typeflag: tar.TypeReg, Mode: 0o644}, content: content}
}

// WriteFile makes a file of a sandbox, behind everybody's back.
func (x *Executor) WriteFile(sandboxID, p, content string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, ok := x.boxes[sandboxID]; ok {
		b.files[p] = plain([]byte(content))
	}
}

// ReadFile returns what a sandbox has in a file, and whether it is there.
func (x *Executor) ReadFile(sandboxID, p string) (string, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b, ok := x.boxes[sandboxID]
	if !ok {
		return "", false
	}
	f, ok := b.files[p]
	return string(f.content), ok
}

// CopyTo implements sandbox.Executor.
func (x *Executor) CopyTo(ctx context.Context, h sandbox.Handle, dir string, stream io.Reader) error {
	if err := x.awake(ctx, OpExec, h); err != nil {
		return err
	}
	files := make(map[string]file)
	for t := tar.NewReader(stream); ; {
		e, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return sandbox.Errorf(sandbox.Invalid, "reading the tar stream: %w", err)
		}
		p := path.Join(dir, e.Name)
		if p != dir && !strings.HasPrefix(p, dir+"/") {
			return sandbox.Errorf(sandbox.Invalid, "entry %q leads outside of %s", e.Name, dir)
		}
		f := file{header: tar.Header{Typeflag: e.Typeflag, Linkname: e.Linkname, Mode: e.Mode, ModTime: e.ModTime}}
		if f.content, err = io.ReadAll(t); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "reading the tar stream: %w", err)
		}
		files[p] = f
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	b, ok := x.boxes[h.SandboxID]
	if !ok {
		return notFound(h)
	}
	maps.Copy(b.files, files)
	return nil
}

// CopyFrom implements sandbox.Executor.
func (x *Executor) CopyFrom(ctx context.Context, h sandbox.Handle, p string) (io.ReadCloser, error) {
	if err := x.awake(ctx, OpExec, h); err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	b, ok := x.boxes[h.SandboxID]
	if !ok {
		return nil, notFound(h)
	}
	stream, n, err := pack(b.files, p, path.Dir(p))
	if err == nil && n == 0 {
		err = sandbox.Errorf(sandbox.NotFound, "there is no %s", p).WithReason(sandbox.ReasonFileNotFound)
	}
	return io.NopCloser(stream), err
}

// pack makes a tar stream of what lies at and under p, with names relative to a directory, and
// counts its entries.
func pack(files map[string]file, p, relativeTo string) (*bytes.Buffer, int, error) {
	var buf bytes.Buffer
	n := 0
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != p && !strings.HasPrefix(name, p+"/") || name == relativeTo {
			continue
		}
		n++
		f := files[name]
		h := f.header
		h.Name, h.Size = strings.TrimPrefix(name, strings.TrimSuffix(relativeTo, "/")+"/"), int64(len(f.content))
		if err := w.WriteHeader(&h); err != nil {
			return nil, 0, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, 0, err
		}
	}
	return &buf, n, w.Close()
}
