package cloudflare

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

const (
	// timeoutMargin is what a guest gets beyond a command's own timeout to kill it and to report.
	timeoutMargin = 20 * time.Second
	// killLimit bounds the killing of a command that nobody waits for any more.
	killLimit = 30 * time.Second
)

// Exec runs a normalized request, as sandbox.Runner has it: when ctx ends first, or the connection breaks, the
// command and all it started are ended too, unless it is detached.
func (w *Worker) Exec(ctx context.Context, h sandbox.Handle, r sandbox.ExecRequest) (sandbox.ExecResult, error) {
	out, errOut := &capture{limit: r.OutputLimit}, &capture{limit: r.OutputLimit}
	id := cmp.Or(r.ID, sandbox.RandomIDs(sandbox.SandboxIDLength))
	limit := r.Timeout.D() + timeoutMargin
	call := helperCall{
		Args: guest.ExecArgs(id, r),
		User: r.User, Env: r.Env, Limit: limit.Milliseconds(), Detached: r.Detach,
		stdin: r.Stdin, stdout: r.Stdout, stderr: r.Stderr,
	}
	if call.stdout == nil {
		call.stdout = out
	}
	if call.stderr == nil {
		call.stderr = errOut
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	res, err := w.help(limited, h, call)
	if err != nil {
		if !r.Detach {
			err = w.end(ctx, h, id, r.User, err)
		}
		return sandbox.ExecResult{}, err
	}
	if err := reported(h, id, res); err != nil {
		return sandbox.ExecResult{}, err
	}
	result := resultOf(res)
	result.Stdout, result.Stderr, result.Truncated = out.Bytes(), errOut.Bytes(), out.truncated || errOut.truncated
	return result, nil
}

func resultOf(res wire.Result) sandbox.ExecResult {
	return sandbox.ExecResult{
		ExitCode: res.ExitCode, Duration: sandbox.Duration(res.Duration), TimedOut: res.TimedOut, OOMKilled: res.OOMKilled,
		StdoutBytes: res.StdoutBytes, StderrBytes: res.StderrBytes, Shell: (*sandbox.ShellState)(res.Shell),
	}
}

// followLimit bounds one Follow: no command runs for longer.
const followLimit = 24 * time.Hour

// Follow replays a command's output and goes on to its end, as sandbox.Runner has it. It keeps the sandbox in
// use.
func (w *Worker) Follow(ctx context.Context, h sandbox.Handle, r sandbox.Replay) (sandbox.ExecResult, error) {
	reader, gone := io.Pipe() // the helper reads while its standard input is open
	defer gone.Close()
	res, err := w.help(ctx, h, helperCall{
		Args: []string{"follow", "-id", r.ID, "-now=" + strconv.FormatBool(r.Now), "-quiet=" + strconv.FormatBool(r.Stdout == nil && r.Stderr == nil),
			"-stdout", strconv.FormatInt(r.StdoutOffset, 10), "-stderr", strconv.FormatInt(r.StderrOffset, 10)},
		Limit: followLimit.Milliseconds(), stdin: reader, stdout: r.Stdout, stderr: r.Stderr, begins: r.Begins,
	})
	if err == nil {
		err = reported(h, r.ID, res)
	}
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	result := resultOf(res)
	result.Truncated = res.Dropped
	return result, nil
}

// EndExec ends a command that was run by a user, and all it started, as sandbox.Runner has it.
func (w *Worker) EndExec(ctx context.Context, h sandbox.Handle, id, user string) error {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	res, err := w.help(ctx, h, helperCall{Args: []string{"kill", "-id", id}, User: user, Limit: killLimit.Milliseconds()})
	if err != nil {
		return err
	}
	return reported(h, id, res)
}

// end ends a command whose result will not come because of cause, which it returns.
func (w *Worker) end(ctx context.Context, h sandbox.Handle, id, user string, cause error) error {
	if code := sandbox.CodeOf(cause); code != sandbox.Timeout && code != sandbox.UnknownOutcome {
		return cause // it was not run
	}
	err := w.EndExec(context.WithoutCancel(ctx), h, id, user)
	switch sandbox.CodeOf(err) {
	case "", sandbox.NotFound, sandbox.Conflict: // it ended with its sandbox at the latest
		return cause
	default:
		return sandbox.Errorf(sandbox.UnknownOutcome, "%w; it may still run: %s", cause, err).WithReason(sandbox.ReasonExecFailed)
	}
}

// reported turns a helper's report that it could not do its work on a command into an error.
func reported(h sandbox.Handle, id string, res wire.Result) error {
	code, reason := sandbox.Failed, sandbox.ReasonExecFailed
	switch res.Problem {
	case "":
		return nil
	case wire.ProblemNotFound:
		code, reason = sandbox.NotFound, sandbox.ReasonExecNotFound
	case wire.ProblemConflict:
		code, reason = sandbox.Conflict, sandbox.ReasonOtherSettings
	}
	return sandbox.Errorf(code, "cloudflare: sandbox %s: command %s: %s", h.SandboxID, id, res.Message).WithReason(reason)
}

// capture keeps the first bytes of a stream and lets the rest go by.
type capture struct {
	bytes.Buffer
	limit     int
	truncated bool
}

func (c *capture) Write(p []byte) (int, error) {
	room := max(c.limit-c.Len(), 0)
	if len(p) > room {
		c.truncated = true
	}
	_, _ = c.Buffer.Write(p[:min(room, len(p))]) // memory does not fail
	return len(p), nil
}
