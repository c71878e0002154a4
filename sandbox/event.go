package sandbox

import (
	"encoding/json"
	"time"
)

// EventType names what happened.
type EventType string

// The events of a sandbox, in the order in which a life can show them, and those of an environment.
const (
	EventAccepted         EventType = "sandbox.accepted"
	EventAdopted          EventType = "sandbox.adopted" // in place of accepted and ready
	EventPreparing        EventType = "sandbox.preparing"
	EventReady            EventType = "sandbox.ready"
	EventExecStarted      EventType = "exec.started"
	EventExecFinished     EventType = "exec.finished"
	EventExecFailed       EventType = "exec.failed"
	EventExecCancelled    EventType = "exec.cancelled"
	EventSessionOpened    EventType = "session.opened"
	EventSessionClosed    EventType = "session.closed" // by a caller; all are with their sandbox
	EventProcessStarted   EventType = "process.started"
	EventProcessExited    EventType = "process.exited" // by itself, or for an unknown reason
	EventProcessKilled    EventType = "process.killed" // a caller asked for it
	EventRenewed          EventType = "lease.renewed"
	EventAsleep           EventType = "sandbox.asleep" // paused
	EventStopRequested    EventType = "sandbox.stop_requested"
	EventStopped          EventType = "sandbox.stopped" // in place of asleep where it sleeps by stop
	EventAwake            EventType = "sandbox.awake"
	EventFailed           EventType = "sandbox.failed" // for good; what is tried again is not
	EventDrift            EventType = "sandbox.drift"
	EventConditionApplied EventType = "condition.applied"
	EventConditionStale   EventType = "condition.stale"
	EventEnded            EventType = "lease.ended"
	EventDeleteRequested  EventType = "sandbox.delete_requested"
	EventStateRestored    EventType = "sandbox.state_restored"
	EventStateCopied      EventType = "sandbox.state_copied" // in place of restored: it saves nothing
	EventStateSaved       EventType = "sandbox.state_saved"
	EventStateSaveFailed  EventType = "sandbox.state_save_failed" // the first failure in a row
	EventStateLost        EventType = "sandbox.state_lost"
	EventEgressAllowed    EventType = "egress.allowed" // what restricted sandboxes reach: an EgressAttempt each
	EventEgressClosed     EventType = "egress.closed"
	EventEgressDenied     EventType = "egress.denied"
	EventEgressFailed     EventType = "egress.failed"
	EventEgressSummary    EventType = "egress.summary"        // an EgressSummary
	EventDeleteFailed     EventType = "sandbox.delete_failed" // the first failure in a row; it is tried again
	EventDeleted          EventType = "sandbox.deleted"

	EventEnvironmentCreated   EventType = "environment.created"
	EventEnvironmentUpdated   EventType = "environment.updated"
	EventEnvironmentEnded     EventType = "environment.ended"
	EventEnvironmentReopened  EventType = "environment.reopened"
	EventEnvironmentDestroyed EventType = "environment.destroyed"
	EventConditionUnmatched   EventType = "condition.unmatched"
	// EventBudgetReached: a part of a month's budget is spent; its data is a BudgetReached.
	EventBudgetReached EventType = "environment.budget_reached"

	// EventEgressLost: a part of the gateway's log was not read in time; its data is an EgressLost.
	EventEgressLost EventType = "egress.lost"

	// EventClockStepped is of no environment: the clock was set, and all that it had timed was moved.
	EventClockStepped EventType = "ledger.clock_stepped"
	// EventRestored is of no environment: the ledger is a backup's, and what happened since is not in it.
	EventRestored EventType = "ledger.restored"

	// EventStatesKept is of no environment: saved states of agents, which all tokens shared, are the operator's now; its
	// data is a StatesKept.
	EventStatesKept EventType = "ledger.states_kept"

	// What happens to tokens is of no environment: its data is a TokenChange.
	EventTokenCreated EventType = "token.created"
	EventTokenRotated EventType = "token.rotated"
	EventTokenRevoked EventType = "token.revoked"
)

// Event is one entry of the append-only log.
type Event struct {
	// ID orders all events of a ledger; it grows but is not dense.
	ID int64 `json:"id"`
	// Sequence orders the events of one sandbox from 1 without gaps; 0 for events of an environment.
	Sequence      int64     `json:"sequence,omitempty"`
	SandboxID     string    `json:"sandbox_id,omitempty"`
	LeaseID       string    `json:"lease_id,omitempty"`
	Generation    int64     `json:"generation,omitempty"`
	EnvironmentID string    `json:"environment_id"`
	Type          EventType `json:"type"`
	At            time.Time `json:"at"`
	// Actor is on whose behalf it happened ("token:ci", "secret:5f2a90c1") and Address where that was asked from;
	// empty where the service did it by itself.
	Actor   string          `json:"actor,omitempty"`
	Address string          `json:"address,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// EventFilter selects events, in ascending order unless it says Latest.
type EventFilter struct {
	EnvironmentID string
	LeaseID       string
	SandboxID     string
	// Type is one type of events, such as egress.denied, or all that begin alike, such as egress.*
	Type string
	// FromSequence replays one sandbox's events after this sequence; 0 is from its creation.
	// It needs SandboxID. One never issued is Invalid, one no longer retained EventSequenceExpired.
	FromSequence int64
	// AfterID goes on after this event; 0 begins with the oldest that is retained. One never issued is
	// Invalid, one after which not all is retained EventSequenceExpired: read leases and environments
	// anew, and follow from the LastEventID that they carry.
	AfterID int64
	// Latest lists the latest events first, those before BeforeID where it is set. It stands alone: with
	// FromSequence or AfterID, and in what is followed, it is Invalid, as is BeforeID without it.
	Latest   bool
	BeforeID int64
	// Limit is the page size, 1 to 1000; zero means 1000.
	Limit int
}
