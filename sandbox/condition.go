package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Condition says that something happened in a game that ends leases: of one agent, or of every
// lease of the environment whose expiry conditions contain it.
type Condition struct {
	// Type is its dotted name, such as game.finished.
	Type string `json:"type"`
	// Timestamp is when it happened. It ends only generations leased before.
	Timestamp time.Time     `json:"timestamp"`
	Data      ConditionData `json:"data"`
}

// ConditionData says to whom a condition applies.
type ConditionData struct {
	EnvironmentID string `json:"environment_id"`
	// AgentDID limits the condition to one agent's lease; required for agent.* conditions.
	AgentDID string `json:"agent_did,omitempty"`
	// Generation limits it to one generation of that agent's lease.
	Generation int64  `json:"generation,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// Validate checks the condition. Errors: Invalid, naming each field.
func (c Condition) Validate() error {
	f := checkCondition(nil, "type", c.Type)
	if c.Timestamp.IsZero() {
		f = append(f, Field{"timestamp", "must be set to when it happened, in RFC 3339"})
	}
	f = checkEnvironmentID(f, "data.environment_id", c.Data.EnvironmentID)
	switch {
	case c.Data.AgentDID != "":
		f = checkAgentDID(f, "data.agent_did", c.Data.AgentDID)
	case strings.HasPrefix(c.Type, "agent."):
		f = append(f, Field{"data.agent_did", "is required for " + c.Type + ": one agent's condition must not end every agent's lease"})
	case c.Data.Generation != 0:
		f = append(f, Field{"data.generation", "needs data.agent_did"})
	}
	if c.Data.Generation < 0 {
		f = append(f, Field{"data.generation", "must not be negative"})
	}
	if len(c.Data.Reason) > 1024 {
		f = append(f, Field{"data.reason", "must be at most 1024 bytes"})
	}
	return InvalidFields("condition", f)
}

// Delivery is a condition as it arrived at the webhook.
type Delivery struct {
	// ID is the sender's id of the message; a second delivery of it changes nothing.
	ID string
	// Body is the message as received, kept as bytes.
	Body []byte
	// Source says who was authenticated, such as "secret:5f2a90c1" or "token:game-server".
	Source    string
	Condition Condition
}

// DeliveryStatus is what a delivery did.
type DeliveryStatus string

// The delivery statuses.
const (
	DeliveryApplied   DeliveryStatus = "applied"   // it ended leases or closed the environment
	DeliveryStale     DeliveryStatus = "stale"     // it only concerned generations that began after it
	DeliveryUnmatched DeliveryStatus = "unmatched" // no such environment, or no lease that has the condition
)

// Receipt is the answer to a delivery. It is given only once the delivery is durable.
type Receipt struct {
	ID     string         `json:"id"`
	Status DeliveryStatus `json:"status" enum:"applied,stale,unmatched"`
	// Duplicate: this delivery had been stored before, and nothing changed now.
	Duplicate bool `json:"duplicate"`
	// Matched counts the leases that it ended.
	Matched int `json:"matched"`
}

// DeliveryStatuses are all statuses of deliveries.
var DeliveryStatuses = []DeliveryStatus{DeliveryApplied, DeliveryStale, DeliveryUnmatched}

// StoredDelivery is a delivery as it is kept, and what it did.
type StoredDelivery struct {
	ID         string    `json:"id"`
	ReceivedAt time.Time `json:"received_at"`
	// Source says who was authenticated, such as "secret:5f2a90c1" or "token:game-server".
	Source string `json:"source"`
	// Type, OccurredAt, EnvironmentID, AgentDID and Generation are the condition's.
	Type          string         `json:"type"`
	OccurredAt    time.Time      `json:"occurred_at"`
	EnvironmentID string         `json:"environment_id"`
	AgentDID      string         `json:"agent_did,omitempty"`
	Generation    int64          `json:"generation,omitempty"`
	Status        DeliveryStatus `json:"status" enum:"applied,stale,unmatched"`
	// Matched counts the leases that it ended; their events condition.applied name the delivery.
	Matched int    `json:"matched" doc:"How many leases it ended; their events condition.applied name the delivery."`
	Body    string `json:"body" doc:"The message as it was received."`
}

// MaxDeliveryPage bounds a page of deliveries, whose bodies have up to 64 KiB each.
const MaxDeliveryPage = 100

// DeliveryFilter selects deliveries, the latest first; empty fields select all.
type DeliveryFilter struct {
	ID            string
	EnvironmentID string
	Status        DeliveryStatus
	// Before is the id of the last delivery of the page before; after one that is not kept there is nothing.
	Before string
	// Limit is the page size, 1 to MaxDeliveryPage; zero means MaxDeliveryPage.
	Limit int
}

// Validate checks status and page size. Errors: Invalid, naming what there is.
func (f DeliveryFilter) Validate() error {
	var fields []Field
	if f.Status != "" && !slices.Contains(DeliveryStatuses, f.Status) {
		fields = append(fields, Field{Name: "status", Problem: fmt.Sprintf("must be one of %v", DeliveryStatuses)})
	}
	if f.Limit < 0 || f.Limit > MaxDeliveryPage {
		fields = append(fields, Field{Name: "limit", Problem: fmt.Sprintf("must be between 1 and %d", MaxDeliveryPage)})
	}
	return InvalidFields("the filter of deliveries", fields)
}
