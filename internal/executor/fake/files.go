package fake

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing/iotest"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const configFile = "/workspace/config.json"

// fileAccess works on the files of sandboxes.
type fileAccess struct{ *machine }

// file is the content of a sandbox at one path: an entry of a tar stream.
type file struct {
	header  tar.Header // without its name and size
	content []byte
}

func plain(content []byte) file {
	return file{header: tar.Header{Typeflag: tar.TypeReg, Mode: 0o644}, content: content}
}

// PutFile writes a file of a sandbox out of band.
func (x *fileAccess) PutFile(sandboxID, p, content string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, ok := x.containers[sandboxID]; ok {
		b.files[p] = plain([]byte(content))
	}
}

// FileOf returns the content of a file of a sandbox, and whether it exists.
func (x *fileAccess) FileOf(sandboxID, p string) (string, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b, ok := x.containers[sandboxID]
	if !ok {
		return "", false
	}
	f, ok := b.files[p]
	return string(f.content), ok
}

// CopyTo implements driver.Executor.
func (x *fileAccess) CopyTo(ctx context.Context, h driver.Handle, dir string, stream io.Reader) error {
	if err := x.awake(ctx, OpExec, h); err != nil {
		return err
	}
	// Like a channel, read what follows the archive even after the call.
	defer x.late.Go(func() { _, _ = io.Copy(io.Discard, stream) }) // no caller gets its error
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
		if e.Typeflag == tar.TypeLink {
			first, ok := files[path.Join(dir, e.Linkname)]
			if !ok {
				return sandbox.Errorf(sandbox.Invalid, "entry %q links to %q, which no entry before it has", e.Name, e.Linkname)
			}
			f = first
		}
		files[p] = f
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	b, ok := x.containers[h.SandboxID]
	if !ok {
		return notFound(h)
	}
	maps.Copy(b.files, files)
	return nil
}

// CopyFrom implements driver.Executor. The stream breaks off at a file that its owner may not read.
func (x *fileAccess) CopyFrom(ctx context.Context, h driver.Handle, p string) (io.ReadCloser, error) {
	b, err := x.running(ctx, OpExec, h)
	if err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	files, end := maps.Clone(b.files), io.Reader(strings.NewReader(""))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		if (name == p || strings.HasPrefix(name, p+"/")) && f.header.Typeflag == tar.TypeReg && f.header.Mode&0o400 == 0 {
			end = iotest.ErrReader(sandbox.Errorf(sandbox.Failed, "open %s: permission denied", name).
				WithReason(sandbox.ReasonCopyFailed))
			maps.DeleteFunc(files, func(other string, _ file) bool { return other >= name })
			break
		}
	}
	stream, n, err := pack(files, p, path.Dir(p))
	if err == nil && n == 0 && len(files) == len(b.files) {
		err = sandbox.Errorf(sandbox.NotFound, "there is no %s", p).WithReason(sandbox.ReasonFileNotFound)
	}
	if len(files) < len(b.files) {
		stream.Truncate(max(stream.Len()-tarEnd, 0))
	}
	return io.NopCloser(io.MultiReader(stream, end)), err
}

// tarEnd is the size of what ends a tar stream, in bytes.
const tarEnd = 2 * 512

// pack returns a tar stream of p and everything under it, with names relative to a directory. It counts the entries.
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

// StatFile implements driver.FileAccess.
func (x *fileAccess) StatFile(ctx context.Context, h driver.Handle, p string) (sandbox.FileInfo, error) {
	var info sandbox.FileInfo
	err := x.onFiles(ctx, h, func(files map[string]file) (err error) {
		info, err = describe(files, p)
		return err
	})
	return info, err
}

// ListFiles implements driver.FileAccess.
func (x *fileAccess) ListFiles(ctx context.Context, h driver.Handle, q sandbox.FileQuery) ([]sandbox.FileInfo, error) {
	var list []sandbox.FileInfo
	err := x.onFiles(ctx, h, func(files map[string]file) error {
		info, err := describe(files, q.Path)
		if err != nil {
			return err
		}
		if info.Type != sandbox.FileDirectory {
			return sandbox.Errorf(sandbox.Invalid, "%s is not a directory", q.Path)
		}
		names := map[string]bool{}
		for p := range files {
			if below, ok := strings.CutPrefix(p, q.Path+"/"); ok {
				name, _, _ := strings.Cut(below, "/")
				names[name] = name > q.After
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if !names[name] || len(list) == q.Limit {
				continue
			}
			info, err := describe(files, q.Path+"/"+name)
			if err != nil {
				return err
			}
			list = append(list, info)
		}
		return nil
	})
	return list, err
}

// WriteFile implements driver.FileAccess.
func (x *fileAccess) WriteFile(ctx context.Context, h driver.Handle, w sandbox.FileWrite, content io.Reader) error {
	b, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return x.onFiles(ctx, h, func(files map[string]file) error {
		if info, err := describe(files, w.Path); err == nil && info.Type == sandbox.FileDirectory {
			return sandbox.Errorf(sandbox.Invalid, "write %s: a directory is in the way", w.Path)
		}
		f := plain(b)
		f.header.Mode, f.header.ModTime = int64(w.Mode), x.now()
		files[w.Path] = f
		return nil
	})
}

// RemoveFile implements driver.FileAccess.
func (x *fileAccess) RemoveFile(ctx context.Context, h driver.Handle, r sandbox.FileRemoval) error {
	return x.onFiles(ctx, h, func(files map[string]file) error {
		if _, err := describe(files, r.Path); err != nil {
			return err
		}
		below := func(p string, _ file) bool { return strings.HasPrefix(p, r.Path+"/") }
		n := len(files)
		rest := maps.Clone(files)
		maps.DeleteFunc(rest, below)
		if len(rest) < n && !r.Recursive {
			return sandbox.Errorf(sandbox.Conflict, "remove %s: directory not empty", r.Path).
				WithReason(sandbox.ReasonWriteFailed)
		}
		maps.DeleteFunc(files, below)
		delete(files, r.Path)
		return nil
	})
}

// DiskUsage implements driver.FileAccess.
func (x *fileAccess) DiskUsage(ctx context.Context, h driver.Handle) (sandbox.DiskUsage, error) {
	usage := sandbox.DiskUsage{Complete: true}
	err := x.onFiles(ctx, h, func(files map[string]file) error {
		for _, f := range files {
			usage.Files++
			usage.Bytes += int64(len(f.content))
		}
		return nil
	})
	return usage, err
}

// onFiles calls work with the files of a running sandbox.
func (x *fileAccess) onFiles(ctx context.Context, h driver.Handle, work func(files map[string]file) error) error {
	b, err := x.running(ctx, OpExec, h)
	if err != nil {
		return err
	}
	defer x.mu.Unlock()
	return work(b.files)
}

// describe describes a file or a directory. A directory may exist only through its entries.
func describe(files map[string]file, p string) (sandbox.FileInfo, error) {
	info := sandbox.FileInfo{Name: path.Base(p), Type: sandbox.FileDirectory, Mode: 0o755}
	f, known := files[p]
	if !known && path.Dir(p) != "/" && !slices.ContainsFunc(slices.Collect(maps.Keys(files)),
		func(other string) bool { return strings.HasPrefix(other, p+"/") }) {
		return info, sandbox.Errorf(sandbox.NotFound, "there is no %s", p).WithReason(sandbox.ReasonFileNotFound)
	}
	if !known {
		return info, nil
	}
	info.Mode, info.ModifiedAt = fs.FileMode(f.header.Mode).Perm(), f.header.ModTime
	switch f.header.Typeflag {
	case tar.TypeReg:
		info.Type, info.Size = sandbox.FileRegular, int64(len(f.content))
	case tar.TypeSymlink:
		info.Type, info.Target = sandbox.FileSymlink, f.header.Linkname
	}
	return info, nil
}

// Files returns the content of all files of a sandbox, by path.
func (x *fileAccess) Files(sandboxID string) map[string]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make(map[string]string)
	if b, ok := x.containers[sandboxID]; ok {
		for p, f := range b.files {
			all[p] = string(f.content)
		}
	}
	return all
}
