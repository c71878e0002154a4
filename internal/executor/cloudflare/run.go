package cloudflare

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// helperCall is one run of the guest in a container. Its JSON form is what worker/src/helper.ts takes.
type helperCall struct {
	Args []string          `json:"args"`
	User string            `json:"user"` // "" is the sandbox's own
	Env  map[string]string `json:"env"`
	// Limit is after how many milliseconds it must have ended; until then the sandbox is in use.
	Limit int64 `json:"limit_ms"`
	// Detached: it keeps the sandbox in use when its caller leaves.
	Detached bool `json:"detached"`

	stdin          io.Reader
	stdout, stderr io.Writer
	begins         func(offset int64) error // as sandbox.Replay has it
}

// help runs the guest in a sandbox and returns what it reports. When ctx ends first, or the connection breaks,
// what it runs may go on. It may return before a Read of the input does. Errors: NotFound, Conflict with
// ReasonInvalidState, Unavailable, UnknownOutcome, Timeout when ctx ended.
func (w *Worker) help(ctx context.Context, h sandbox.Handle, call helperCall) (wire.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := onSandbox(h, http.MethodPost, "run", "run the guest")
	body, sent := io.Pipe()
	defer body.Close() // the answer is complete, or nobody waits for it
	req, err := http.NewRequestWithContext(ctx, r.method, w.base+r.path, body)
	if err != nil {
		return wire.Result{}, sandbox.Errorf(sandbox.Internal, "cloudflare: %s: %w", r.what, err)
	}
	chunks := &chunkWriter{w: sent, signer: w.signer, previous: w.signer.sign(req, contentChunks)}
	// A connection is not used again: what a run has not read of its input is in the way of the next request.
	// The end of the answer would wait for the end of the request, too.
	req.Close = true
	go func() { // ends with the input, or with the body
		if err := call.send(chunks); err != nil {
			_ = sent.CloseWithError(err) // never fails
		}
	}()
	res, err := w.answer(req, r, &wire.Demux{Stdout: call.stdout, Stderr: call.stderr, Begins: call.begins})
	if err != nil && ctx.Err() != nil {
		err = sandbox.Errorf(sandbox.Timeout, "cloudflare: %s: ended before it was finished: %w", r.what, ctx.Err()).WithReason(sandbox.ReasonExecFailed)
	}
	return res, err
}

// send sends the call and its input. The body stays open after it: its end would say that the caller has left.
func (c helperCall) send(chunks *chunkWriter) error {
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	head, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := chunks.chunk(head); err != nil {
		return err
	}
	if c.stdin != nil {
		if _, err := io.Copy(chunks, c.stdin); err != nil {
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
