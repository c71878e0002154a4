package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Exec implements service.Execs. It does not retry: a lost response is UnknownOutcome. With an ID, the caller may
// repeat the call. The transport reads Stdin in a goroutine that ends when its Read returns, as in os/exec.
func (c *Client) Exec(ctx context.Context, r sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	if err := req.CheckAttached(); err != nil {
		return sandbox.ExecResult{}, err
	}
	path, err := runPath(r, req.Session)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	body := wire.ExecRequest{
		ID:          req.ID,
		Command:     req.Command,
		Shell:       req.Shell,
		Source:      req.Source,
		Env:         req.Env,
		Cwd:         req.Cwd,
		User:        req.User,
		As:          req.As,
		Timeout:     req.Timeout,
		OutputLimit: req.OutputLimit,
	}
	running := running(req.Timeout)
	if req.Stdin == nil && req.Stdout == nil && req.Stderr == nil {
		var result wire.ExecResult
		if err := c.call(ctx,
			request{method: http.MethodPost, path: path, body: body, slow: true, longer: running, once: true},
			&result); err != nil {
			return sandbox.ExecResult{}, err
		}
		return c.result(path, result)
	}
	first, err := json.Marshal(body)
	if err != nil {
		return sandbox.ExecResult{}, sandbox.Errorf(sandbox.Invalid, "lease %s: exec: %w", r, err)
	}
	stream, contentType := io.Reader(bytes.NewReader(first)), wire.JSON
	if req.Stdin != nil {
		contentType = wire.NDJSON
		if stream, err = withInput(append(first, '\n'), req.Stdin); err != nil {
			return sandbox.ExecResult{}, sandbox.Errorf(sandbox.Invalid, "lease %s: exec: reading stdin: %w", r, err)
		}
	}
	resp, err := c.send(ctx, c.slow+running, http.MethodPost, path, contentType, wire.NDJSON, stream)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	defer func() { _ = resp.Body.Close() }() // cancels the command if it still runs
	out := newOutputs(req)
	wired, err := readOutput[wire.ExecResult](c, path, resp, out)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	result, err := c.result(path, wired)
	return out.collected(result), err
}

// running returns how long a command may run. Without a timeout, the environment's applies, which this program does not
// know.
func running(timeout sandbox.Duration) time.Duration {
	if timeout <= 0 {
		timeout = sandbox.MaxExecTimeout
	}
	return timeout.D()
}

// runPath is the path for running a command, in a session unless session is "".
func runPath(r sandbox.LeaseRef, session string) (path string, err error) {
	if session == "" {
		path, err = leasePath(r.ID)
	} else {
		path, err = sessionPath(sandbox.SessionRef{LeaseID: r.ID, ID: session})
	}
	return path + "/exec" + fence(r), err
}

func (c *Client) result(path string, w wire.ExecResult) (sandbox.ExecResult, error) {
	result, err := w.Result()
	if err != nil {
		return result, c.lost(http.MethodPost, path, false, err)
	}
	return result, nil
}
