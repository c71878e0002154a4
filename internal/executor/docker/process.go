package docker

import (
	"context"
	"io"
	"strconv"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// RunProcess implements sandbox.ProcessRunner. It lasts as long as the process: its caller bounds it.
func (e *Executor) RunProcess(ctx context.Context, h sandbox.Handle, p sandbox.ProcessRun) (sandbox.ExecResult, error) {
	res, err := e.help(ctx, h, helperCall{
		args: append([]string{"exec", "-id", p.ID, "-process", "-cwd", p.Cwd, "--"}, p.Command...),
		user: p.User, env: assignments(p.Env), stdout: io.Discard, stderr: io.Discard,
	})
	if err == nil {
		err = reported(h, p.ID, res)
	}
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	result := resultOf(res)
	result.Truncated = res.Dropped
	return result, nil
}

// AwaitPort implements sandbox.ProcessRunner.
func (e *Executor) AwaitPort(ctx context.Context, h sandbox.Handle, port int) error {
	waits, gone := io.Pipe() // the helper waits while its standard input is open
	defer gone.Close()
	name := strconv.Itoa(port)
	res, err := e.help(ctx, h, helperCall{args: []string{"port", "-port", name}, stdin: waits, stdout: io.Discard, stderr: io.Discard})
	if err != nil {
		return err
	}
	return reported(h, "port "+name, res)
}
