package driver

import (
	"context"
	"io"
	"time"
)

// Meter is implemented by an Executor with Capabilities.Metered: the backend itself meters what it bills.
type Meter interface {
	// Metered returns what the backend counted for environments, for each UTC day in [from, to). Both must be
	// midnights. An environment without usage is in no group. Errors: Forbidden if the credentials do not allow it.
	Metered(ctx context.Context, refs []EnvironmentRef, from, to time.Time) ([]MeteredGroup, error)
}

// MeteredGroup is a unit that a backend meters: the usage of one environment, or of several together.
type MeteredGroup struct {
	// Environments are all whose usage is in Days, each once, even those that the caller did not ask for. They
	// include removed ones.
	Environments []EnvironmentRef
	// Shared means that the environments share what the backend meters, even if only one is left. A ledger has at most one
	// such group on an instance. A group that is not Shared has exactly one environment.
	Shared bool
	// Since is when the counting began. Figures are complete from the next day on. Zero means that it began with the
	// creation of the environment.
	Since time.Time
	// Days may omit days without usage.
	Days []Metered
}

// Metered is what a backend metered on one UTC day.
type Metered struct {
	Day time.Time // its midnight
	CPU time.Duration
	// MemoryMBSeconds and DiskMBSeconds are sizes in the units of Resources, times the seconds during which they were
	// held.
	MemoryMBSeconds, DiskMBSeconds float64
}

// DiskReader is implemented by an Executor that reads files of sandboxes in which no code runs.
type DiskReader interface {
	// ReadDisk returns a file or directory of a paused or stopped sandbox as a tar stream, with names relative to the
	// parent of the path. It needs nothing from the sandbox, and does not follow a link at the end of the path. ctx bounds
	// the stream. Errors: NotFound, with ReasonFileNotFound if only the path is missing; Conflict with ReasonInvalidState
	// if the sandbox runs; Failed.
	ReadDisk(ctx context.Context, h Handle, path string) (io.ReadCloser, error)
}

// ContainerHost is implemented by an Executor whose sandboxes are containers with their own ids.
type ContainerHost interface {
	// ContainerID returns the backend's id of a sandbox's container. It returns "" if this program has removed the
	// container, or has not seen it since it started. It does not ask the backend.
	ContainerID(h Handle) string
}

// Witnesser is implemented by an Executor whose instance id does not identify a machine: a cloned machine reports the
// original's id. So each ledger leaves a number, its witness, on every instance that it uses, and only raises it. An
// instance without the number is another machine or an older copy.
type Witnesser interface {
	// Witness returns the highest number that a ledger left on an instance, 0 if there is none. From then on, while that
	// number is missing, this executor returns Unavailable and never NotFound. Errors: as for Executor.
	Witness(ctx context.Context, ledgerID, instance string) (int64, error)
	// LeaveWitness stores a number and removes lower ones. It is idempotent. From then on the number is required, as after
	// Witness. Errors: as for Executor; Failed.
	LeaveWitness(ctx context.Context, ledgerID, instance string, n int64) error
	// RemoveWitness removes a number and all lower ones. Absent numbers are success. Errors: as for Executor; Failed.
	RemoveWitness(ctx context.Context, ledgerID, instance string, n int64) error
}
