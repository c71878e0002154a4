package sandbox

import (
	"cmp"
	"errors"
	"fmt"
)

// MaxBatch is how many leases one AcquireBatch may ask for.
const MaxBatch = 100

// AcquireBatch asks for the leases of several agents at once, such as all who sit at a game's table.
type AcquireBatch struct {
	// EnvironmentID, Owner and Settings hold for every item that does not name its own.
	EnvironmentID string        `json:"environment_id,omitempty" doc:"Of the items that name none."`
	Owner         string        `json:"owner,omitempty" doc:"Of the items that name none. Default is the caller's token."`
	Settings      LeaseSettings `json:"settings,omitzero" doc:"Of the items; an item's own settings replace them one by one."`
	Items         []BatchItem   `json:"items" minItems:"1" maxItems:"100" doc:"One for each lease; no two ask for the same one."`
	// AllOrNone: when one item cannot be leased, no lease begins, and those that the batch has begun end.
	AllOrNone bool `json:"all_or_none,omitempty" doc:"Lease every item, or none: when one fails, what the batch has begun is released."`
	// NoWait: as in Acquire.
	NoWait bool `json:"-"`
	// Tenant: as in Acquire.
	Tenant *Tenant `json:"-"`
}

// BatchItem asks for the lease of one agent.
type BatchItem struct {
	AgentDID      string        `json:"agent_did"`
	EnvironmentID string        `json:"environment_id,omitempty"`
	Owner         string        `json:"owner,omitempty"`
	Settings      LeaseSettings `json:"settings,omitzero"`
}

// AcquireResult is what became of one item of a batch. Err is nil where the item has its lease.
type AcquireResult struct {
	Acquired
	Err error
}

// Each returns what the items ask for, in their order.
func (b AcquireBatch) Each() []Acquire {
	all := make([]Acquire, len(b.Items))
	for i, item := range b.Items {
		all[i] = Acquire{
			AgentDID: item.AgentDID, EnvironmentID: cmp.Or(item.EnvironmentID, b.EnvironmentID), Owner: cmp.Or(item.Owner, b.Owner),
			Settings: b.Settings.with(item.Settings), NoWait: b.NoWait, Tenant: b.Tenant,
		}
	}
	return all
}

// with returns the settings, replaced by those of the other that are set.
func (s LeaseSettings) with(o LeaseSettings) LeaseSettings {
	s.TTL, s.SleepAfter, s.MaxLifetime = cmp.Or(o.TTL, s.TTL), cmp.Or(o.SleepAfter, s.SleepAfter), cmp.Or(o.MaxLifetime, s.MaxLifetime)
	if len(o.ExpiryConditions) > 0 {
		s.ExpiryConditions = o.ExpiryConditions
	}
	return s
}

// Validate checks the request on its own. Errors: Invalid, naming each field of each item.
func (b AcquireBatch) Validate() error {
	var f []Field
	if n := len(b.Items); n < 1 || n > MaxBatch {
		f = append(f, Field{"items", fmt.Sprintf("must have 1 to %d elements, not %d: send larger groups as several batches", MaxBatch, n)})
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
			f = append(f, Field{name, "asks for the same lease as " + ItemName(other)})
		} else {
			first[id] = i
		}
	}
	return InvalidFields("batch", f)
}

// ItemName is how errors name an item of a batch.
func ItemName(i int) string { return fmt.Sprintf("items[%d]", i) }

// ItemError is why a batch of all or none leases none: its item i could not be leased. It has the code and the reason of
// the cause, and names the item as its first field.
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
	message := "the batch leases all or none, and none is leased: " + e.Message
	return &Error{Code: e.Code, Reason: e.Reason, Message: message, Fields: fields, Err: cause}
}
