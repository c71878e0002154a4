package driver

import (
	"context"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ProcessRun is one start of a process.
type ProcessRun struct {
	// ID names the start, as an ExecRequest's ID names a command.
	ID      string
	Command []string
	Env     map[string]string
	Cwd     string
	User    string
}

// ProcessRunner runs processes in an awake sandbox. Runner.Follow and Runner.EndExec work on processes too,
// by id.
type ProcessRunner interface {
	// RunProcess starts a process and returns when it and everything that it started have ended. The result contains no
	// output. The process continues if ctx ends first or this program dies; use Follow then. Stdout and stderr are merged.
	// Follow returns them as Stdout: the latest MaxProcessLog bytes, with Truncated set if there was more. Errors: as for
	// Exec.
	RunProcess(ctx context.Context, h Handle, p ProcessRun) (sandbox.ExecResult, error)
	// AwaitPort returns once a TCP port on the sandbox's 127.0.0.1 accepts a connection. Errors: as for Follow; Timeout if
	// ctx ends first.
	AwaitPort(ctx context.Context, h Handle, port int) error
	// Connect connects to a TCP port on the sandbox's 127.0.0.1 as soon as a program listens there. It passes bytes on
	// until the program closes its side or ctx ends. Errors: as for AwaitPort; Failed with ReasonConnectionFailed if the
	// connection breaks.
	Connect(ctx context.Context, h Handle, port int, c Connection) error
}

// Connection is the caller's side of a connection to a program in a sandbox.
type Connection struct {
	// Opened is called once the program's side is open, at most once.
	Opened func()
	// From has the bytes for the program. Its end closes that direction only. A Read may outlast Connect.
	From io.Reader
	To   io.Writer
}
