package driver

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ProcessRun asks a backend for one start of a process.
type ProcessRun struct {
	// ID names the start, as an ExecRequest's ID names a command.
	ID      string
	Command []string
	Env     map[string]string
	Cwd     string
	User    string
}

// ProcessRunner runs processes inside a sandbox that is awake. What Runner.Follow and Runner.EndExec do to a
// command by its id, they do to a process.
type ProcessRunner interface {
	// RunProcess starts a process and returns when it has ended, with all it started; nothing of what it
	// writes comes with the result. When ctx ends first, or this program dies, it goes on: Follow it. Both
	// its streams are one, which Follow gives as Stdout: the latest MaxProcessLog bytes, and Truncated says
	// that there was more. Errors: as Exec.
	RunProcess(ctx context.Context, h Handle, p ProcessRun) (sandbox.ExecResult, error)
	// AwaitPort returns once a TCP port of the sandbox's 127.0.0.1 accepts a connection. Errors: as Follow;
	// Timeout when ctx ends first.
	AwaitPort(ctx context.Context, h Handle, port int) error
}
