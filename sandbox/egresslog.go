package sandbox

import (
	"time"
)

// EgressPosition names a line of the log of one environment's gateway. Lines of a later run of the
// gateway, and in a run later lines, are greater.
type EgressPosition struct {
	Run int64
	// Line counts a run's lines from 1 without gaps: where one is missing, it was not kept for long enough.
	Line int64
}

// After reports whether p comes after q.
func (p EgressPosition) After(q EgressPosition) bool {
	return p.Run > q.Run || p.Run == q.Run && p.Line > q.Line
}

// EgressKind says what a line of a gateway's log tells.
type EgressKind string

// The kinds. An attempt that gets out is opened and, with the same id, closed; one that does not is
// closed alone.
const (
	EgressOpened EgressKind = "opened"
	EgressClosed EgressKind = "closed"
	// EgressDropped counts lines of a sandbox that the gateway left out.
	EgressDropped EgressKind = "dropped"
)

// EgressVerdict says what became of an attempt.
type EgressVerdict string

// The verdicts.
const (
	EgressAllowed EgressVerdict = "allowed"
	EgressRefused EgressVerdict = "refused" // by what the environment allows, or as not what it says it is
	EgressFailed  EgressVerdict = "failed"  // allowed, but the other side could not be reached
)

// EgressRecord is a line of a gateway's log.
type EgressRecord struct {
	EgressPosition
	Kind      EgressKind
	SandboxID string
	Verdict   EgressVerdict
	EgressAttempt
	// Count is how many lines were dropped.
	Count int64
}

// EgressSource says whose an event is that was read after the last event of its sandbox: its environment
// tells of it then.
type EgressSource struct {
	SandboxID  string `json:"sandbox_id"`
	LeaseID    string `json:"lease_id,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}

// EgressAttempt is what the events egress.allowed, closed, denied and failed say.
type EgressAttempt struct {
	// Attempt is its id: egress.closed has that of an egress.allowed before it.
	Attempt  string    `json:"attempt"`
	At       time.Time `json:"at"` // by the gateway's clock
	AgentDID string    `json:"agent_did,omitempty"`
	Protocol string    `json:"protocol,omitempty"`
	Host     string    `json:"host"` // as the sandbox wrote it where it is no name
	Port     int       `json:"port,omitempty"`
	Address  string    `json:"address,omitempty"` // that was connected to
	Reason   string    `json:"reason,omitempty"`
	Detail   string    `json:"detail,omitempty"`
	// Ended: the figures that follow are final. An egress.allowed that had not ended yet is followed by
	// an egress.closed.
	Ended         bool  `json:"ended"`
	SentBytes     int64 `json:"sent_bytes"`     // from the sandbox
	ReceivedBytes int64 `json:"received_bytes"` // to the sandbox
	DurationMS    int64 `json:"duration_ms"`
	// Of is set in an event of the environment.
	Of *EgressSource `json:"of,omitempty"`
}

// EgressSummary is what an event egress.summary says: attempts of a sandbox that made too many for each
// to be an event of its own.
type EgressSummary struct {
	Allowed int64 `json:"allowed"` // attempts that got out
	Closed  int64 `json:"closed"`  // of those, or of earlier ones, that ended
	Denied  int64 `json:"denied"`
	Failed  int64 `json:"failed"`
	// Unlogged are lines that the gateway itself left out, at most two for an attempt.
	Unlogged      int64     `json:"unlogged"`
	SentBytes     int64     `json:"sent_bytes"`
	ReceivedBytes int64     `json:"received_bytes"`
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	// Of is set in an event of the environment.
	Of *EgressSource `json:"of,omitempty"`
}

// EgressLost is what an event egress.lost of an environment says: lines of its gateway's log were
// removed before they were read.
type EgressLost struct {
	Lines int64 `json:"lines"`
}
