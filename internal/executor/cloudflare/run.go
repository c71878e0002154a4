package cloudflare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// maxLimit bounds how long a call counts as use of the sandbox. It applies to calls without a limit of their own.
	maxLimit = 24 * time.Hour
	// endLimit bounds the wait for the object to record an end. Meanwhile the object saves /data, for 120 s at most.
	endLimit = 3 * time.Minute
	// reachLimit bounds the wait for a carrier before an operation.
	reachLimit = 30 * time.Second
	// outageLimit is how long an operation waits for another carrier, and outagePause how often it looks.
	outageLimit = 2 * time.Minute
	outagePause = 5 * time.Second
)

// help carries out a call over the channel to a sandbox. It is a helper.Run.
func (w *Worker) help(ctx context.Context, h driver.Handle, call helper.Call) (wire.Result, error) {
	s, leave, err := w.sessions.use(h)
	if err != nil {
		return wire.Result{}, err
	}
	defer leave()
	call.Request.ReportData = changes(call.Request)
	// Two callers may follow one command. Each reports an operation of its own.
	op := begun{
		ID:       cmp.Or(call.Request.ID, sandbox.RandomIDs(sandbox.SandboxIDLength)),
		Limit:    min(cmp.Or(call.Limit, maxLimit), maxLimit).Milliseconds(),
		Detached: call.Detached,
		Quiet:    call.Quiet,
	}
	if call.Request.Op != channel.OpExec {
		op.ID = string(call.Request.Op) + " " + sandbox.RandomIDs(sandbox.SandboxIDLength)
	}
	s.books.begin(op)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	err = reach(ctx, s.client)
	var res wire.Result
	if err == nil {
		res, err = watched(ctx, s.client, call)
	}
	if err != nil {
		err = unfinished(ctx, h, s.client, call, err)
		s.books.end(ending, done{ID: op.ID, Left: true})
		return wire.Result{}, err
	}
	s.books.end(ending, doneOf(op.ID, res))
	return res, nil
}

// errOutage ends an operation whose sandbox cannot be reached for outageLimit.
var errOutage = fmt.Errorf("the sandbox could not be reached for %s", outageLimit)

// watched carries out a call, and gives up if its sandbox cannot be reached for outageLimit.
func watched(ctx context.Context, client *channel.Client, call helper.Call) (wire.Result, error) {
	working, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for seen := time.Now(); ; {
			select {
			case <-working.Done():
				return
			case <-time.After(outagePause):
			}
			if client.Contact().Connected {
				seen = time.Now()
			}
			if time.Since(seen) > outageLimit {
				cancel(errOutage)
			}
		}
	})
	res, err := helper.CarryOut(working, client, call)
	if err != nil && errors.Is(context.Cause(working), errOutage) {
		err = errors.Join(errOutage, err)
	}
	cancel(nil)
	watching.Wait()
	return res, err
}

// reach waits until there is a carrier, for reachLimit at most: the operation has not begun, so giving up is safe.
func reach(ctx context.Context, client *channel.Client) error {
	if client.Contact().Connected {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	err := client.Ping(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return sandbox.Errorf(sandbox.Unavailable, "cloudflare: it cannot be reached: %w (retry)", err)
	}
	return err
}

// changes reports whether an operation may change /data.
func changes(r channel.Request) bool {
	switch r.Op {
	case channel.OpExec, channel.OpPut:
		return true
	case channel.OpFile:
		return r.File != nil && (r.File.Op == wire.FileWrite || r.File.Op == wire.FileRemove)
	default:
		return false
	}
}

// unfinished ends a command whose result will not come because of cause, and explains why.
func unfinished(ctx context.Context, h driver.Handle, client *channel.Client, call helper.Call, cause error) error {
	known, refused := errors.AsType[*sandbox.Error](cause)
	begun := errors.Is(cause, channel.ErrLost) || errors.Is(cause, channel.ErrClosed) ||
		errors.Is(cause, errOutage) || ctx.Err() != nil
	if refused && !begun {
		return known // it was not run
	}
	code, reason := sandbox.UnknownOutcome, sandbox.ReasonExecFailed
	switch {
	case errors.Is(cause, helper.ErrUnknownCommand):
		return sandbox.Errorf(code, "cloudflare: sandbox %s: %s: %w", h.SandboxID, call.Request.Op, cause).
			WithReason(sandbox.ReasonExecNotFound)
	case ctx.Err() != nil:
		code = sandbox.Timeout
		cause = errors.Join(errors.New("ended before it was finished"), ctx.Err(), cause)
	case !begun:
		code = sandbox.Unavailable
	}
	if call.Ends && begun && !errors.Is(cause, channel.ErrGone) {
		if err := endCommand(ctx, client, call.Request); err != nil {
			return sandbox.Errorf(sandbox.UnknownOutcome, "cloudflare: sandbox %s: %s: %w; it may still run: %w",
				h.SandboxID, call.Request.Op, cause, err).WithReason(reason)
		}
	}
	return sandbox.Errorf(code, "cloudflare: sandbox %s: %s: %w", h.SandboxID, call.Request.Op, cause).WithReason(reason)
}

// endCommand ends a command that its caller has left. It does nothing if the sandbox has ended.
func endCommand(ctx context.Context, client *channel.Client, r channel.Request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), helper.KillLimit)
	defer cancel()
	res, err := client.Call(ctx, channel.Request{Op: channel.OpEnd, ID: r.ID}, channel.Streams{})
	switch {
	case errors.Is(err, channel.ErrGone):
		return nil
	case err != nil:
		return err
	case res.Problem != "":
		return errors.New(res.Message)
	}
	return nil
}
