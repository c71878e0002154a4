package driver

import (
	"context"
	"time"
)

// Meter is implemented by an Executor with Capabilities.Metered: the backend itself meters what it bills.
type Meter interface {
	// Metered returns what the backend counted for environments, for each UTC day from from until before to. Both
	// must be midnights. An environment that has nothing there is in no group. Errors: Forbidden if the credentials
	// do not allow it.
	Metered(ctx context.Context, refs []EnvironmentRef, from, to time.Time) ([]MeteredGroup, error)
}

// MeteredGroup is what a backend counts as one: the usage of one environment, or of several together.
type MeteredGroup struct {
	// Environments are all whose usage is in Days, each once, whether it was asked for or not. They include those
	// that have been removed.
	Environments []EnvironmentRef
	// Shared: the environments share what the backend meters, even if only one is left. A ledger has at most one
	// such group on an instance. A group that is not Shared has exactly one environment.
	Shared bool
	// Since is when the counting began. Figures are complete from the next day on. Zero means that it began when
	// the environment was created.
	Since time.Time
	// Days may omit days without usage.
	Days []Metered
}

// Metered is what a backend metered on one UTC day.
type Metered struct {
	Day time.Time // its midnight
	CPU time.Duration
	// MemoryMBSeconds and DiskMBSeconds are sizes in the units of Resources, times the seconds that they were
	// held.
	MemoryMBSeconds, DiskMBSeconds float64
}
