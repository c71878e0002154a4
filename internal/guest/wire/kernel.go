package wire

// Kernel is what a container runtime gives a sandbox, as the sandbox sees it.
type Kernel struct {
	Release string    `json:"release"`
	Version string    `json:"version"`
	Missing []Missing `json:"missing,omitempty"`
}

// Missing is something that process 1 needs and does not get.
type Missing struct {
	Kind  string `json:"kind"`
	What  string `json:"what"`
	Error string `json:"error"`
}

// The kinds of what is missing.
const (
	MissingCall   = "call"   // of the kernel
	MissingSocket = "socket" // of the host
)
