package service

import (
	"context"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Execs manages commands. Each has a record, which is there before the command runs; any reconciler that runs the
// service and dies, the command goes on, and the next one follows it to its end.
type Execs interface {
	// StartExec wakes the sandbox and starts a command that goes on when its caller does not: its
	// timeout, CancelExec and the end of its lease end it. It is activity of its lease while it runs, as
	// every command is. With an ID, it may be repeated. Errors: as Exec.
	StartExec(ctx context.Context, r sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.Exec, error)
	// GetExec returns a command. Errors: NotFound with ReasonExecNotFound, also once it is retired with
	// its sandbox.
	GetExec(ctx context.Context, r sandbox.ExecRef) (sandbox.Exec, error)
	// ListExecs returns the commands of a lease in all its generations, the latest first. Errors: NotFound.
	ListExecs(ctx context.Context, f sandbox.ExecFilter) ([]sandbox.Exec, error)
	// CancelExec ends a command and all it started, and waits until that is known. One that has ended is
	// returned as it ended. Errors: NotFound; Unavailable and others of Executor.EndExec: cancel again.
	CancelExec(ctx context.Context, r sandbox.ExecRef) (sandbox.Exec, error)
	// ReadExec returns what a command wrote, up to MaxKeptOutput, while it runs and as long as its record
	// is kept. Errors: NotFound, Invalid; OutputExpired once newer output took its room; Unavailable when neither sandbox nor store can be reached.
	ReadExec(ctx context.Context, o sandbox.OutputRequest) (io.ReadCloser, error)
}
