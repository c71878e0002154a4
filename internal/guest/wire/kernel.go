package wire

// Kernel is the kernel that a container runtime gives a sandbox, as the sandbox sees it.
type Kernel struct {
	Release string    `json:"release"`
	Version string    `json:"version"`
	Missing []Missing `json:"missing,omitempty"`
}

// Missing is a requirement of process 1 that is not met.
type Missing struct {
	Kind  string `json:"kind"`
	What  string `json:"what"`
	Error string `json:"error"`
}

// The kinds of missing requirements.
const (
	MissingCall   = "call"   // a system call
	MissingSocket = "socket" // a socket of the host
)
