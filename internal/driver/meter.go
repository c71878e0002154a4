package driver

import (
	"context"
	"time"
)

// Meter is implemented by an Executor with Capabilities.Metered: the backend itself meters what it bills.
type Meter interface {
	// Metered returns the backend's figures for the sandboxes of environments, for each UTC day from from until
	// before to. Both must be midnights. Days without usage, and environments that have nothing there, may be
	// missing. Errors: Forbidden if the credentials do not allow it.
	Metered(ctx context.Context, refs []EnvironmentRef, from, to time.Time) (map[EnvironmentRef][]Metered, error)
}

// Metered is what a backend metered on one UTC day.
type Metered struct {
	Day time.Time // its midnight
	CPU time.Duration
	// MemoryMBSeconds and DiskMBSeconds are sizes in the units of Resources, times the seconds that they were
	// held.
	MemoryMBSeconds, DiskMBSeconds float64
}
