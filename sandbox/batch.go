package sandbox

import (
	"cmp"
	"errors"
	"fmt"
)

// MaxBatch is the largest number of leases in one AcquireBatch.
const MaxBatch = 100

// AcquireBatch asks for the leases of several agents together, such as all players at a game's table.
type AcquireBatch struct {
	// EnvironmentID, Owner and Settings are defaults for items that do not set their own.
	EnvironmentID string        `json:"environment_id,omitempty" doc:"Default for items that name none."`
	Owner         string        `json:"owner,omitempty" doc:"Default for items that name none. Default: the caller's token."`
	Settings      LeaseSettings `json:"settings,omitzero" doc:"Defaults for the items. Each setting of an item overrides its default."`
	Items         []BatchItem   `json:"items" minItems:"1" maxItems:"100" doc:"One item for each lease. Two items must not name the same lease."`
	// AllOrNone: if one item fails, no item gets a lease, and the leases that the batch began end.
	AllOrNone bool `json:"all_or_none,omitempty" doc:"Lease every item or none: if one fails, the leases that the batch began are released."`
	// NoWait: see Acquire.
	NoWait bool `json:"-"`
	// Tenant: see Acquire.
	Tenant *Tenant `json:"-"`
}

// BatchItem asks for the lease of one agent.
type BatchItem struct {
	AgentDID      string        `json:"agent_did"`
	EnvironmentID string        `json:"environment_id,omitempty"`
	Owner         string        `json:"owner,omitempty"`
	Settings      LeaseSettings `json:"settings,omitzero"`
}

// AcquireResult is the result of one item of a batch. Err is nil if the item has its lease.
type AcquireResult struct {
	Acquired
	Err error
}

// Each returns one Acquire for each item, in order.
func (b AcquireBatch) Each() []Acquire {
	all := make([]Acquire, len(b.Items))
	for i, item := range b.Items {
		all[i] = Acquire{
			AgentDID:      item.AgentDID,
			EnvironmentID: cmp.Or(item.EnvironmentID, b.EnvironmentID),
			Owner:         cmp.Or(item.Owner, b.Owner),
			Settings:      b.Settings.with(item.Settings),
			NoWait:        b.NoWait,
			Tenant:        b.Tenant,
		}
	}
	return all
}

// with returns the settings with the set fields of o replacing those of s.
func (s LeaseSettings) with(o LeaseSettings) LeaseSettings {
	s.TTL, s.SleepAfter, s.MaxLifetime = cmp.Or(o.TTL, s.TTL), cmp.Or(o.SleepAfter, s.SleepAfter), cmp.Or(o.MaxLifetime,
		s.MaxLifetime)
	if len(o.ExpiryConditions) > 0 {
		s.ExpiryConditions = o.ExpiryConditions
	}
	if len(o.Labels) > 0 {
		s.Labels = o.Labels
	}
	return s
}

// Validate checks the request without the ledger. Errors: Invalid, naming each field of each item.
func (b AcquireBatch) Validate() error {
	var f []Field
	if n := len(b.Items); n < 1 || n > MaxBatch {
		f = append(f, Field{
			"items", fmt.Sprintf("must have 1 to %d elements, not %d: send larger groups as several batches", MaxBatch, n),
		})
		return InvalidFields("batch", f)
	}
	first := make(map[string]int, len(b.Items))
	for i, a := range b.Each() {
		name := ItemName(i)
		for _, wrong := range a.fields() {
			f = append(f, Field{name + "." + wrong.Name, wrong.Problem})
		}
		id := LeaseID(a.AgentDID, a.EnvironmentID)
		if other, ok := first[id]; ok {
			f = append(f, Field{name, "names the same lease as " + ItemName(other)})
		} else {
			first[id] = i
		}
	}
	return InvalidFields("batch", f)
}

// ItemName returns the name that errors use for an item of a batch.
func ItemName(i int) string { return fmt.Sprintf("items[%d]", i) }

// ItemError is the error of an all-or-none batch whose item i failed. It keeps the code and the reason of the
// cause and names the item in its first field.
func (b AcquireBatch) ItemError(i int, cause error) error {
	var e *Error
	if !errors.As(cause, &e) {
		return cause
	}
	item := b.Each()[i]
	fields := []Field{{ItemName(i), "lease " + LeaseID(item.AgentDID, item.EnvironmentID) + " could not begin"}}
	for _, f := range e.Fields {
		fields = append(fields, Field{ItemName(i) + "." + f.Name, f.Problem})
	}
	message := "the batch leases all items or none, and it leased none: " + e.Message
	return &Error{Code: e.Code, Reason: e.Reason, Message: message, Fields: fields, Err: cause}
}
