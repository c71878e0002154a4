package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxExpiryConditions bounds the conditions of one environment or of one lease.
const MaxExpiryConditions = 32

// Condition reports an event in a game that ends leases: those of one agent, or all leases of the environment
// whose expiry conditions contain its type.
type Condition struct {
	// Type is its dotted name, such as game.finished.
	Type string `json:"type"`
	// Timestamp is when it happened. It ends only generations that were leased before.
	Timestamp time.Time     `json:"timestamp"`
	Data      ConditionData `json:"data"`
}

// ConditionData says which leases a condition applies to.
type ConditionData struct {
	EnvironmentID string `json:"environment_id"`
	// AgentDID limits the condition to one agent's lease; required for agent.* conditions.
	AgentDID string `json:"agent_did,omitempty"`
	// Generation limits the condition to one generation of that agent's lease.
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
		f = append(f,
			Field{"data.agent_did", "is required for " + c.Type + ": without it, the condition would end every agent's lease"})
	case c.Data.Generation != 0:
		f = append(f, Field{"data.generation", "requires data.agent_did"})
	}
	if c.Data.Generation < 0 {
		f = append(f, Field{"data.generation", "must not be negative"})
	}
	if len(c.Data.Reason) > 1024 {
		f = append(f, Field{"data.reason", "must be at most 1024 bytes"})
	}
	return InvalidFields("condition", f)
}

// Delivery is a condition as the webhook received it.
type Delivery struct {
	// ID is the sender's message id. A second delivery with the same id about the same environment changes nothing.
	ID string
	// Body is the message exactly as received.
	Body []byte
	// Source is the authenticated sender, such as "secret:5f2a90c1" or "token:game-server".
	Source    string
	Condition Condition
}

// DeliveryStatus is the effect of a delivery.
type DeliveryStatus string

// The delivery statuses.
const (
	DeliveryApplied   DeliveryStatus = "applied"   // it ended leases or closed the environment
	DeliveryStale     DeliveryStatus = "stale"     // it matched only other generations
	DeliveryUnmatched DeliveryStatus = "unmatched" // it matched no live lease
)

// DeliveryReason says why a delivery ended nothing.
type DeliveryReason string

// The reasons of deliveries that are not applied.
const (
	// DeliveryNoEnvironment: the environment does not exist.
	DeliveryNoEnvironment DeliveryReason = "no_environment"
	// DeliveryNoCondition: neither the environment nor the lease ends on this type.
	DeliveryNoCondition DeliveryReason = "no_condition"
	// DeliveryNoLease: the agent has never had a lease of the environment, or it is no longer kept.
	DeliveryNoLease DeliveryReason = "no_lease"
	// DeliveryAlreadyEnded: the lease, its generation or the environment had already ended.
	DeliveryAlreadyEnded DeliveryReason = "already_ended"
	// DeliveryNotBegun: the lease has not reached the generation.
	DeliveryNotBegun DeliveryReason = "not_begun"
	// DeliveryBeganLater: the leases, or the environment since it was opened, began after the condition happened.
	DeliveryBeganLater DeliveryReason = "began_later"
)

// Receipt is the answer to a delivery. The service sends it only after the delivery is durable.
type Receipt struct {
	ID     string         `json:"id"`
	Status DeliveryStatus `json:"status" enum:"applied,stale,unmatched"`
	// Duplicate: the delivery was already stored, and nothing changed now.
	Duplicate bool `json:"duplicate"`
	// Matched is the number of leases that it ended.
	Matched int `json:"matched"`
	// Reason says why it ended nothing, "" if it was applied.
	Reason DeliveryReason `json:"reason,omitempty" enum:"no_environment,no_condition,no_lease,already_ended,not_begun,began_later" doc:"Why it ended nothing. Absent if it was applied."`
	// DidYouMean is the probably intended condition, if the type of an unmatched one is close to one that ends leases.
	DidYouMean string `json:"did_you_mean,omitempty" doc:"Only if unmatched: the condition on which leases end here and whose name is close to this type, which is probably misspelled."`
}

// DeliveryStatuses lists all delivery statuses.
var DeliveryStatuses = []DeliveryStatus{DeliveryApplied, DeliveryStale, DeliveryUnmatched}

// StoredDelivery is a delivery as stored, with its effect.
type StoredDelivery struct {
	ID         string    `json:"id"`
	ReceivedAt time.Time `json:"received_at"`
	// Source is the authenticated sender, such as "secret:5f2a90c1" or "token:game-server".
	Source string `json:"source"`
	// Type, OccurredAt, EnvironmentID, AgentDID and Generation are copied from the condition.
	Type          string         `json:"type"`
	OccurredAt    time.Time      `json:"occurred_at"`
	EnvironmentID string         `json:"environment_id"`
	AgentDID      string         `json:"agent_did,omitempty"`
	Generation    int64          `json:"generation,omitempty"`
	Status        DeliveryStatus `json:"status" enum:"applied,stale,unmatched"`
	// Matched is the number of leases that it ended. Their condition.applied events name the delivery.
	Matched int `json:"matched" doc:"Number of leases that it ended. Their condition.applied events name the delivery."`
	// Reason and DidYouMean are as in Receipt.
	Reason     DeliveryReason `json:"reason,omitempty" enum:"no_environment,no_condition,no_lease,already_ended,not_begun,began_later" doc:"Why it ended nothing. Absent if it was applied."`
	DidYouMean string         `json:"did_you_mean,omitempty" doc:"Only if unmatched: the condition that was probably meant."`
	Body       string         `json:"body" doc:"The message as received."`
}

// Cursor identifies the delivery among those of all environments, see DeliveryFilter.Before.
func (d StoredDelivery) Cursor() string { return d.EnvironmentID + "." + d.ID }

// SplitDeliveryCursor returns the environment and the id of the delivery with a cursor. No id contains a dot.
func SplitDeliveryCursor(cursor string) (environment, id string) {
	dot := strings.LastIndexByte(cursor, '.')
	return cursor[:max(dot, 0)], cursor[dot+1:]
}

// MaxDeliveryPage limits a page of deliveries. Each body has up to 64 KiB.
const MaxDeliveryPage = 100

// DeliveryFilter selects deliveries, newest first. An empty field selects all.
type DeliveryFilter struct {
	ID            string
	EnvironmentID string
	Status        DeliveryStatus
	// Before is the cursor of the last delivery of the previous page. If it is no longer stored, or of another environment
	// than EnvironmentID, the page is empty.
	Before string
	// Limit is the page size, 1 to MaxDeliveryPage; zero means MaxDeliveryPage.
	Limit int
}

// Validate checks status and page size. Errors: Invalid, listing the valid values.
func (f DeliveryFilter) Validate() error {
	var fields []Field
	if f.Status != "" && !slices.Contains(DeliveryStatuses, f.Status) {
		fields = append(fields, Field{Name: "status", Problem: fmt.Sprintf("must be one of %v", DeliveryStatuses)})
	}
	return InvalidFields("the filter of deliveries", checkLimit(fields, f.Limit, MaxDeliveryPage))
}
