package fake

import (
	"context"
	"errors"
	"io"
	"path"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// dataDir is the directory that an export reads.
const dataDir = "/data"

// Export implements driver.Executor. A fault of OpThaw leaves an awake sandbox paused, like the death of a caller.
func (x *Executor) Export(ctx context.Context, h driver.Handle) (io.ReadCloser, error) {
	if err := x.enter(ctx, OpExport, h.Instance); err != nil {
		return nil, err
	}
	b, ok := x.containers[h.SandboxID]
	if !ok {
		x.mu.Unlock()
		return nil, notFound(h)
	}
	content, _, err := pack(b.files, dataDir, dataDir)
	if err != nil {
		x.mu.Unlock()
		return nil, err
	}
	e := &export{x: x, h: h, content: content, thaw: func() error { return nil }}
	if b.obs.State == sandbox.StateRunning {
		b.obs.State = sandbox.StatePaused
		e.thaw = sync.OnceValue(func() error { return x.thaw(context.WithoutCancel(ctx), h) })
	}
	e.state = b.obs.State
	x.mu.Unlock()
	x.tell(h.SandboxID)
	return e, nil
}

var _ driver.DiskReader = (*Executor)(nil)

// ReadDisk implements driver.DiskReader.
func (x *Executor) ReadDisk(ctx context.Context, h driver.Handle, p string) (io.ReadCloser, error) {
	if err := x.enter(ctx, OpReadDisk, h.Instance); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	b, ok := x.containers[h.SandboxID]
	switch {
	case !ok:
		return nil, notFound(h)
	case b.obs.State == sandbox.StateRunning:
		return nil, sandbox.Errorf(sandbox.Conflict, "sandbox %s runs", h.SandboxID).WithReason(sandbox.ReasonInvalidState)
	}
	stream, n, err := pack(b.files, p, path.Dir(p))
	if err == nil && n == 0 {
		err = sandbox.Errorf(sandbox.NotFound, "there is no %s", p).WithReason(sandbox.ReasonFileNotFound)
	}
	return io.NopCloser(stream), err
}

// thaw resumes a sandbox that an export has frozen.
func (x *Executor) thaw(ctx context.Context, h driver.Handle) error {
	_, err := x.change(ctx, OpThaw, h, sandbox.StateRunning)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

type export struct {
	x       *Executor
	h       driver.Handle
	state   sandbox.State // during the read
	content io.Reader
	thaw    func() error
	ended   error
}

func (e *export) Read(p []byte) (int, error) {
	if e.ended != nil {
		return 0, e.ended
	}
	n, err := e.content.Read(p)
	if errors.Is(err, io.EOF) {
		if e.ended = e.unchanged(); e.ended == nil {
			e.ended = io.EOF
		}
		_ = e.thaw() // Close returns the error
	}
	return n, e.ended
}

func (e *export) unchanged() error {
	e.x.mu.Lock()
	defer e.x.mu.Unlock()
	b, ok := e.x.containers[e.h.SandboxID]
	switch {
	case !ok:
		return notFound(e.h)
	case b.obs.State != e.state:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is %s and was %s", e.h.SandboxID, b.obs.State, e.state).
			WithReason(sandbox.ReasonInvalidState)
	default:
		return nil
	}
}

func (e *export) Close() error { return e.thaw() }
