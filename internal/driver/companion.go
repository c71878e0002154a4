package driver

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CompanionMain is the id of the command that is a companion's program. The companion stops when it ends.
const CompanionMain = "main"

// Of returns the handle of a companion of a sandbox. ProcessRunner, Runner and SecretWriter work with it as with that
// of a sandbox.
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
	// ExitCode is that of its program, OOMKilled whether the program ended for lack of memory, once it has stopped.
	ExitCode  int
	OOMKilled bool
	StartedAt time.Time
	StoppedAt time.Time
	// Output is the end of what its program wrote, once it has stopped. List omits it.
	Output string
}

// CompanionHost is implemented by an Executor whose sandboxes can have companions. Spawn creates the companions of a
// spec with the sandbox, Sleep and Wake put them to sleep and wake them with it, Assign gives them its deadline, and
// Kill ends them with it. A companion is created without its program: RunProcess starts that, with the id
// CompanionMain. A companion shares the sandbox's network, and nothing else. It ends at the sandbox's deadline by
// itself.
type CompanionHost interface {
	// ReviveCompanion starts a companion of an awake sandbox that has stopped, without its program. One that runs since
	// before the sandbox started is stopped first, because it has the network of an earlier start. Another one that runs
	// is success. Errors: NotFound with ReasonPartMissing if the companion does not exist, Failed.
	ReviveCompanion(ctx context.Context, h Handle) error
	// StopCompanion stops a companion of an awake sandbox: its program is asked to end, then killed. One that
	// has stopped or does not exist is success. Errors: Failed.
	StopCompanion(ctx context.Context, h Handle) error
	// CompanionProgram returns the program that an image names itself, its entrypoint and command. Errors: NotFound.
	CompanionProgram(ctx context.Context, h Handle) ([]string, error)
}
