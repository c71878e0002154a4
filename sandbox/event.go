package sandbox

import (
	"encoding/json"
	"sync/atomic"
	"time"
)

// EventType is the type of an event.
type EventType string

// The events of a sandbox, in the order in which they can occur, and those of an environment.
const (
	EventAccepted         EventType = "sandbox.accepted"
	EventAdopted          EventType = "sandbox.adopted" // instead of accepted and ready
	EventPreparing        EventType = "sandbox.preparing"
	EventReady            EventType = "sandbox.ready"
	EventExecStarted      EventType = "exec.started"
	EventExecFinished     EventType = "exec.finished"
	EventExecFailed       EventType = "exec.failed"
	EventExecCancelled    EventType = "exec.cancelled"
	EventSessionOpened    EventType = "session.opened"
	EventSessionClosed    EventType = "session.closed" // by a caller; not by the end of the sandbox
	EventProcessStarted   EventType = "process.started"
	EventProcessExited    EventType = "process.exited"   // on its own, or for an unknown reason
	EventProcessKilled    EventType = "process.killed"   // by a caller
	EventCompanionReady   EventType = "companion.ready"  // data: name
	EventCompanionFailed  EventType = "companion.failed" // data: CompanionFailure
	EventRenewed          EventType = "lease.renewed"
	EventAsleep           EventType = "sandbox.asleep" // paused
	EventStopRequested    EventType = "sandbox.stop_requested"
	EventStopped          EventType = "sandbox.stopped" // instead of asleep if sleep_mode is stop
	EventAwake            EventType = "sandbox.awake"
	EventDiskLost         EventType = "sandbox.disk_lost" // before awake; data: DiskLost
	EventFailed           EventType = "sandbox.failed"    // permanently; a failure that is retried raises no event
	EventDrift            EventType = "sandbox.drift"
	EventConditionApplied EventType = "condition.applied"
	EventConditionStale   EventType = "condition.stale"
	EventEnded            EventType = "lease.ended"
	EventDeleteRequested  EventType = "sandbox.delete_requested"
	EventSnapshotRestored EventType = "sandbox.state_restored"
	EventSnapshotCopied   EventType = "sandbox.state_copied"     // instead of restored; the lease saves nothing
	EventWorkspaceReady   EventType = "sandbox.workspace_ready"  // data: WorkspaceReady
	EventWorkspacePushed  EventType = "sandbox.workspace_pushed" // data: WorkspacePushed
	// EventCompanionUnhealthy: health checks of a ready companion fail. EventCompanionReady follows once a check succeeds.
	// data: CompanionFailure
	EventCompanionUnhealthy EventType = "companion.unhealthy"
	// At the end of a lease with a workspace, one of the two occurs. Data: WorkspaceCollected, WorkspaceLost.
	EventWorkspaceCollected EventType = "sandbox.workspace_collected"
	EventWorkspaceLost      EventType = "sandbox.workspace_lost"
	EventSnapshotSaved      EventType = "sandbox.state_saved"
	EventSnapshotSaveFailed EventType = "sandbox.state_save_failed" // the first failure in a row
	EventSnapshotLost       EventType = "sandbox.state_lost"
	EventEgressAllowed      EventType = "egress.allowed" // data of the four: EgressAttempt
	EventEgressClosed       EventType = "egress.closed"
	EventEgressDenied       EventType = "egress.denied"
	EventEgressFailed       EventType = "egress.failed"
	EventEgressSummary      EventType = "egress.summary" // data: EgressSummary
	EventLLMCompleted       EventType = "llm.completed"  // data of the four: LLMCall
	EventLLMRejected        EventType = "llm.rejected"
	EventLLMUnsent          EventType = "llm.unsent"
	EventLLMInterrupted     EventType = "llm.interrupted"
	EventDeleteFailed       EventType = "sandbox.delete_failed" // the first failure in a row; retries follow
	EventDeleted            EventType = "sandbox.deleted"

	EventEnvironmentCreated   EventType = "environment.created"
	EventEnvironmentUpdated   EventType = "environment.updated"
	EventEnvironmentEnded     EventType = "environment.ended"
	EventEnvironmentReopened  EventType = "environment.reopened"
	EventEnvironmentDestroyed EventType = "environment.destroyed"
	EventConditionUnmatched   EventType = "condition.unmatched"
	// EventBudgetReached: a threshold of the month's budget was reached. Data: BudgetReached.
	EventBudgetReached EventType = "environment.budget_reached"

	// EventEgressLost: part of the gateway's log was removed before it was read. Data: EgressLost.
	EventEgressLost EventType = "egress.lost"

	// EventClockStepped belongs to no environment: the clock was set, and the ledger moved all its deadlines.
	EventClockStepped EventType = "ledger.clock_stepped"
	// EventRestored belongs to no environment: the ledger was restored from a backup, and later changes are
	// missing.
	EventRestored EventType = "ledger.restored"

	// EventSnapshotsKept belongs to no environment: agents' snapshots that all tokens shared now belong to the
	// operator. Data: SnapshotsKept.
	EventSnapshotsKept EventType = "ledger.states_kept"

	// Events of tokens belong to no environment. Data: TokenChange.
	EventTokenCreated EventType = "token.created"
	EventTokenRotated EventType = "token.rotated"
	EventTokenRevoked EventType = "token.revoked"
)

// EventTypes lists all types by name.
var EventTypes = []EventType{
	EventCompanionFailed, EventCompanionReady, EventCompanionUnhealthy, EventConditionApplied,
	EventConditionStale, EventConditionUnmatched, EventEgressAllowed, EventEgressClosed, EventEgressDenied,
	EventEgressFailed, EventEgressLost, EventEgressSummary, EventBudgetReached, EventEnvironmentCreated,
	EventEnvironmentDestroyed, EventEnvironmentEnded, EventEnvironmentReopened, EventEnvironmentUpdated,
	EventExecCancelled, EventExecFailed, EventExecFinished, EventExecStarted, EventEnded, EventRenewed,
	EventClockStepped, EventRestored, EventSnapshotsKept, EventLLMCompleted, EventLLMInterrupted,
	EventLLMRejected, EventLLMUnsent, EventProcessExited, EventProcessKilled, EventProcessStarted, EventAccepted,
	EventAdopted, EventAsleep, EventAwake, EventDeleteFailed, EventDeleteRequested, EventDeleted, EventDiskLost,
	EventDrift, EventFailed, EventPreparing, EventReady, EventSnapshotCopied, EventSnapshotLost,
	EventSnapshotRestored, EventSnapshotSaveFailed, EventSnapshotSaved, EventStopRequested, EventStopped,
	EventWorkspaceCollected, EventWorkspaceLost, EventWorkspacePushed, EventWorkspaceReady, EventSessionClosed,
	EventSessionOpened, EventTokenCreated, EventTokenRevoked, EventTokenRotated,
}

// Event is one entry of the append-only log.
type Event struct {
	// ID orders all events of a ledger. IDs grow, with gaps.
	ID int64 `json:"id"`
	// Sequence numbers the events of one sandbox from 1 without gaps. It is 0 for events of an environment.
	Sequence      int64     `json:"sequence,omitempty"`
	SandboxID     string    `json:"sandbox_id,omitempty"`
	LeaseID       string    `json:"lease_id,omitempty"`
	Generation    int64     `json:"generation,omitempty"`
	EnvironmentID string    `json:"environment_id"`
	Type          EventType `json:"type"`
	At            time.Time `json:"at"`
	// Actor is the caller that caused the event ("token:ci", "oidc:ann@example.com", "secret:5f2a90c1"), Address its
	// network address. Both are empty if the service acted on its own.
	Actor   string          `json:"actor,omitempty"`
	Address string          `json:"address,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// EventFilter selects events, in ascending order unless Latest is set.
type EventFilter struct {
	EnvironmentID string
	LeaseID       string
	SandboxID     string
	// Labels selects the events of environments and of generations with these labels.
	Labels LabelSelector
	// Type is one event type, such as egress.denied, or the start of some with a star, such as egress.*. What selects no
	// type at all is Invalid.
	Type string
	// FromSequence returns the events of one sandbox after this sequence; 0 starts at its creation. It requires
	// SandboxID. A sequence never issued is Invalid; one no longer retained is EventSequenceExpired.
	FromSequence int64
	// AfterID returns the events after this one; 0 starts with the oldest retained. An id never issued is
	// Invalid. If later events are no longer retained, the error is EventSequenceExpired: read leases and
	// environments again, and follow from their LastEventID.
	AfterID int64
	// Latest returns the newest events first, those before BeforeID if that is set. Latest together with
	// FromSequence, AfterID or following is Invalid. So is BeforeID without Latest.
	Latest   bool
	BeforeID int64
	// Limit is the page size, 1 to 1000; zero means 1000.
	Limit int
	// Reached, unless nil, is where a follower of these events may continue. It advances also past events that the filter
	// omits, which may be purged soon.
	Reached *atomic.Int64
}

// CheckLimit checks the page size. Errors: Invalid.
func (f EventFilter) CheckLimit() error {
	return InvalidFields("event filter", checkLimit(nil, f.Limit, MaxPage))
}
