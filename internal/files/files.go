package files

import (
	"archive/tar"
	"context"
	"errors"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Service is safe for concurrent use.
type Service struct{ core *lifecycle.Core }

// New returns a Service.
func New(c *lifecycle.Core) *Service { return &Service{c} }

// WriteFiles implements service.Files.
func (v *Service) WriteFiles(ctx context.Context, r sandbox.LeaseRef, dir string, tar io.Reader) error {
	dir, err := cleanPath("dir", dir)
	if err != nil {
		return err
	}
	return v.onFiles(ctx, r, true, func(x driver.Executor, h driver.Handle) error {
		return x.CopyTo(ctx, h, dir, tar)
	})
}

// ReadFiles implements service.Files.
func (v *Service) ReadFiles(ctx context.Context, r sandbox.LeaseRef, path string) (io.ReadCloser, error) {
	path, err := cleanPath("path", path)
	if err != nil {
		return nil, err
	}
	return v.openFiles(ctx, r, path, func(io.Reader) error { return nil })
}

// openFiles returns a path as a tar stream, after begin has read from it.
func (v *Service) openFiles(ctx context.Context, r sandbox.LeaseRef, path string,
	begin func(tar io.Reader) error) (io.ReadCloser, error) {
	u, err := v.core.BeginUse(ctx, r, lifecycle.ClaimTTL, nil)
	if err != nil {
		return nil, err
	}
	x, h := u.On()
	stream, cause := x.CopyFrom(ctx, h, path)
	if cause == nil {
		if cause = begin(stream); cause == nil {
			return &heldReader{ReadCloser: stream, ctx: ctx, use: u}, nil
		}
		cause = errors.Join(cause, stream.Close())
	}
	if err := u.Leave(ctx, false, nil); err != nil {
		return nil, err
	}
	return nil, u.Explain(ctx, cause)
}

// heldReader holds a sandbox until it is closed.
type heldReader struct {
	io.ReadCloser
	ctx context.Context
	use *lifecycle.Use
}

func (h *heldReader) Close() error {
	err := h.ReadCloser.Close()
	return errors.Join(err, h.use.Leave(h.ctx, err == nil, nil))
}

// ReadFile implements service.Files.
func (v *Service) ReadFile(ctx context.Context, r sandbox.LeaseRef, f sandbox.FileRead) (sandbox.FileContent, error) {
	f, err := f.Normalize()
	if err != nil {
		return sandbox.FileContent{}, err
	}
	var (
		entries *tar.Reader
		size    int64
	)
	stream, err := v.openFiles(ctx, r, f.Path, func(stream io.Reader) (err error) {
		entries = tar.NewReader(stream)
		size, err = onlyFile(entries, f)
		return err
	})
	if err != nil {
		return sandbox.FileContent{}, err
	}
	return sandbox.FileContent{ReadCloser: struct {
		io.Reader
		io.Closer
	}{entries, stream}, Size: size}, nil
}

// onlyFile moves to the content of a stream that must be one regular file, and returns its size.
func onlyFile(entries *tar.Reader, f sandbox.FileRead) (size int64, err error) {
	bad := func(problem string) error {
		return sandbox.InvalidFields("file "+f.Path, []sandbox.Field{{Name: "path", Problem: problem}})
	}
	entry, err := entries.Next()
	switch {
	case errors.Is(err, io.EOF):
		return 0, bad("is a pipe, socket or device, or was removed just now: only regular files can be read")
	case err != nil:
		return 0, err
	case entry.Typeflag != tar.TypeReg:
		return 0, bad("is not a regular file: read it as a tar stream")
	case entry.Size > f.MaxBytes:
		return 0, sandbox.Errorf(sandbox.Invalid, "file %s has %d bytes, more than the limit of %d: read it as a tar stream",
			f.Path, entry.Size, f.MaxBytes).
			WithReason(sandbox.ReasonResourceLimitExceeded)
	}
	return entry.Size, nil
}

// WriteFile implements service.Files.
func (v *Service) WriteFile(ctx context.Context, r sandbox.LeaseRef, w sandbox.FileWrite, content io.Reader) error {
	w, err := w.Normalize()
	if err != nil {
		return err
	}
	return v.onFiles(ctx, r, true, func(x driver.Executor, h driver.Handle) error {
		return x.WriteFile(ctx, h, w, &limitedContent{from: content, left: w.MaxBytes, of: w})
	})
}

// limitedContent fails if the content is larger than allowed.
type limitedContent struct {
	from io.Reader
	left int64 // bytes
	of   sandbox.FileWrite
}

func (l *limitedContent) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, sandbox.Errorf(sandbox.Invalid,
			"file %s: the content has more than the limit of %d bytes; nothing was changed: write it as a tar stream",
			l.of.Path, l.of.MaxBytes).
			WithReason(sandbox.ReasonResourceLimitExceeded)
	}
	return n, err
}

// StatFile implements service.Files.
func (v *Service) StatFile(ctx context.Context, r sandbox.LeaseRef, path string) (info sandbox.FileInfo, err error) {
	path, err = cleanPath("path", path)
	if err != nil {
		return info, err
	}
	err = v.onFiles(ctx, r, false, func(x driver.Executor, h driver.Handle) (err error) {
		info, err = x.StatFile(ctx, h, path)
		return err
	})
	return info, err
}

// ListFiles implements service.Files.
func (v *Service) ListFiles(ctx context.Context, r sandbox.LeaseRef,
	q sandbox.FileQuery) (files []sandbox.FileInfo, err error) {
	q, err = q.Normalize()
	if err != nil {
		return nil, err
	}
	err = v.onFiles(ctx, r, false, func(x driver.Executor, h driver.Handle) (err error) {
		files, err = x.ListFiles(ctx, h, q)
		return err
	})
	return files, err
}

// RemoveFile implements service.Files.
func (v *Service) RemoveFile(ctx context.Context, r sandbox.LeaseRef, f sandbox.FileRemoval) error {
	f, err := f.Normalize()
	if err != nil {
		return err
	}
	return v.onFiles(ctx, r, true, func(x driver.Executor, h driver.Handle) error {
		return x.RemoveFile(ctx, h, f)
	})
}

// onFiles works on the files of a lease's sandbox while it holds the sandbox. changes means that do may change /data.
func (v *Service) onFiles(ctx context.Context, r sandbox.LeaseRef, changes bool,
	work func(x driver.Executor, h driver.Handle) error) error {
	u, err := v.core.BeginUse(ctx, r, lifecycle.ClaimTTL, nil)
	if err != nil {
		return err
	}
	u.Changes = changes
	cause := work(u.On())
	if err := u.Leave(ctx, cause == nil, nil); err != nil {
		return err
	}
	return u.Explain(ctx, cause)
}

func cleanPath(field, p string) (string, error) {
	clean, err := sandbox.CleanPath(p)
	if err != nil {
		return "", sandbox.InvalidFields("files", []sandbox.Field{{Name: field, Problem: err.Error()}})
	}
	return clean, nil
}
