package wire

import "time"

// LeaseFile is the file with the lease of a sandbox from a warm pool, in a directory that sandbox code cannot
// write. It appears atomically and never changes.
const LeaseFile = "lease.json"

// Lease is the content of LeaseFile and of an assignment.
type Lease struct {
	// ID names the lease and its generation. Afterwards a sandbox accepts no other lease.
	ID string `json:"id,omitempty"`
	// Env is set in every command, in addition to the sandbox's variables.
	Env map[string]string `json:"env"`
	// Config is the content of /workspace/config.json.
	Config string `json:"config"`
	// Deadline ends the sandbox, by its engine's clock, unless its initial deadline is earlier. Guests of
	// earlier releases do not know Ends.
	Deadline time.Time `json:"deadline"`
	Ends     Ends      `json:"ends"`
	// Sync means that the file must survive a crash of the machine.
	Sync bool `json:"sync,omitempty"`
}

// Ends is a sandbox's deadline by clocks that process 1 can read. The ledger's clock does not count: it may be on
// another machine, and wrong.
type Ends struct {
	// At is the time by the clock of the engine's host.
	At time.Time `json:"at"`
	// Boot identifies the boot of the host that wrote this, and SinceBoot is the deadline by its
	// CLOCK_BOOTTIME, which no program can set. If process 1 runs in the same boot, only these count. Boot is
	// "" if the writer cannot know them.
	Boot      string        `json:"boot,omitempty"`
	SinceBoot time.Duration `json:"since_boot,omitempty"`
	// Left is the remaining time when this was written. A starting sandbox never gets more, whatever its clocks show.
	Left time.Duration `json:"left"`
}
