package fake

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// Exec implements sandbox.Executor.
func (x *Executor) Exec(ctx context.Context, h sandbox.Handle, r sandbox.ExecRequest) (sandbox.ExecResult, error) {
	if err := x.awake(ctx, OpExec, h); err != nil {
		return sandbox.ExecResult{}, err
	}
	began := x.now()
	out, code, err := x.command(ctx, r)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	res := sandbox.ExecResult{ExitCode: code, Duration: sandbox.Duration(x.now().Sub(began)), TimedOut: code == sandbox.ExitTimeout}
	if len(out) > r.OutputLimit && r.Stdout == nil {
		out, res.Truncated = out[:r.OutputLimit], true
	}
	if r.Stdout == nil {
		res.Stdout = out
		return res, nil
	}
	_, err = r.Stdout.Write(out)
	return res, err
}

func (x *Executor) command(ctx context.Context, r sandbox.ExecRequest) ([]byte, int, error) {
	args := r.Command[1:]
	switch r.Command[0] {
	case "echo":
		return []byte(strings.Join(args, " ") + "\n"), 0, nil
	case "cat":
		if r.Stdin == nil {
			return nil, 0, nil
		}
		b, err := io.ReadAll(r.Stdin)
		return b, 0, err
	case "exit":
		n, err := strconv.Atoi(args[0])
		return nil, n, err
	case "sleep":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return nil, 0, err
		}
		limit := r.Timeout.D()
		select {
		case <-time.After(min(d, limit)):
		case <-ctx.Done():
			return nil, 0, sandbox.Errorf(sandbox.UnknownOutcome, "exec: %w", ctx.Err())
		}
		if d > limit {
			return nil, sandbox.ExitTimeout, nil
		}
		return nil, 0, nil
	default:
		return nil, 127, nil
	}
}

// awake refuses what needs a sandbox that runs.
func (x *Executor) awake(ctx context.Context, op Op, h sandbox.Handle) error {
	if err := x.enter(ctx, op, h.Instance); err != nil {
		return err
	}
	defer x.mu.Unlock()
	b, ok := x.boxes[h.SandboxID]
	if !ok {
		return notFound(h)
	}
	if b.obs.State != sandbox.StateRunning {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is %s", h.SandboxID, b.obs.State).WithReason(sandbox.ReasonInvalidState)
	}
	return nil
}
