package helper

import (
	"cmp"
	"context"
	"io"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// timeoutMargin is the guest's extra time, after a command's timeout, to kill it and to report.
	timeoutMargin = 20 * time.Second
	// KillLimit limits the killing of a command whose caller is gone.
	KillLimit = 30 * time.Second
)

// Exec implements driver.Runner. It may return before a Read of r.Stdin does.
func (g Guests) Exec(ctx context.Context, h driver.Handle, r sandbox.ExecRequest) (sandbox.ExecResult, error) {
	if r.As == sandbox.AsVerifier && !g.verifies {
		return sandbox.ExecResult{}, sandbox.InvalidFields("exec", []sandbox.Field{sandbox.VerifierField(g.backend)})
	}
	out, errOut := &Capture{Limit: r.OutputLimit}, &Capture{Limit: r.OutputLimit}
	id := cmp.Or(r.ID, newID())
	call := Call{
		Request: channel.Request{Op: opOf(r), ID: id, Exec: execOf(r)}, Limit: r.Timeout.D() + timeoutMargin,
		Ends: !r.Detach, Detached: r.Detach, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr,
	}
	if call.Stdout == nil {
		call.Stdout = out
	}
	if call.Stderr == nil {
		call.Stderr = errOut
	}
	limited, cancel := context.WithTimeout(ctx, call.Limit)
	defer cancel()
	res, err := g.onCommand(limited, h, id, call)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	result := resultOf(res)
	result.Stdout, result.Stderr, result.Truncated = out.Bytes(), errOut.Bytes(), out.Truncated || errOut.Truncated
	return result, nil
}

// opOf returns the operation of a command. A verifier has its own, so that guests without verifiers refuse
// it.
func opOf(r sandbox.ExecRequest) channel.Op {
	if r.As == sandbox.AsVerifier {
		return channel.OpVerify
	}
	return channel.OpExec
}

func execOf(r sandbox.ExecRequest) *channel.Exec {
	x := &channel.Exec{
		Args:    r.Command,
		Cwd:     r.Cwd,
		User:    withGroup(r.User),
		Env:     r.Env,
		Timeout: r.Timeout.D(),
		Stdin:   r.Stdin != nil,
	}
	if r.Shell != "" {
		x.Args, x.Shell = []string{r.Shell}, true
	}
	return x
}

// Follow implements driver.Runner.
func (g Guests) Follow(ctx context.Context, h driver.Handle, r sandbox.Replay) (sandbox.ExecResult, error) {
	reader, gone := io.Pipe() // the helper runs while its standard input is open
	defer gone.Close()
	res, err := g.onCommand(ctx, h, r.ID, Call{
		Request: channel.Request{Op: channel.OpFollow, ID: r.ID, Follow: &channel.Follow{
			StdoutOffset: r.StdoutOffset, StderrOffset: r.StderrOffset, Now: r.Now, Quiet: r.Stdout == nil && r.Stderr == nil,
		}},
		Stdin: reader, Stdout: r.Stdout, Stderr: r.Stderr, Begins: r.Begins,
	})
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	result := resultOf(res)
	result.Truncated = res.Dropped
	return result, nil
}

// EndExec implements driver.Runner. Only the process's own user may signal it.
func (g Guests) EndExec(ctx context.Context, h driver.Handle, id, user string) error {
	ctx, cancel := context.WithTimeout(ctx, KillLimit)
	defer cancel()
	_, err := g.onCommand(ctx, h, id, Call{
		Request: channel.Request{Op: channel.OpEnd, ID: id, Exec: &channel.Exec{User: withGroup(user)}},
		Limit:   KillLimit,
	})
	return err
}

// RunProcess implements driver.ProcessRunner. It lasts as long as the process; the caller sets the limit.
func (g Guests) RunProcess(ctx context.Context, h driver.Handle, p driver.ProcessRun) (sandbox.ExecResult, error) {
	res, err := g.onCommand(ctx, h, p.ID, Call{
		Request: channel.Request{Op: channel.OpProcess, ID: p.ID, Exec: &channel.Exec{
			Args: p.Command, Cwd: p.Cwd, User: withGroup(p.User), Env: p.Env,
		}},
		Detached: true, Quiet: true, Stdout: io.Discard, Stderr: io.Discard,
	})
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	result := resultOf(res)
	result.Truncated = res.Dropped
	return result, nil
}

// AwaitPort implements driver.ProcessRunner.
func (g Guests) AwaitPort(ctx context.Context, h driver.Handle, port int) error {
	waits, gone := io.Pipe() // the helper runs while its standard input is open
	defer gone.Close()
	_, err := g.onCommand(ctx, h, "port "+strconv.Itoa(port), Call{
		Request: channel.Request{Op: channel.OpPort, Port: port}, Stdin: waits, Stdout: io.Discard, Stderr: io.Discard,
	})
	if err != nil && ctx.Err() != nil { // in each phase of the call, because waiting changes nothing
		return sandbox.Errorf(sandbox.Timeout, "%s: sandbox %s: no program listened on port %d in time: %w",
			g.backend, h.SandboxID, port, ctx.Err())
	}
	return err
}

// Connect implements driver.ProcessRunner.
func (g Guests) Connect(ctx context.Context, h driver.Handle, port int, c driver.Connection) error {
	err := g.transfer(ctx, h, "connection to port "+strconv.Itoa(port), sandbox.ReasonConnectionFailed, Call{
		Request: channel.Request{Op: channel.OpConnect, Port: port}, Stdin: c.From, Stdout: c.To,
		Begins: func(int64) error {
			c.Opened()
			return nil
		},
	})
	if err != nil && ctx.Err() != nil { // in each phase of the call, because it is not repeated
		return sandbox.Errorf(sandbox.Timeout, "%s: sandbox %s: the connection to port %d was given up: %w",
			g.backend, h.SandboxID, port, context.Cause(ctx))
	}
	return err
}
