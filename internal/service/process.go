package service

import (
	"context"
	"net"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Processes manages processes. They and their logs outlive the program that runs the service.
type Processes interface {
	// StartProcess wakes the sandbox and starts a process. A running process with the same name and settings
	// is returned unchanged; one that has ended is replaced. Errors: as Exec; Conflict with
	// ReasonOtherSettings, naming the fields; CapacityExceeded beyond MaxProcesses.
	StartProcess(ctx context.Context, r sandbox.LeaseRef, p sandbox.ProcessSpec) (sandbox.Process, error)
	// GetProcess returns a process. Errors: NotFound with ReasonProcessNotFound.
	GetProcess(ctx context.Context, r sandbox.ProcessRef) (sandbox.Process, error)
	// ListProcesses returns the processes of a lease's current generation, by name. Errors: NotFound.
	ListProcesses(ctx context.Context, leaseID string) ([]sandbox.Process, error)
	// WaitProcess wakes the sandbox and keeps it awake until the process meets the condition. Errors: as
	// Exec; NotFound; Timeout; Conflict with ReasonProcessEnded if it ended first.
	WaitProcess(ctx context.Context, w sandbox.ProcessWait) (sandbox.ProcessWaited, error)
	// ReadProcess reads a log, also of an ended process if its sandbox has not been stopped since. It wakes
	// the sandbox and keeps it awake. If a slow reader falls behind what is kept, it gets Unavailable and
	// continues at the oldest byte. Errors: as Exec; NotFound.
	ReadProcess(ctx context.Context, r sandbox.LogRequest) (sandbox.ProcessLog, error)
	// KillProcess ends a process and everything that it started, and waits for confirmation. The process does
	// not restart. One that has ended is returned unchanged. Errors: NotFound; those of Executor.EndExec.
	KillProcess(ctx context.Context, r sandbox.ProcessRef) (sandbox.Process, error)
	// Agents returns the agents of leases that have not ended, by lease id and name. It wakes no sandbox.
	// Errors: Invalid.
	Agents(ctx context.Context, f sandbox.AgentFilter) ([]sandbox.Agent, error)
}

// Companions reads from companions.
type Companions interface {
	// ReadCompanion reads the log of a companion's program since its latest start, as ReadProcess. Once the program has
	// ended, only the last 4 KiB are kept, and their offset is 0. Errors: as ReadProcess; NotFound with
	// ReasonCompanionNotFound.
	ReadCompanion(ctx context.Context, r sandbox.CompanionLogRequest) (sandbox.ProcessLog, error)
}

// Connector connects to agents.
type Connector interface {
	// Connect wakes the sandbox of an agent, waits up to AgentStart until the agent accepts a connection, and
	// returns it. The connection is a use of the sandbox: it keeps the sandbox awake until it is closed, which
	// the caller must do. It breaks when the sandbox or the service ends. Errors: as Exec; NotFound with
	// ReasonProcessNotFound; Conflict with ReasonProcessEnded; CapacityExceeded beyond MaxConnections; Timeout.
	Connect(ctx context.Context, r sandbox.ProcessRef) (net.Conn, error)
}
