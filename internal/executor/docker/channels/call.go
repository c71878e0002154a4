package channels

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/containers"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// fresh is how long a sign of life counts: until then an operation does not need another one first.
	fresh = time.Second
	// answerLimit is how long a sandbox may be silent before the engine is asked for its state.
	answerLimit = 300 * time.Millisecond
	// refusals is how often in a row an engine must say that a sandbox does not run. Engine 20.10 may process a pause
	// late, and then report a sandbox as paused that has been woken since.
	refusals = 2
	// contactPause is the interval at which an operation checks for silence. The check only reads memory.
	contactPause = 200 * time.Millisecond
	// silentFor is longer than the heartbeat interval of the channel. A connected sandbox that is silent for longer is
	// inspected.
	silentFor = 7 * time.Second
)

// Call carries out a call over the channel to a sandbox. If ctx ends first, the call's command ends too. Errors: as for
// Runner.Exec.
func (cs *Channels) Call(ctx context.Context, h driver.Handle, call helper.Call) (wire.Result, error) {
	if err := objects.CheckHandle(h); err != nil {
		return wire.Result{}, err
	}
	client, release, err := cs.use(h)
	if err != nil {
		return wire.Result{}, err
	}
	defer release()
	if err := cs.reach(ctx, h, client); err != nil {
		return wire.Result{}, err
	}
	watched, cancel := context.WithCancelCause(ctx)
	watching := make(chan struct{})
	go func() { // it ends with watched
		defer close(watching)
		cs.watchSilence(watched, h, client, cancel)
	}()
	res, err := helper.CarryOut(watched, client, call)
	cancel(nil)
	<-watching
	if err == nil {
		return res, nil
	}
	return res, cs.unfinished(ctx, h, client, call, cmpCause(watched, err))
}

// cmpCause returns the cause for which an operation was given up, otherwise err.
func cmpCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) &&
		!errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return err
}

// reach returns once a sandbox shows a sign of life. Otherwise a paused sandbox could carry out a buffered request
// after its caller got an error. Errors: Conflict or NotFound, as the engine says; Unavailable.
func (cs *Channels) reach(ctx context.Context, h driver.Handle, client *channel.Client) error {
	switch c := client.Contact(); {
	case c.Suspended:
		if err := cs.running(ctx, h); err != nil {
			return err
		}
		client.Resume() // another program woke it
	case c.Connected && time.Since(c.Heard) < fresh:
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, engine.ChangeLimit, errSilent)
	defer cancel()
	answered := make(chan error, 1)
	go func() { // it ends with ctx
		err := client.Ping(ctx)
		for errors.Is(err, channel.ErrLost) && ctx.Err() == nil { // no request has been sent yet that could be lost
			err = client.Ping(ctx)
		}
		answered <- err
	}()
	refused, err := awaitContact(answered, func() error { return cs.running(ctx, h) })
	if err == nil || refused {
		return err
	}
	return cs.unreachable(ctx, h, err)
}

// awaitContact waits for a silent sandbox, and returns its answer: nil or an error. Meanwhile it checks whether the
// sandbox runs. If the engine says that it does not, refused is true and err is the engine's error.
func awaitContact(answered <-chan error, running func() error) (refused bool, err error) {
	refusing := 0 // consecutive refusals
	for pause := answerLimit; ; {
		select {
		case err := <-answered:
			return false, err
		case <-time.After(pause):
		}
		err := running()
		if err == nil {
			refusing, pause = 0, min(2*pause, engine.ReadLimit)
			continue
		}
		refusing, pause = refusing+1, answerLimit
		if refusing == refusals || sandbox.CodeOf(err) != sandbox.Conflict {
			return true, err
		}
	}
}

// errSilent means that the engine says that the sandbox runs, but it does not answer.
var errSilent = errors.New("it runs and does not answer")

func (cs *Channels) unreachable(ctx context.Context, h driver.Handle, cause error) error {
	if err := cs.running(context.WithoutCancel(ctx), h); err != nil {
		return err
	}
	code := sandbox.Unavailable
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errSilent) {
		code = sandbox.Timeout
	}
	return sandbox.Errorf(code, "docker: sandbox %s: it cannot be reached: %w (retry)",
		h.SandboxID, errors.Join(cause, context.Cause(ctx))).
		WithReason(sandbox.ReasonExecFailed)
}

// running returns an error if the sandbox does not run, or if the engine does not confirm that it runs.
func (cs *Channels) running(ctx context.Context, h driver.Handle) error {
	c, err := cs.containers.Inspect(ctx, h)
	if err != nil {
		return err
	}
	if s := engine.StateOf(c.State); s != sandbox.StateRunning {
		return containers.WrongState(h, s)
	}
	if !containers.HasMount(c, guest.ChannelDir) {
		return sandbox.Errorf(sandbox.Conflict, "docker: sandbox %s: an earlier release created it, and this release "+
			"cannot run commands in it: release its lease and acquire it again", h.SandboxID).
			WithReason(sandbox.ReasonInvalidState)
	}
	return nil
}

// errEnded marks that a sandbox ended during an operation.
var errEnded = errors.New("the sandbox ended meanwhile")

// watchSilence gives up an operation if its sandbox is gone. A paused sandbox answers after it is woken.
func (cs *Channels) watchSilence(ctx context.Context, h driver.Handle, client *channel.Client,
	giveUp context.CancelCauseFunc) {
	for pause := contactPause; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if c := client.Contact(); c.Connected && time.Since(c.Heard) < silentFor {
			pause = contactPause
			continue
		}
		pause = min(2*pause, silentFor)
		c, err := cs.containers.Inspect(ctx, h)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			giveUp(errors.Join(errEnded, err))
		}
		if err != nil {
			continue
		}
		switch engine.StateOf(c.State) {
		case sandbox.StateStopped:
			giveUp(sandbox.Errorf(sandbox.UnknownOutcome, "%w and is stopped (exit code %d)", errEnded, c.State.ExitCode))
		case sandbox.StatePaused:
			client.Suspend() // another program paused it: its silence means nothing
		case sandbox.StateRunning:
			client.Resume()
		}
	}
}

// unfinished ends a command without a result, and explains why.
func (cs *Channels) unfinished(ctx context.Context, h driver.Handle, client *channel.Client, call helper.Call,
	cause error) error {
	var killErr error
	if call.Ends && !errors.Is(cause, errEnded) {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), helper.KillLimit)
		defer cancel()
		killErr = cs.endCommand(cleanup, h, client, call.Request.ID)
	}
	code, reason := sandbox.UnknownOutcome, sandbox.ReasonExecFailed
	switch {
	case errors.Is(cause, helper.ErrUnknownCommand):
		reason = sandbox.ReasonExecNotFound
	case killErr != nil:
		return sandbox.Errorf(code, "docker: sandbox %s: command: %w; it may still run: %w", h.SandboxID, cause, killErr).
			WithReason(sandbox.ReasonExecFailed)
	case ctx.Err() != nil:
		code = sandbox.Timeout
		cause = errors.Join(errors.New("ended before it had finished"), ctx.Err())
	}
	return sandbox.Errorf(code, "docker: sandbox %s: command: %w", h.SandboxID, cause).WithReason(reason)
}

// endCommand ends a command. It succeeds if the sandbox has ended, because it runs no commands.
func (cs *Channels) endCommand(ctx context.Context, h driver.Handle, client *channel.Client, id string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watching := make(chan struct{})
	go func() { // it ends with ctx
		defer close(watching)
		cs.watchSilence(ctx, h, client, cancel)
	}()
	res, err := client.Call(ctx, channel.Request{Op: channel.OpEnd, ID: id}, channel.Streams{})
	cancel(nil)
	<-watching
	switch {
	case errors.Is(context.Cause(ctx), errEnded):
		return nil
	case err != nil:
		return err
	case res.Problem != "":
		return errors.New(res.Message)
	}
	return nil
}

// endLimit limits the attempt to end a sandbox without the engine.
const endLimit = 2 * time.Second

// EndNow asks process 1 to end its sandbox, over the channel and, at the same time, through a file that it watches.
// Kill does not rely on it.
func (cs *Channels) EndNow(ctx context.Context, h driver.Handle) {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	var asking sync.WaitGroup
	for way, ask := range map[string]func(context.Context, driver.Handle) error{
		"file": cs.relays.End, "channel": cs.shutdown,
	} {
		asking.Go(func() {
			if err := ask(ctx, h); err != nil {
				cs.log.DebugContext(ctx, "docker: ending a sandbox without its engine failed", "sandbox", h.SandboxID,
					"way", way, "error", err)
			}
		})
	}
	asking.Wait()
}

func (cs *Channels) shutdown(ctx context.Context, h driver.Handle) error {
	client, done, err := cs.use(h)
	if err != nil {
		return err
	}
	defer done()
	_, err = client.Call(ctx, channel.Request{Op: channel.OpShutdown}, channel.Streams{})
	return err
}

// Met reports whether this program has a connected session with a sandbox.
func (cs *Channels) Met(h driver.Handle) (met bool) {
	cs.Existing(h, func(c *channel.Client) { met = c.Contact().Connected })
	return met
}
