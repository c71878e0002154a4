package wire

import "time"

// LeaseFile is the name of the file that says whose a sandbox of a warm pool is, in a directory that sandboxed code cannot
// write. It appears once, complete, and does not change.
const LeaseFile = "lease.json"

// Lease is the content of LeaseFile, and what an assignment carries.
type Lease struct {
	// ID names the lease and its generation. A sandbox takes no other one afterwards.
	ID string `json:"id,omitempty"`
	// Env is set in every command, beside the sandbox's own variables.
	Env map[string]string `json:"env"`
	// Config is the content of /workspace/config.json.
	Config string `json:"config"`
	// Deadline ends the sandbox, by its engine's clock, unless the deadline that it began with does so earlier. Guests of
	// earlier releases know no Ends.
	Deadline time.Time `json:"deadline"`
	Ends     Ends      `json:"ends"`
	// Sync: the file must outlive a crash of the machine.
	Sync bool `json:"sync,omitempty"`
}

// Ends is a sandbox's deadline by clocks that process 1 can read. The ledger's clock is not one of them: it may be
// another machine's, and wrong.
type Ends struct {
	// At is the moment by the clock of the engine's host.
	At time.Time `json:"at"`
	// Boot names the boot of the host that wrote this, and SinceBoot is the moment by its CLOCK_BOOTTIME, which no program can
	// set. Where process 1 runs in the same boot, they count alone. Boot is "" where the writer cannot know them.
	Boot      string        `json:"boot,omitempty"`
	SinceBoot time.Duration `json:"since_boot,omitempty"`
	// Left was left when this was written: a sandbox that starts never gets more, whatever its clocks say.
	Left time.Duration `json:"left"`
}
