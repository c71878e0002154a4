package driver

import (
	"context"
	"time"
)

// Meter is implemented by an Executor with Capabilities.Metered: its backend counts by itself what it bills.
type Meter interface {
	// Metered returns what the backend has counted of an environment's sandboxes on each UTC day from from to
	// before to, which are midnights. A day of which it counted nothing may be left out. Errors: Forbidden, when the
	// credentials do not allow to ask; NotFound, when the environment has nothing there.
	Metered(ctx context.Context, ref EnvironmentRef, from, to time.Time) ([]Metered, error)
}

// Metered is what a backend has counted of one UTC day.
type Metered struct {
	Day time.Time // its midnight
	CPU time.Duration
	// MemoryMBSeconds and DiskMBSeconds are sizes in the units of Resources, times the time for which they were there.
	MemoryMBSeconds, DiskMBSeconds float64
}
