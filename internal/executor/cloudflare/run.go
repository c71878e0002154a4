package cloudflare

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// maxLimit bounds a call of which nobody knows how long it takes: until then, at most, the sandbox is in use.
const maxLimit = 24 * time.Hour

// head is the first chunk of a run, as worker/src/helper.ts takes it.
type head struct {
	Args []string          `json:"args"`
	User string            `json:"user"` // "" is the sandbox's own
	Env  map[string]string `json:"env"`
	// Limit is after how many milliseconds it must have ended; until then the sandbox is in use.
	Limit int64 `json:"limit_ms"`
	// Detached: it keeps the sandbox in use when its caller leaves.
	Detached bool `json:"detached"`
	// Quiet: it is no use of the sandbox.
	Quiet bool `json:"quiet"`
}

func headOf(c helper.Call) (head, error) {
	args, err := c.Args()
	h := head{Args: args, User: c.User(), Env: c.Env(), Limit: min(cmp.Or(c.Limit, maxLimit), maxLimit).Milliseconds(), Detached: c.Detached, Quiet: c.Quiet}
	if h.Env == nil {
		h.Env = map[string]string{}
	}
	return h, err
}

// help runs the guest in a sandbox, as helper.Run has it.
func (w *Worker) help(ctx context.Context, h sandbox.Handle, call helper.Call) (wire.Result, error) {
	res, err := w.request(ctx, h, call)
	if err != nil && call.Ends {
		err = w.end(ctx, h, call, err)
	}
	return res, err
}

// end ends a command whose result will not come because of cause, which it returns.
func (w *Worker) end(ctx context.Context, h sandbox.Handle, call helper.Call, cause error) error {
	if code := sandbox.CodeOf(cause); code != sandbox.Timeout && code != sandbox.UnknownOutcome {
		return cause // it was not run
	}
	err := w.EndExec(context.WithoutCancel(ctx), h, call.Request.ID, call.User())
	switch sandbox.CodeOf(err) {
	case "", sandbox.NotFound, sandbox.Conflict: // it ended with its sandbox at the latest
		return cause
	default:
		return sandbox.Errorf(sandbox.UnknownOutcome, "%w; it may still run: %s", cause, err).WithReason(sandbox.ReasonExecFailed)
	}
}

// request makes the request of one run. When ctx ends first, or the connection breaks, what it runs may go on.
func (w *Worker) request(ctx context.Context, h sandbox.Handle, call helper.Call) (wire.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := onSandbox(h, http.MethodPost, "run", "run the guest")
	body, sent := io.Pipe()
	hangUp := func() { _ = body.Close() } // never fails
	defer hangUp()                        // the answer is complete, or nobody waits for it
	traced, stop := whenBroken(ctx, hangUp)
	defer stop()
	req, err := http.NewRequestWithContext(traced, r.method, w.base+r.path, body)
	if err != nil {
		return wire.Result{}, sandbox.Errorf(sandbox.Internal, "cloudflare: %s: %w", r.what, err)
	}
	signer := w.signer.pinned()
	chunks := &chunkWriter{w: sent, signer: signer, previous: signer.sign(req, contentChunks)}
	// A connection is not used again: what a run has not read of its input is in the way of the next request.
	// The end of the answer would wait for the end of the request, too.
	req.Close = true
	go func() { // ends with the input, or with the body
		if err := send(chunks, call); err != nil {
			_ = sent.CloseWithError(err) // never fails
		}
	}()
	res, err := w.answer(req, r, &wire.Demux{Stdout: call.Stdout, Stderr: call.Stderr, Begins: call.Begins})
	if err != nil && ctx.Err() != nil {
		err = sandbox.Errorf(sandbox.Timeout, "cloudflare: %s: ended before it was finished: %w", r.what, ctx.Err()).WithReason(sandbox.ReasonExecFailed)
	}
	return res, err
}

// send sends a call and its input. The body stays open after it: its end would say that the caller has left.
func send(chunks *chunkWriter, call helper.Call) error {
	h, err := headOf(call)
	if err != nil {
		return err
	}
	first, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := chunks.chunk(first); err != nil {
		return err
	}
	if call.Stdin != nil {
		if _, err := io.Copy(chunks, call.Stdin); err != nil {
			return err
		}
	}
	return chunks.End()
}

// answer passes a run's output on and returns its result.
func (w *Worker) answer(req *http.Request, r request, out *wire.Demux) (wire.Result, error) {
	answer, err := w.http.Do(req)
	if err != nil {
		return wire.Result{}, lost(r, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return wire.Result{}, refusal(r, answer)
	}
	_, err = io.Copy(out, answer.Body)
	if res, ok := out.Result(); ok {
		return res, nil
	}
	if err == nil {
		err = errors.New("the stream ended without a report")
	}
	return wire.Result{}, sandbox.Errorf(sandbox.UnknownOutcome, "cloudflare: %s: %w", r.what, err).WithReason(sandbox.ReasonExecFailed)
}
