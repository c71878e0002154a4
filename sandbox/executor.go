package sandbox

// State is the state of a sandbox as its backend reports it.
type State string

// The states.
const (
	StateCreated State = "created" // created, never started
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateStopped State = "stopped"
	// StateRemoving: the removal has begun.
	StateRemoving State = "removing"
)
