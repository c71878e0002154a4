package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Runs runs commands in sandboxes of their own.
type Runs interface {
	// Run makes a sandbox, runs one command in it, collects what it left, and destroys the sandbox,
	// whatever happens: a command that fails, a caller that goes away, a sandbox that does not start,
	// a panic. When this process dies, the lease's times end it (see RunRequest.Margin).
	// Errors: as Acquire and Exec; Conflict with ReasonOtherOwner when the agent has a lease already;
	// Invalid when the environment keeps a state for each agent and none is named. An error after
	// the command began is UnknownOutcome, or what Files and Collected returned.
	Run(ctx context.Context, r sandbox.RunRequest) (sandbox.RunResult, error)
}
