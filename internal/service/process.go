package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Processes manages processes. They and their logs outlive the program that runs the service.
type Processes interface {
	// StartProcess wakes the sandbox and starts a process. One that runs under that name with the same
	// settings is returned as it is; one that has ended makes room for it. Errors: as Exec; Conflict with
	// ReasonOtherSettings, naming the fields; CapacityExceeded beyond MaxProcesses.
	StartProcess(ctx context.Context, r sandbox.LeaseRef, p sandbox.ProcessSpec) (sandbox.Process, error)
	// GetProcess returns a process. Errors: NotFound with ReasonProcessNotFound.
	GetProcess(ctx context.Context, r sandbox.ProcessRef) (sandbox.Process, error)
	// ListProcesses returns the processes of a lease's current generation, by name. Errors: NotFound.
	ListProcesses(ctx context.Context, leaseID string) ([]sandbox.Process, error)
	// WaitProcess wakes the sandbox and keeps it awake until the process has come to where it is waited for.
	// Errors: as Exec; NotFound; Timeout; Conflict with ReasonProcessEnded when it ended before.
	WaitProcess(ctx context.Context, w sandbox.ProcessWait) (sandbox.ProcessWaited, error)
	// ReadProcess reads a log, of a process that has ended too while its sandbox has not been stopped since.
	// It wakes the sandbox and keeps it awake. A reader that is so slow that what it wants next is no longer
	// kept gets an error (Unavailable) and reads on from the oldest byte. Errors: as Exec; NotFound.
	ReadProcess(ctx context.Context, r sandbox.LogRequest) (sandbox.ProcessLog, error)
	// KillProcess ends a process and all it started, and waits until that is known; it is not started
	// again. One that has ended is returned as it ended. Errors: NotFound; those of Executor.EndExec.
	KillProcess(ctx context.Context, r sandbox.ProcessRef) (sandbox.Process, error)
}
