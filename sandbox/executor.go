package sandbox

// State is what a backend says a sandbox is doing.
type State string

// The states.
const (
	StateCreated State = "created" // made, never started
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateStopped State = "stopped"
	// StateRemoving: it is being removed; soon it is gone.
	StateRemoving State = "removing"
)
