package helper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxListing limits a guest's answer for a page of names. A name has at most 255 bytes and its link target 4096, both
// in base64.
const maxListing = sandbox.MaxPage * 8 << 10

// StatFile implements driver.FileAccess.
func (g Guests) StatFile(ctx context.Context, h driver.Handle, path string) (sandbox.FileInfo, error) {
	files, err := g.describe(ctx, h, wire.FileRequest{Op: wire.FileStat, Path: []byte(path)})
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	if len(files) != 1 {
		return sandbox.FileInfo{}, sandbox.Errorf(sandbox.Failed, "%s: sandbox %s: describe %s: the guest returned %d "+
			"descriptions instead of one",
			g.backend, h.SandboxID, path, len(files))
	}
	return files[0], nil
}

// ListFiles implements driver.FileAccess.
func (g Guests) ListFiles(ctx context.Context, h driver.Handle, q sandbox.FileQuery) ([]sandbox.FileInfo, error) {
	return g.describe(ctx, h,
		wire.FileRequest{Op: wire.FileList, Path: []byte(q.Path), After: []byte(q.After), Limit: q.Limit})
}

// describe runs a request whose answer is a list of descriptions.
func (g Guests) describe(ctx context.Context, h driver.Handle, r wire.FileRequest) ([]sandbox.FileInfo, error) {
	out := &Capture{Limit: maxListing}
	if err := g.file(ctx, h, r, Call{Stdout: out}); err != nil {
		return nil, err
	}
	var files []sandbox.FileInfo
	for lines := json.NewDecoder(&out.Buffer); ; {
		var f wire.FileInfo
		err := lines.Decode(&f)
		if errors.Is(err, io.EOF) && !out.Truncated {
			return files, nil
		}
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Failed, "%s: sandbox %s: %s %s: the guest's answer cannot be read: %w",
				g.backend, h.SandboxID, r.Op, r.Path, err)
		}
		files = append(files, sandbox.FileInfo{
			Name: string(f.Name), Type: sandbox.FileType(f.Type), Size: f.Size, Mode: fs.FileMode(f.Mode),
			ModifiedAt: f.Modified, Target: string(f.Target),
		})
	}
}

// WriteFile implements driver.FileAccess.
func (g Guests) WriteFile(ctx context.Context, h driver.Handle, w sandbox.FileWrite, content io.Reader) error {
	framed := &framer{content: content, failed: make(chan error, 1)}
	framed.frames = wire.NewWriter(&framed.ready)
	err := g.file(ctx, h, wire.FileRequest{Op: wire.FileWrite, Path: []byte(w.Path), Mode: uint32(w.Mode)},
		Call{Stdin: framed})
	if err == nil {
		return nil
	}
	select {
	case cause := <-framed.failed:
		if _, known := errors.AsType[*sandbox.Error](cause); known {
			return cause
		}
		return sandbox.Errorf(sandbox.Failed,
			"%s: sandbox %s: write %s: its content could not be read: %w; nothing was changed",
			g.backend, h.SandboxID, w.Path, cause).
			WithReason(sandbox.ReasonWriteFailed)
	default:
		return err
	}
}

// RemoveFile implements driver.FileAccess.
func (g Guests) RemoveFile(ctx context.Context, h driver.Handle, r sandbox.FileRemoval) error {
	return g.file(ctx, h, wire.FileRequest{Op: wire.FileRemove, Path: []byte(r.Path), Recursive: r.Recursive}, Call{})
}

// maxCounted limits the files that DiskUsage counts in each root.
const maxCounted = 1_000_000

// DiskUsage implements driver.FileAccess.
func (g Guests) DiskUsage(ctx context.Context, h driver.Handle) (sandbox.DiskUsage, error) {
	all := sandbox.DiskUsage{Complete: true}
	for _, root := range sandbox.Roots {
		out := &Capture{Limit: 1 << 10}
		if err := g.file(ctx, h, wire.FileRequest{Op: wire.FileUsage, Path: []byte(root), Limit: maxCounted},
			Call{Stdout: out}); err != nil {
			return sandbox.DiskUsage{}, err
		}
		var used wire.DiskUsage
		if err := json.Unmarshal(out.Bytes(), &used); err != nil {
			return sandbox.DiskUsage{}, sandbox.Errorf(sandbox.Failed,
				"%s: sandbox %s: count %s: the guest's answer cannot be read: %w", g.backend, h.SandboxID, root, err)
		}
		all.Bytes, all.Files, all.Complete = all.Bytes+used.Bytes, all.Files+used.Files, all.Complete && used.Complete
	}
	return all, nil
}

// file runs an operation on one path.
func (g Guests) file(ctx context.Context, h driver.Handle, r wire.FileRequest, call Call) error {
	call.Request = channel.Request{Op: channel.OpFile, File: &r}
	failed := sandbox.ReasonCopyFailed
	if r.Op == wire.FileWrite || r.Op == wire.FileRemove {
		failed = sandbox.ReasonWriteFailed
	}
	return g.transfer(ctx, h, string(r.Op)+" "+string(r.Path), failed, call)
}

// framer sends content to a guest with an explicit end: without it, the guest cannot tell a broken connection
// from the end of the input.
type framer struct {
	content io.Reader
	frames  *wire.Writer // writes into ready
	ready   bytes.Buffer
	ended   bool
	failed  chan error // receives the error of content, if any
}

func (f *framer) Read(p []byte) (int, error) {
	for f.ready.Len() == 0 {
		if f.ended {
			return 0, io.EOF
		}
		if err := f.fill(); err != nil {
			return 0, err
		}
	}
	return f.ready.Read(p)
}

func (f *framer) fill() error {
	piece := make([]byte, 32<<10)
	n, err := f.content.Read(piece)
	if _, err := f.frames.Stdout().Write(piece[:n]); err != nil {
		return err
	}
	if err == nil {
		return nil
	}
	f.ended = true
	var end wire.Result
	if !errors.Is(err, io.EOF) {
		f.failed <- err
		end = wire.Result{Problem: wire.ProblemFailed, Message: "the content could not be read completely"}
	}
	return f.frames.Result(end)
}
