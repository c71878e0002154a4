package helper

import (
	"cmp"
	"context"
	"io"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

const (
	// timeoutMargin is what a guest gets beyond a command's own timeout to kill it and to report.
	timeoutMargin = 20 * time.Second
	// KillLimit bounds the killing of a command that nobody waits for any more.
	KillLimit = 30 * time.Second
)

// Exec implements sandbox.Runner. It may return before a Read of r.Stdin does.
func (g Guests) Exec(ctx context.Context, h sandbox.Handle, r sandbox.ExecRequest) (sandbox.ExecResult, error) {
	out, errOut := &Capture{Limit: r.OutputLimit}, &Capture{Limit: r.OutputLimit}
	id := cmp.Or(r.ID, sandbox.RandomIDs(sandbox.SandboxIDLength))
	call := Call{
		Args: execArgs(id, r), User: r.User, Env: r.Env, Limit: r.Timeout.D() + timeoutMargin, Detached: r.Detach,
		Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr,
	}
	if !r.Detach {
		call.ID = id
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

func execArgs(id string, r sandbox.ExecRequest) []string {
	args := []string{"exec", "-id", id, "-timeout", r.Timeout.String(), "-cwd", r.Cwd}
	if r.Shell != "" {
		return append(args, "-shell", "--", r.Shell)
	}
	return append(append(args, "--"), r.Command...)
}

// Follow implements sandbox.Runner.
func (g Guests) Follow(ctx context.Context, h sandbox.Handle, r sandbox.Replay) (sandbox.ExecResult, error) {
	reader, gone := io.Pipe() // the helper reads while its standard input is open
	defer gone.Close()
	res, err := g.onCommand(ctx, h, r.ID, Call{
		Args: []string{"follow", "-id", r.ID, "-now=" + strconv.FormatBool(r.Now), "-quiet=" + strconv.FormatBool(r.Stdout == nil && r.Stderr == nil),
			"-stdout", strconv.FormatInt(r.StdoutOffset, 10), "-stderr", strconv.FormatInt(r.StderrOffset, 10)},
		Stdin: reader, Stdout: r.Stdout, Stderr: r.Stderr, Begins: r.Begins,
	})
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	result := resultOf(res)
	result.Truncated = res.Dropped
	return result, nil
}

// EndExec implements sandbox.Runner. A process may be signalled by its own user only.
func (g Guests) EndExec(ctx context.Context, h sandbox.Handle, id, user string) error {
	ctx, cancel := context.WithTimeout(ctx, KillLimit)
	defer cancel()
	_, err := g.onCommand(ctx, h, id, Call{Args: []string{"kill", "-id", id}, User: user, Limit: KillLimit})
	return err
}

// RunProcess implements sandbox.ProcessRunner. It lasts as long as the process: its caller bounds it.
func (g Guests) RunProcess(ctx context.Context, h sandbox.Handle, p sandbox.ProcessRun) (sandbox.ExecResult, error) {
	res, err := g.onCommand(ctx, h, p.ID, Call{
		Args: append([]string{"exec", "-id", p.ID, "-process", "-cwd", p.Cwd, "--"}, p.Command...), Detached: true, Quiet: true,
		User: p.User, Env: p.Env, Stdout: io.Discard, Stderr: io.Discard,
	})
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	result := resultOf(res)
	result.Truncated = res.Dropped
	return result, nil
}

// AwaitPort implements sandbox.ProcessRunner.
func (g Guests) AwaitPort(ctx context.Context, h sandbox.Handle, port int) error {
	waits, gone := io.Pipe() // the helper waits while its standard input is open
	defer gone.Close()
	name := strconv.Itoa(port)
	_, err := g.onCommand(ctx, h, "port "+name, Call{Args: []string{"port", "-port", name}, Stdin: waits, Stdout: io.Discard, Stderr: io.Discard})
	if err != nil && ctx.Err() != nil { // wherever in the call that was: to wait changes nothing
		return sandbox.Errorf(sandbox.Timeout, "%s: sandbox %s: nobody listened to port %d in time: %w", g.backend, h.SandboxID, port, ctx.Err())
	}
	return err
}
