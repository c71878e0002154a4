package driver

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CompanionMain is the id of the command that runs a companion's program. The companion stops when it ends.
const CompanionMain = "main"

// Of returns the handle of a companion of a sandbox. ProcessRunner, Runner and SecretWriter accept it like a sandbox's
// handle.
func (h Handle) Of(companion string) Handle {
	h.Companion = companion
	return h
}

// Sandbox returns the handle of the sandbox itself.
func (h Handle) Sandbox() Handle { return h.Of("") }

// CompanionObservation is what a backend reports about a companion.
type CompanionObservation struct {
	State     sandbox.State
	Resources sandbox.Resources
	// ExitCode is the program's exit code. OOMKilled means that the program ran out of memory. Both are set once it has
	// stopped.
	ExitCode  int
	OOMKilled bool
	StartedAt time.Time
	StoppedAt time.Time
	// Output is the end of the program's output, once it has stopped. List omits it.
	Output string
}

// CompanionHost is implemented by an Executor whose sandboxes can have companions. Spawn creates the companions of a
// spec with the sandbox. Sleep, Wake and Kill apply to them too, and Assign gives them the sandbox's deadline. Spawn
// does not start a companion's program: RunProcess does, with the id CompanionMain. A companion shares only the
// sandbox's network. It ends itself at the sandbox's deadline.
type CompanionHost interface {
	// ReviveCompanion starts a stopped companion of an awake sandbox, without its program. A companion that has run since
	// before the sandbox started has the network of an earlier start, so ReviveCompanion stops it first. Any other running
	// companion is success. Errors: NotFound with ReasonPartMissing if the companion does not exist; Failed.
	ReviveCompanion(ctx context.Context, h Handle) error
	// StopCompanion stops a companion of an awake sandbox: it asks the program to end, then kills it. A stopped or absent
	// companion is success. Errors: Failed.
	StopCompanion(ctx context.Context, h Handle) error
	// CompanionProgram returns the program that the image itself names: entrypoint and command. Errors: NotFound.
	CompanionProgram(ctx context.Context, h Handle) ([]string, error)
}
