package sandbox

import "time"

// SandboxState is where a sandbox stands, as everybody sees it: the last of its events that leads to a
// state says which. Lease.Status tells of the right to it, Phase of what its backend last showed.
type SandboxState string

// The states of a sandbox, of whatever backend.
const (
	// SandboxPending: it was asked for and is being made.
	SandboxPending SandboxState = "pending"
	// SandboxReady: it takes commands.
	SandboxReady SandboxState = "ready"
	// SandboxAsleep: it was paused, with its processes; its next use wakes it.
	SandboxAsleep SandboxState = "asleep"
	// SandboxStopped: its processes have ended and its files are there; its next use starts it again.
	SandboxStopped SandboxState = "stopped"
	// SandboxFailed: it failed, and is kept for a post-mortem, or is about to be removed.
	SandboxFailed SandboxState = "failed"
	// SandboxDeleting: its lease has ended and it is being removed, for as long as that takes.
	SandboxDeleting SandboxState = "deleting"
	// SandboxDeleted: its backend confirmed that nothing of it is left.
	SandboxDeleted SandboxState = "deleted"
)

// led are the states that events lead to.
var led = map[EventType]SandboxState{
	EventAccepted: SandboxPending, EventReady: SandboxReady, EventAwake: SandboxReady, EventAsleep: SandboxAsleep,
	EventStopped: SandboxStopped, EventFailed: SandboxFailed, EventDeleteRequested: SandboxDeleting, EventDeleted: SandboxDeleted,
}

// Ends reports whether only failed, deleting and deleted can follow on a state.
func (s SandboxState) Ends() bool {
	return s == SandboxFailed || s == SandboxDeleting || s == SandboxDeleted
}

// After returns the state that follows on this one when an event happens: replayed from its first, the
// events of a sandbox tell its state.
func (s SandboxState) After(t EventType) SandboxState {
	next, leads := led[t]
	if !leads || s.Ends() && !next.Ends() {
		return s
	}
	return next
}

// StopReason says why a sandbox sleeps or is stopped.
type StopReason string

// The reasons.
const (
	StopIdle     StopReason = "idle_ttl"  // it was not used for sleep_after
	StopRequest  StopReason = "request"   // a caller asked for it
	StopPool     StopReason = "warm_pool" // it waits for a lease
	StopLastSave StopReason = "last_save" // its /data is being saved before it is removed
	StopOutside  StopReason = "outside"   // it was done on the backend
	StopCrashed  StopReason = "crashed"   // it stopped by itself, and is started again
	// StopPostMortem: it has failed, and is kept for a while. Its state says failed.
	StopPostMortem StopReason = "post_mortem"
)

// Standing is where a sandbox stands, since when, and what brought it there.
type Standing struct {
	SandboxState SandboxState `json:"sandbox_state" enum:"pending,ready,asleep,stopped,failed,deleting,deleted" doc:"Where the sandbox stands; status says where the lease does."`
	// StateChangedAt is when SandboxState became what it is.
	StateChangedAt time.Time `json:"state_changed_at,omitzero" doc:"When sandbox_state became what it is."`
	// StopReason is set while it is asleep or stopped.
	StopReason StopReason `json:"stop_reason,omitempty" doc:"Why it is asleep or stopped: idle_ttl, request, warm_pool, last_save, outside or crashed."`
	// ErrorCode and ErrorMessage say why it failed, for as long as the sandbox is known, or why it
	// stopped, until it has run for a while again.
	ErrorCode    Reason `json:"error_code,omitempty" doc:"Why the sandbox failed, or stopped by itself, for programs."`
	ErrorMessage string `json:"error_message,omitempty" doc:"Why the sandbox failed, or stopped by itself, in words."`
}
