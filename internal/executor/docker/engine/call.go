package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Deadlines of one request to the engine. They only matter for an engine that hangs. Under load a start can take
// seconds.
const (
	ReadLimit = 15 * time.Second
	// ListedLimit limits the inspection of each container of a list, which takes under a millisecond.
	ListedLimit = 5 * time.Second
	ChangeLimit = 60 * time.Second
	ImportLimit = 10 * time.Minute
)

// Request describes one request to the engine, for its deadline and its errors.
type Request struct {
	verb, object string
	Limit        time.Duration
	// changes means that the outcome is unknown if the answer is lost.
	changes bool
	// Reason is the reason of errors that the engine returns.
	Reason sandbox.Reason
	// Waits means that the engine mainly waits for the sandbox or a registry, so the request needs no slot.
	Waits bool
	// once forbids a retry after an internal error of the engine, which may have carried out the request.
	once bool
	// Late means that no caller waits for the request, so that others go first.
	Late bool
}

// Read is a request that changes nothing.
func Read(verb, object string) Request {
	return Request{verb: verb, object: object, Limit: ReadLimit}
}

// Change is a request that changes an object. reason is the reason of errors that the engine returns.
func Change(verb, object string, reason sandbox.Reason) Request {
	return Request{verb: verb, object: object, Limit: ChangeLimit, changes: true, Reason: reason}
}

// An engine answers 500 to both transient and permanent failures. So such a request is retried a few times before it
// fails.
const (
	tries      = 3
	firstPause = 100 * time.Millisecond
	pauseGrows = 5 // factor after each attempt
)

// Do makes one request, retries it after internal errors of the engine, and classifies its error. call must be
// idempotent unless r.once.
func (e *Engine) Do(ctx context.Context, r Request, call func(context.Context) error) error {
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

// withFirst adds the engine's first error if the last one differs. A later attempt may fail only because of what the
// first left behind. The comparison of texts only avoids a repetition.
func withFirst(err, first error) error {
	if err == nil || first == nil || err.Error() == first.Error() {
		return err
	}
	return sandbox.Errorf(sandbox.CodeOf(err), "%w; at first: %w", err, first).WithReason(sandbox.ReasonOf(err))
}

// try makes a request once, in a slot and with its deadline.
func (e *Engine) try(ctx context.Context, r Request, call func(context.Context) error) error {
	leave := func(bool) {}
	if !r.Waits {
		var err error
		if leave, err = e.slots.enter(ctx, r.object, r.Late); err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "docker: %s %s: not sent, because too many requests are in progress: %w",
				r.verb, r.object, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	err := call(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		_ = e.API.Close() // closes only idle connections: they may be as dead as the used one
	}
	leave(ctx.Err() == nil)
	return r.Classify(err)
}

// Fetch is Do for requests with an answer.
func Fetch[T any](ctx context.Context, e *Engine, r Request, call func(context.Context) (T, error)) (T, error) {
	var answer T
	err := e.Do(ctx, r, func(ctx context.Context) (err error) {
		answer, err = call(ctx)
		return err
	})
	return answer, err
}

// Classify gives a client error a code. errors.Is still finds the cause.
func (r Request) Classify(err error) error {
	if err == nil {
		return nil
	}
	fail := func(code sandbox.Code, hint string) error {
		return sandbox.Errorf(code, "docker: %s %s: %w%s", r.verb, r.object, dockerapi.Explain(err), hint)
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
	case cerrdefs.IsInternal(err), cerrdefs.IsPermissionDenied(err), cerrdefs.IsUnauthorized(err),
		cerrdefs.IsNotImplemented(err):
		return sandbox.Errorf(sandbox.Failed, "docker: %s %s: %w", r.verb, r.object, err).WithReason(r.Reason)
	case dockerapi.IsUnreachable(err):
		return fail(sandbox.Unavailable, "")
	case r.changes && wasSent(err):
		return fail(sandbox.UnknownOutcome, " (the answer was lost; retry)")
	default:
		return fail(sandbox.Unavailable, " (retry; the engine may be down or overloaded)")
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

// Await polls until a condition holds, for work of the engine that sends no notification. Errors: from done; Timeout.
func Await(ctx context.Context, what string, limit time.Duration, done func(context.Context) (bool, error)) error {
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
			return sandbox.Errorf(sandbox.Timeout, "docker: wait until %s: %w", what, ctx.Err()).
				WithReason(sandbox.ReasonTimeout)
		}
	}
}
