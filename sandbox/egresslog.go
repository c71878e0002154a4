package sandbox

import (
	"time"
)

// GatewayPosition is the position of a line in one of the logs of an environment's gateway. Positions grow with the run
// of the gateway and, within a run, with the line.
type GatewayPosition struct {
	Run int64
	// Line numbers the lines of a run from 1 without gaps. A missing number is a line that was dropped before
	// it was read.
	Line int64
}

// After reports whether p comes after q.
func (p GatewayPosition) After(q GatewayPosition) bool {
	return p.Run > q.Run || p.Run == q.Run && p.Line > q.Line
}

// EgressKind is the kind of a line in a gateway's log.
type EgressKind string

// The kinds. An allowed attempt has an opened line and later a closed line with the same id. A refused or
// failed attempt has only a closed line.
const (
	EgressOpened EgressKind = "opened"
	EgressClosed EgressKind = "closed"
	// EgressDropped counts lines of a sandbox that the gateway did not log.
	EgressDropped EgressKind = "dropped"
)

// EgressVerdict is the result of an attempt.
type EgressVerdict string

// The verdicts.
const (
	EgressAllowed EgressVerdict = "allowed"
	EgressRefused EgressVerdict = "refused" // by the environment's rules, or because the protocol or name did not match
	EgressFailed  EgressVerdict = "failed"  // allowed, but the host could not be reached
)

// EgressRecord is one line of a gateway's log.
type EgressRecord struct {
	GatewayPosition
	Kind      EgressKind
	SandboxID string
	Verdict   EgressVerdict
	EgressAttempt
	// Count is the number of dropped lines.
	Count int64
}

// EgressSource names the sandbox of an event that the service read after the sandbox's last event. The event
// then belongs to the environment.
type EgressSource struct {
	SandboxID  string `json:"sandbox_id"`
	LeaseID    string `json:"lease_id,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}

// EgressAttempt is the data of the events egress.allowed, closed, denied and failed.
type EgressAttempt struct {
	// Attempt is its id. An egress.closed has the id of its egress.allowed.
	Attempt  string    `json:"attempt"`
	At       time.Time `json:"at"` // by the gateway's clock
	AgentDID string    `json:"agent_did,omitempty"`
	Protocol string    `json:"protocol,omitempty"`
	Host     string    `json:"host"` // as the sandbox wrote it, if it is not a valid name
	Port     int       `json:"port,omitempty"`
	Address  string    `json:"address,omitempty"` // the address connected to
	Reason   string    `json:"reason,omitempty"`
	Detail   string    `json:"detail,omitempty"`
	// Ended: the figures below are final. If false, an egress.closed follows this egress.allowed.
	Ended         bool  `json:"ended"`
	SentBytes     int64 `json:"sent_bytes"`     // from the sandbox
	ReceivedBytes int64 `json:"received_bytes"` // to the sandbox
	DurationMS    int64 `json:"duration_ms"`
	// Of is set in events of the environment.
	Of *EgressSource `json:"of,omitempty"`
}

// EgressSummary is the data of egress.summary: it sums the attempts of a sandbox that made too many for one
// event each.
type EgressSummary struct {
	Allowed int64 `json:"allowed"` // allowed attempts
	Closed  int64 `json:"closed"`  // allowed attempts, of these or earlier ones, that ended
	Denied  int64 `json:"denied"`
	Failed  int64 `json:"failed"`
	// Unlogged is the number of lines that the gateway itself dropped, at most two for each attempt.
	Unlogged      int64     `json:"unlogged"`
	SentBytes     int64     `json:"sent_bytes"`
	ReceivedBytes int64     `json:"received_bytes"`
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	// Of is set in events of the environment.
	Of *EgressSource `json:"of,omitempty"`
}

// EgressLost is the data of egress.lost, an event of an environment: lines of its gateway's log were removed
// before the service read them.
type EgressLost struct {
	Lines int64 `json:"lines"`
}
