package sandbox

import "time"

// SandboxState is the state of a sandbox. Its latest event that leads to a state determines it. Lease.Status is
// the status of the lease, Phase what the backend last reported.
type SandboxState string

// The states of a sandbox, for all backends.
const (
	// SandboxPending: it is being created.
	SandboxPending SandboxState = "pending"
	// SandboxReady: it accepts commands.
	SandboxReady SandboxState = "ready"
	// SandboxAsleep: it is paused together with its processes. Its next use wakes it.
	SandboxAsleep SandboxState = "asleep"
	// SandboxStopped: its processes have ended and its files are kept. Its next use starts it.
	SandboxStopped SandboxState = "stopped"
	// SandboxFailed: it failed. It is kept for a post-mortem, or its removal is about to begin.
	SandboxFailed SandboxState = "failed"
	// SandboxDeleting: its lease has ended and its removal is in progress.
	SandboxDeleting SandboxState = "deleting"
	// SandboxDeleted: its backend confirmed that it is completely removed.
	SandboxDeleted SandboxState = "deleted"
)

// led maps events to the states that they lead to.
var led = map[EventType]SandboxState{
	EventAccepted:        SandboxPending,
	EventReady:           SandboxReady,
	EventAwake:           SandboxReady,
	EventAsleep:          SandboxAsleep,
	EventStopped:         SandboxStopped,
	EventFailed:          SandboxFailed,
	EventDeleteRequested: SandboxDeleting,
	EventDeleted:         SandboxDeleted,
}

// Ends reports whether only failed, deleting and deleted can follow s.
func (s SandboxState) Ends() bool {
	return s == SandboxFailed || s == SandboxDeleting || s == SandboxDeleted
}

// After returns the state that follows s after an event. Replaying all events of a sandbox yields its state.
func (s SandboxState) After(t EventType) SandboxState {
	next, leads := led[t]
	if !leads || s.Ends() && !next.Ends() {
		return s
	}
	return next
}

// StopReason says why a sandbox is asleep or stopped.
type StopReason string

// The reasons.
const (
	StopIdle     StopReason = "idle_ttl"  // idle for sleep_after
	StopRequest  StopReason = "request"   // by a caller
	StopPool     StopReason = "warm_pool" // it waits for a lease
	StopLastSave StopReason = "last_save" // its /data is being saved before it is removed
	StopOutside  StopReason = "outside"   // changed on the backend, outside of this service
	StopCrashed  StopReason = "crashed"   // it stopped on its own and will restart
	// StopPostMortem: it failed and is kept for a post-mortem. Its state is failed.
	StopPostMortem StopReason = "post_mortem"
)

// SandboxStatus is the state of a sandbox, the time of its last change, and the cause.
type SandboxStatus struct {
	SandboxState SandboxState `json:"sandbox_state" enum:"pending,ready,asleep,stopped,failed,deleting,deleted" doc:"State of the sandbox. status is the status of the lease."`
	// StateChangedAt is when SandboxState last changed.
	StateChangedAt time.Time `json:"state_changed_at,omitzero" doc:"When sandbox_state last changed."`
	// StopReason is set while the sandbox is asleep or stopped.
	StopReason StopReason `json:"stop_reason,omitempty" doc:"Why the sandbox is asleep or stopped: idle_ttl, request, warm_pool, last_save, outside or crashed."`
	// ErrorCode and ErrorMessage say why a sandbox failed, as long as it is known, or why it stopped, until it
	// has run for a while again.
	ErrorCode    Reason `json:"error_code,omitempty" doc:"Why the sandbox failed or stopped on its own, as a code."`
	ErrorMessage string `json:"error_message,omitempty" doc:"Why the sandbox failed or stopped on its own, as text."`
}

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

// LeaseHealth says whether a lease's sandbox is usable.
type LeaseHealth struct {
	LeaseID    string      `json:"lease_id"`
	Generation int64       `json:"generation"`
	SandboxID  string      `json:"sandbox_id"`
	Status     LeaseStatus `json:"status" enum:"pending,active,expired,destroyed"`
	Phase      Phase       `json:"phase" enum:"pending,awake,asleep,gone"`
	// Healthy: it accepts commands, or it sleeps as intended and its backend has it.
	Healthy bool `json:"healthy"`
	// Problem says why it is not healthy.
	Problem string `json:"problem,omitempty"`
	// BackendReachable: its backend instance answered.
	BackendReachable bool `json:"backend_reachable"`
	// State is the state that the backend reports, "" if it was not asked or does not have the sandbox.
	State     State     `json:"state,omitempty"`
	CheckedAt time.Time `json:"checked_at"`
}
