package docker

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// dataContent selects the content of /data, so that the names in the archive are relative to it.
const dataContent = "/data/."

// Export implements driver.Exporter with the engine's archive, which needs nothing from the sandbox: the
// engine mounts the volume even for a stopped container. Until the stream ends, the engine delays every other
// request for this container, even reads. Only the sandbox's own container is frozen: its companions have no /data.
func (e *Executor) Export(ctx context.Context, h driver.Handle) (io.ReadCloser, error) {
	c, err := e.containers.Inspect(ctx, h)
	if err != nil {
		return nil, err
	}
	x := &export{e: e, h: h, what: dataContent, frozen: engine.StateOf(c.State) == sandbox.StateRunning}
	x.ctx, x.cancel = context.WithCancel(ctx)
	if x.frozen {
		// If the sandbox stops on its own meanwhile, nothing in it runs either.
		err = e.pauseOne(x.ctx, h, c)
	}
	if err == nil {
		err = x.open()
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// ReadDisk implements driver.DiskReader. The engine resolves links within the container. Nothing in the container can
// change them meanwhile, because it does not run.
func (e *Executor) ReadDisk(ctx context.Context, h driver.Handle, path string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	x := &export{e: e, h: h, ctx: ctx, cancel: cancel, what: path}
	if err := x.open(); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// export is the running export of one path of a sandbox.
type export struct {
	e      *Executor
	h      driver.Handle
	what   string          // the path
	ctx    context.Context // context of the stream
	cancel context.CancelFunc
	body   io.ReadCloser // constant once the stream is open
	mu     sync.Mutex    // guards what follows: a copy may return, and its caller may close the stream, during a Read
	frozen bool          // frozen by this export and not thawed yet
	// state is the sandbox's state at the start of the stream. It must not change until the end.
	state *dockerapi.ContainerState
	ended error // result of the stream, once it has ended
	thaw  error // error of thawing the sandbox
}

// open requests the archive of a sandbox that does not run.
func (x *export) open() (err error) {
	x.state, err = x.look(x.ctx, func(s *dockerapi.ContainerState) bool {
		return engine.StateOf(s) != sandbox.StateRunning
	})
	if err != nil {
		return err
	}
	if engine.StateOf(x.state) == sandbox.StateRunning {
		return x.torn(sandbox.StateRunning)
	}
	r := engine.Read("read "+x.what+" of container", objects.SandboxName(x.h))
	r.Reason = sandbox.ReasonCopyFailed
	err = x.e.engine.Do(x.ctx, r, func(ctx context.Context) (err error) {
		stop := context.AfterFunc(ctx, x.cancel) // the request's deadline limits the wait, not the stream
		defer stop()
		x.body, _, err = x.e.engine.API.CopyFromContainer(x.ctx, objects.SandboxName(x.h), x.what)
		return err
	})
	if sandbox.CodeOf(err) == sandbox.NotFound {
		if _, lookErr := x.e.containers.Inspect(x.ctx, x.h); lookErr == nil {
			return sandbox.Errorf(sandbox.NotFound, "docker: sandbox %s has no %s", x.h.SandboxID, x.what).
				WithReason(sandbox.ReasonFileNotFound)
		}
	}
	return err
}

// flicker is how long an engine may contradict the pause that it has just carried out. Late events of an earlier
// unpause change its answer, and those of the pause change it back.
const flicker = 5 * time.Second

// look inspects the sandbox until it is as wanted or can no longer become so.
func (x *export) look(ctx context.Context,
	wanted func(*dockerapi.ContainerState) bool) (*dockerapi.ContainerState, error) {
	for limit := time.Now().Add(flicker); ; {
		c, err := x.e.containers.Inspect(ctx, x.h)
		if err != nil {
			return nil, err
		}
		if wanted(c.State) || time.Now().After(limit) {
			return c.State, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, sandbox.Errorf(sandbox.Unavailable, "docker: sandbox %s: read %s: %w", x.h.SandboxID, x.what,
				ctx.Err())
		}
	}
}

// torn is the error for a sandbox that another caller has woken.
func (x *export) torn(now sandbox.State) error {
	return sandbox.Errorf(sandbox.Conflict, "docker: sandbox %s: read %s: another caller woke it meanwhile (it is "+
		"%s), so the data may be inconsistent: export again", x.h.SandboxID, x.what, now).
		WithReason(sandbox.ReasonInvalidState)
}

// Read implements io.Reader. It thaws the sandbox at the end of the stream.
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
		x.ended = sandbox.Errorf(sandbox.Unavailable, "docker: sandbox %s: read %s: the stream broke: %w (retry)",
			x.h.SandboxID, x.what, err).WithReason(sandbox.ReasonCopyFailed)
	default:
		x.release()
		if x.ended = x.unchanged(); x.ended == nil {
			x.ended = io.EOF
		}
		x.goOn()
	}
	return n, x.ended
}

// unchanged checks that nothing in the sandbox ran while the stream was read.
func (x *export) unchanged() error {
	same := func(s *dockerapi.ContainerState) bool {
		return engine.StateOf(s) == engine.StateOf(x.state) && s.StartedAt == x.state.StartedAt
	}
	s, err := x.look(x.ctx, same)
	if err != nil || same(s) {
		return err
	}
	return x.torn(engine.StateOf(s))
}

// release ends the request. The engine does not handle other requests for the container before.
func (x *export) release() {
	if x.body != nil {
		_ = x.body.Close() // Read reports errors of the content
	}
}

// goOn thaws the sandbox if the export froze it, even if the caller has given up.
func (x *export) goOn() {
	if !x.frozen {
		return
	}
	x.frozen = false
	defer x.e.channels.Existing(x.h, (*channel.Client).Resume) // pauseOne suspended it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), engine.ChangeLimit)
	defer cancel()
	if x.thaw = x.e.engine.UnpauseContainer(ctx, objects.SandboxName(x.h)); x.thaw == nil {
		return
	}
	s, err := x.look(ctx, func(s *dockerapi.ContainerState) bool { return engine.StateOf(s) == sandbox.StatePaused })
	switch {
	case err == nil && engine.StateOf(s) == sandbox.StatePaused:
		x.thaw = x.e.engine.UnpauseContainer(ctx, objects.SandboxName(x.h))
	case err == nil, sandbox.CodeOf(err) == sandbox.NotFound: // it runs, has ended or was removed
		x.thaw = nil
	}
}

// Close implements io.Closer.
func (x *export) Close() error {
	x.release() // this ends a running Read
	x.mu.Lock()
	defer x.mu.Unlock()
	x.goOn()
	x.cancel()
	return x.thaw
}
