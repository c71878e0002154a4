package client

import (
	"context"
	"io"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// WriteFiles implements service.Files. It streams and does not retry.
func (c *Client) WriteFiles(ctx context.Context, r sandbox.LeaseRef, dir string, tar io.Reader) error {
	return c.putFile(ctx, r, wire.Tar, tar, "path", dir)
}

// WriteFile implements service.Files. It streams and does not retry.
func (c *Client) WriteFile(ctx context.Context, r sandbox.LeaseRef, w sandbox.FileWrite, content io.Reader) error {
	mode := ""
	if w.Mode != 0 {
		mode = wire.FileMode(w.Mode)
	}
	return c.putFile(ctx, r, wire.OctetStream, content, "path", w.Path, "mode", mode, "max_bytes", number(w.MaxBytes))
}

func (c *Client) putFile(ctx context.Context, r sandbox.LeaseRef, contentType string, content io.Reader,
	query ...string) error {
	path, err := leasePath(r.ID)
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, c.slow, http.MethodPut, path+"/files"+fence(r, query...), contentType, wire.JSON, content)
	if err != nil {
		return err
	}
	closeBody(resp)
	return nil
}

// ReadFiles implements service.Files. It streams until the reader is closed.
func (c *Client) ReadFiles(ctx context.Context, r sandbox.LeaseRef, file string) (io.ReadCloser, error) {
	archive, _, err := c.getFile(ctx, r, wire.Tar, "path", file)
	return archive, err
}

// ReadFile implements service.Files. It streams until the content is closed.
func (c *Client) ReadFile(ctx context.Context, r sandbox.LeaseRef, f sandbox.FileRead) (sandbox.FileContent, error) {
	content, size, err := c.getFile(ctx, r, wire.OctetStream, "path", f.Path, "max_bytes", number(f.MaxBytes))
	return sandbox.FileContent{ReadCloser: content, Size: size}, err
}

// getFile returns a stream and, if known, its size.
func (c *Client) getFile(ctx context.Context, r sandbox.LeaseRef, accept string,
	query ...string) (io.ReadCloser, int64, error) {
	path, err := leasePath(r.ID)
	if err != nil {
		return nil, 0, err
	}
	resp, err := c.send(ctx, c.slow, http.MethodGet, path+"/files"+fence(r, query...), "", accept, nil)
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}

// StatFile implements service.Files.
func (c *Client) StatFile(ctx context.Context, r sandbox.LeaseRef, file string) (sandbox.FileInfo, error) {
	path, err := leasePath(r.ID)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	var info wire.FileInfo
	path += "/files/stat" + fence(r, "path", file)
	if err := c.call(ctx, request{method: http.MethodGet, path: path, slow: true}, &info); err != nil {
		return sandbox.FileInfo{}, err
	}
	return c.fileInfo(path, info)
}

// ListFiles implements service.Files.
func (c *Client) ListFiles(ctx context.Context, r sandbox.LeaseRef, q sandbox.FileQuery) ([]sandbox.FileInfo, error) {
	path, err := leasePath(r.ID)
	if err != nil {
		return nil, err
	}
	var page wire.FilePage
	path += "/files/list" + fence(r, "path", q.Path, "after", q.After, "limit", number(q.Limit))
	if err := c.call(ctx, request{method: http.MethodGet, path: path, slow: true}, &page); err != nil {
		return nil, err
	}
	files := make([]sandbox.FileInfo, len(page.Files))
	for i, w := range page.Files {
		if files[i], err = c.fileInfo(path, w); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (c *Client) fileInfo(path string, w wire.FileInfo) (sandbox.FileInfo, error) {
	info, err := w.FileInfo()
	if err != nil {
		return info, c.lost(http.MethodGet, path, true, err)
	}
	return info, nil
}

// RemoveFile implements service.Files. It does not retry, because a retry would not find the file.
func (c *Client) RemoveFile(ctx context.Context, r sandbox.LeaseRef, f sandbox.FileRemoval) error {
	path, err := leasePath(r.ID)
	if err != nil {
		return err
	}
	recursive := ""
	if f.Recursive {
		recursive = "true"
	}
	path += "/files" + fence(r, "path", f.Path, "recursive", recursive)
	return c.call(ctx, request{method: http.MethodDelete, path: path, slow: true, once: true}, nil)
}
