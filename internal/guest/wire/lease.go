package wire

import "time"

// LeaseFile is the name of the file, in a directory that sandboxed code cannot write, that tells a
// sandbox of a warm pool whose it is. It appears once, complete, and does not change.
const LeaseFile = "lease.json"

// Lease is the content of LeaseFile.
type Lease struct {
	// Env is set in every command, beside the sandbox's own variables.
	Env map[string]string `json:"env"`
	// Config is the content of /workspace/config.json.
	Config string `json:"config"`
	// Deadline ends the sandbox, unless the deadline that it began with does so earlier.
	Deadline time.Time `json:"deadline"`
}
