package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Runs runs commands in new sandboxes.
type Runs interface {
	// Run creates a sandbox, runs one command in it, collects the result files, and destroys the sandbox. It
	// destroys the sandbox in every case: a failed command, a disconnected caller, a failed start, a panic.
	// If this process dies, the lease's limits end the sandbox (see RunRequest.Margin). Errors: as Acquire
	// and Exec; Conflict with ReasonOtherOwner if the agent already has a lease; Invalid if the environment
	// keeps snapshots per agent and no agent is named. An error after the command began is UnknownOutcome, or
	// what Files and Collected returned.
	Run(ctx context.Context, r sandbox.RunRequest) (sandbox.RunResult, error)
}
