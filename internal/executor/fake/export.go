package fake

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// dataDir is what an export reads.
const dataDir = "/data"

// Export implements sandbox.Executor. A fault of OpThaw leaves an awake sandbox paused, as a caller
// that dies does.
func (x *Executor) Export(ctx context.Context, h sandbox.Handle) (io.ReadCloser, error) {
	if err := x.enter(ctx, OpExport, h.Instance); err != nil {
		return nil, err
	}
	b, ok := x.boxes[h.SandboxID]
	if !ok {
		x.mu.Unlock()
		return nil, notFound(h)
	}
	content, _, err := pack(b.files, dataDir, dataDir)
	frozen := err == nil && b.obs.State == sandbox.StateRunning
	if frozen {
		b.obs.State = sandbox.StatePaused
	}
	x.mu.Unlock()
	if err != nil {
		return nil, err
	}
	e := &export{content: content, thaw: func() error { return nil }}
	if frozen {
		x.tell(h.SandboxID)
		e.thaw = sync.OnceValue(func() error { return x.thaw(context.WithoutCancel(ctx), h) })
	}
	return e, nil
}

// thaw lets a sandbox go on that an export has frozen.
func (x *Executor) thaw(ctx context.Context, h sandbox.Handle) error {
	err := x.change(ctx, OpThaw, h, sandbox.StateRunning)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

type export struct {
	content io.Reader
	thaw    func() error
}

func (e *export) Read(p []byte) (int, error) {
	n, err := e.content.Read(p)
	if errors.Is(err, io.EOF) {
		_ = e.thaw() // Close tells
	}
	return n, err
}

func (e *export) Close() error { return e.thaw() }
