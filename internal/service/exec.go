package service

import (
	"context"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Execs runs and manages commands. Each has a record, which exists before the command runs. The command survives the
// death of the reconciler; the next one follows it to its end.
type Execs interface {
	// Exec wakes the sandbox and runs a command. It counts as activity while it runs, and at its end if it
	// exits 0. If ctx ends first, the command ends. With an ID the call may be repeated: the same request
	// with the same id is the same command, and returns its output and result again; Stdin is that of the
	// first call. Errors: NotFound, LeaseEnded, Conflict (generation; ReasonOtherSettings if the id names
	// another command), Invalid, Failed (ReasonExecCancelled: it was cancelled); UnknownOutcome if it may
	// have run, or has run and the ledger could not record it.
	Exec(ctx context.Context, r sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.ExecResult, error)
	// StartExec wakes the sandbox and starts a command that outlives its caller. Its timeout, CancelExec or
	// the end of its lease end it. Like every command, it counts as activity while it runs. With an ID, the
	// call may be repeated. Errors: as Exec.
	StartExec(ctx context.Context, r sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.Exec, error)
	// GetExec returns a command. Errors: NotFound with ReasonExecNotFound, also after the command was purged
	// with its sandbox.
	GetExec(ctx context.Context, r sandbox.ExecRef) (sandbox.Exec, error)
	// ListExecs returns the commands of a lease in all generations, newest first. Errors: NotFound.
	ListExecs(ctx context.Context, f sandbox.ExecFilter) ([]sandbox.Exec, error)
	// CancelExec ends a command and everything that it started, and waits for confirmation. A command that
	// has ended is returned unchanged. Errors: NotFound; Unavailable and others of Executor.EndExec: cancel
	// again.
	CancelExec(ctx context.Context, r sandbox.ExecRef) (sandbox.Exec, error)
	// ReadExec returns a command's output, up to MaxKeptOutput, while it runs and as long as its record
	// exists. Errors: NotFound, Invalid; OutputExpired after it was deleted to make room for newer output;
	// Unavailable if neither sandbox nor store can be reached.
	ReadExec(ctx context.Context, o sandbox.OutputRequest) (io.ReadCloser, error)
}
