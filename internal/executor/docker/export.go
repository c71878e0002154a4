package docker

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// dataContent names what lies in /data, so that the engine's names begin there.
const dataContent = "/data/."

// Export implements driver.Exporter by the engine's archive, which needs nothing of the sandbox: the
// engine mounts the volume, of a stopped container too. Until the stream has ended it keeps every
// other request for this container waiting, even one that only looks.
func (e *Executor) Export(ctx context.Context, h driver.Handle) (io.ReadCloser, error) {
	c, err := e.inspect(ctx, h)
	if err != nil {
		return nil, err
	}
	x := &export{e: e, h: h, frozen: stateOf(c.State) == sandbox.StateRunning}
	x.ctx, x.cancel = context.WithCancel(ctx)
	if err := x.open(); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// export is what lies in /data on its way out of a sandbox.
type export struct {
	e      *Executor
	h      driver.Handle
	ctx    context.Context // of the stream
	cancel context.CancelFunc
	body   io.ReadCloser // does not change once the stream is open
	mu     sync.Mutex    // guards what follows: a copy may return, and its caller close the stream, before a Read does
	frozen bool          // by this export, and not thawed yet
	// state is what the sandbox was when the stream began, and must be to its end.
	state *dockerapi.ContainerState
	ended error // of the stream, once it has ended
	thaw  error // of letting the sandbox go on
}

// open freezes the sandbox and asks for the archive.
func (x *export) open() error {
	if x.frozen {
		// One that ends by itself meanwhile runs as little as a paused one.
		if err := x.e.Sleep(x.ctx, x.h, sandbox.SleepPause); err != nil {
			return err
		}
	}
	var err error
	x.state, err = x.look(x.ctx, func(s *dockerapi.ContainerState) bool { return stateOf(s) != sandbox.StateRunning })
	if err != nil {
		return err
	}
	if stateOf(x.state) == sandbox.StateRunning {
		return x.torn(sandbox.StateRunning)
	}
	r := read("read /data of container", sandboxName(x.h))
	r.reason = sandbox.ReasonCopyFailed
	return x.e.do(x.ctx, r, func(ctx context.Context) (err error) {
		stop := context.AfterFunc(ctx, x.cancel) // the request's deadline is for the wait, not for the stream
		defer stop()
		x.body, _, err = x.e.api.CopyFromContainer(x.ctx, sandboxName(x.h), dataContent)
		return err
	})
}

// flicker is how long an engine may contradict the pause that it has just carried out: its own late
// events of the unpause before change what it says, and those of the pause change it back.
const flicker = 5 * time.Second

// look inspects the sandbox until it is as wanted, or does not become so any more.
func (x *export) look(ctx context.Context, wanted func(*dockerapi.ContainerState) bool) (*dockerapi.ContainerState, error) {
	for limit := time.Now().Add(flicker); ; {
		c, err := x.e.inspect(ctx, x.h)
		if err != nil {
			return nil, err
		}
		if wanted(c.State) || time.Now().After(limit) {
			return c.State, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, sandbox.Errorf(sandbox.Unavailable, "docker: sandbox %s: read /data: %w", x.h.SandboxID, ctx.Err())
		}
	}
}

// torn is the error for a sandbox that another caller has woken.
func (x *export) torn(now sandbox.State) error {
	return sandbox.Errorf(sandbox.Conflict, "docker: sandbox %s: read /data: somebody made it go on meanwhile (it is %s), so what was read may be torn: export again", x.h.SandboxID, now).
		WithReason(sandbox.ReasonInvalidState)
}

// Read implements io.Reader. The sandbox goes on as soon as all was read.
func (x *export) Read(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended != nil {
		return 0, x.ended
	}
	n, err := x.body.Read(p)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		x.ended = sandbox.Errorf(sandbox.Unavailable, "docker: sandbox %s: read /data: the stream broke: %w (retry)", x.h.SandboxID, err).WithReason(sandbox.ReasonCopyFailed)
	default:
		x.release()
		if x.ended = x.unchanged(); x.ended == nil {
			x.ended = io.EOF
		}
		x.goOn()
	}
	return n, x.ended
}

// unchanged checks that nothing of the sandbox ran while the stream was read.
func (x *export) unchanged() error {
	same := func(s *dockerapi.ContainerState) bool {
		return stateOf(s) == stateOf(x.state) && s.StartedAt == x.state.StartedAt
	}
	s, err := x.look(x.ctx, same)
	if err != nil || same(s) {
		return err
	}
	return x.torn(stateOf(s))
}

// release ends the request, which the engine waits for before it takes another one.
func (x *export) release() {
	if x.body != nil {
		_ = x.body.Close() // what was read of it is judged by Read
	}
}

// goOn thaws the sandbox if it was frozen for the stream, whatever became of the caller.
func (x *export) goOn() {
	if !x.frozen {
		return
	}
	x.frozen = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), changeLimit)
	defer cancel()
	if x.thaw = x.unpause(ctx); x.thaw == nil {
		return
	}
	s, err := x.look(ctx, func(s *dockerapi.ContainerState) bool { return stateOf(s) == sandbox.StatePaused })
	switch {
	case err == nil && stateOf(s) == sandbox.StatePaused:
		x.thaw = x.unpause(ctx)
	case err == nil, isCode(err, sandbox.NotFound): // it goes on, or has ended, or was removed
		x.thaw = nil
	}
}

func (x *export) unpause(ctx context.Context) error {
	return x.e.do(ctx, change("unpause container", sandboxName(x.h), sandbox.ReasonStartFailed), func(ctx context.Context) error {
		return x.e.api.ContainerUnpause(ctx, sandboxName(x.h))
	})
}

// Close implements io.Closer.
func (x *export) Close() error {
	x.release() // which ends a Read under way
	x.mu.Lock()
	defer x.mu.Unlock()
	x.goOn()
	x.cancel()
	return x.thaw
}
