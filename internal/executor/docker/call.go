package docker

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Deadlines of one request to the engine. They only bound an engine that hangs: under load a start
// takes seconds.
const (
	readLimit = 15 * time.Second
	// listedLimit bounds the look at each container of a list, which takes under a millisecond.
	listedLimit = 5 * time.Second
	changeLimit = 60 * time.Second
	importLimit = 10 * time.Minute
)

// request describes one request to the engine, for its deadline and its errors.
type request struct {
	verb, object string
	limit        time.Duration
	// changes: when the answer is lost, the outcome is unknown.
	changes bool
	// reason is given to a failure of the engine's own.
	reason sandbox.Reason
	// waits: the engine mostly waits for the sandbox, which needs no slot.
	waits bool
	// once: it is not made again after an internal error of the engine, which may have carried it out.
	once bool
	// late: no caller waits for its end, so it comes after others.
	late bool
}

func read(verb, object string) request {
	return request{verb: verb, object: object, limit: readLimit}
}

func change(verb, object string, reason sandbox.Reason) request {
	return request{verb: verb, object: object, limit: changeLimit, changes: true, reason: reason}
}

// An engine answers 500 to most of its transient trouble as well as to what fails for good. So such a request is made
// a few times before its failure counts.
const (
	tries      = 3
	firstPause = 100 * time.Millisecond
	pauseGrows = 5 // times, after each try
)

// do makes one request, again while the engine answers with an internal error, and classifies its error. call must be
// idempotent unless r.once.
func (e *Executor) do(ctx context.Context, r request, call func(context.Context) error) error {
	var first error
	pause := firstPause
	for n := 1; ; n++ {
		err := e.try(ctx, r, call)
		if r.once || n == tries || !cerrdefs.IsInternal(err) {
			return withFirst(err, first)
		}
		if first == nil {
			first = err
		}
		select {
		case <-time.After(pause):
			pause *= pauseGrows
		case <-ctx.Done():
			return err
		}
	}
}

// withFirst adds what the engine said at the first of several tries, where that was something else: what a start left behind
// may be what the next one complains of.
func withFirst(err, first error) error {
	if err == nil || first == nil || err.Error() == first.Error() {
		return err
	}
	return sandbox.Errorf(sandbox.CodeOf(err), "%w; at first: %w", err, first).WithReason(sandbox.ReasonOf(err))
}

// try makes a request once: within a slot, within its deadline.
func (e *Executor) try(ctx context.Context, r request, call func(context.Context) error) error {
	leave := func(bool) {}
	if !r.waits {
		var err error
		if leave, err = e.lanes.enter(ctx, r.object, r.late); err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "docker: %s %s: not tried, too many requests are under way: %w", r.verb, r.object, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	err := call(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		_ = e.api.Close() // only the connections that rest: others may be as dead as the one that was used
	}
	leave(ctx.Err() == nil)
	return r.classify(err)
}

// fetch is do for requests with an answer.
func fetch[T any](ctx context.Context, e *Executor, r request, call func(context.Context) (T, error)) (T, error) {
	var answer T
	err := e.do(ctx, r, func(ctx context.Context) (err error) {
		answer, err = call(ctx)
		return err
	})
	return answer, err
}

// classify gives an error of the client its code. The cause stays visible to errors.Is.
func (r request) classify(err error) error {
	if err == nil {
		return nil
	}
	fail := func(code sandbox.Code, hint string) error {
		return sandbox.Errorf(code, "docker: %s %s: %w%s", r.verb, r.object, err, hint)
	}
	switch {
	case cerrdefs.IsNotFound(err):
		return fail(sandbox.NotFound, "")
	case cerrdefs.IsConflict(err):
		return fail(sandbox.Conflict, "")
	case cerrdefs.IsInvalidArgument(err):
		return fail(sandbox.Invalid, "")
	case cerrdefs.IsUnavailable(err):
		return fail(sandbox.Unavailable, "")
	case cerrdefs.IsInternal(err), cerrdefs.IsPermissionDenied(err), cerrdefs.IsUnauthorized(err), cerrdefs.IsNotImplemented(err):
		return sandbox.Errorf(sandbox.Failed, "docker: %s %s: %w", r.verb, r.object, err).WithReason(r.reason)
	case r.changes && wasSent(err):
		return fail(sandbox.UnknownOutcome, " (the answer was lost; retry)")
	default:
		return fail(sandbox.Unavailable, " (retry; is the engine running, and may this user reach it?)")
	}
}

// wasSent reports whether a request may have reached the engine before it failed.
func wasSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	return op != nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// await polls until a condition holds: the engine reports no end of some of its own work.
// Errors: those of done, and Timeout.
func await(ctx context.Context, what string, limit time.Duration, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	const first, last = 5 * time.Millisecond, 200 * time.Millisecond
	for pause := first; ; pause = min(2*pause, last) {
		ok, err := done(ctx)
		if ok || err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return sandbox.Errorf(sandbox.Timeout, "docker: wait until %s: %w", what, ctx.Err()).WithReason(sandbox.ReasonTimeout)
		}
	}
}
