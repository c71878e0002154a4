package sandbox

import (
	"fmt"
	"slices"
	"time"
)

// LeaseStatus is where a lease stands. It is derived from its sandbox: what is wanted and what was seen.
type LeaseStatus string

// The lease statuses.
const (
	// LeasePending: the sandbox is being made.
	LeasePending LeaseStatus = "pending"
	// LeaseActive: the sandbox is ready, awake or asleep.
	LeaseActive LeaseStatus = "active"
	// LeaseExpired: a reason to end exists and the sandbox may still be there.
	LeaseExpired LeaseStatus = "expired"
	// LeaseDestroyed: the backend confirmed that the sandbox is gone.
	LeaseDestroyed LeaseStatus = "destroyed"
)

// LeaseStatuses lists the statuses in the order that a lease goes through them.
var LeaseStatuses = []LeaseStatus{LeasePending, LeaseActive, LeaseExpired, LeaseDestroyed}

// Phase is what was last seen of a sandbox.
type Phase string

// The phases.
const (
	PhasePending Phase = "pending" // not yet made, or not known to be
	PhaseAwake   Phase = "awake"
	PhaseAsleep  Phase = "asleep"
	PhaseGone    Phase = "gone" // confirmed by its backend instance
)

// EndedBy is the kind of reason for which a lease ended.
type EndedBy string

// The kinds of reasons.
const (
	EndedByCondition   EndedBy = "condition"
	EndedByTTL         EndedBy = "ttl"
	EndedByMaxLifetime EndedBy = "max_lifetime"
	EndedByBudget      EndedBy = "budget"
	EndedByRelease     EndedBy = "release"
	EndedByFailed      EndedBy = "failed"      // never became ready
	EndedByCrashed     EndedBy = "crashed"     // stopped, or ran out of memory, by itself
	EndedByVanished    EndedBy = "vanished"    // its backend instance no longer has it
	EndedByEnvironment EndedBy = "environment" // the environment was destroyed
	EndedByAdmin       EndedBy = "admin"
)

// EndedByRules reports whether a lease ended as it was meant to, rather than by drift.
func (e EndedBy) EndedByRules() bool {
	switch e {
	case EndedByVanished, EndedByCrashed, EndedByFailed, "":
		return false
	default:
		return true
	}
}

// LeaseSettings are what one lease may set instead of its environment. Nil and empty mean: as the environment.
type LeaseSettings struct {
	TTL              *Duration `json:"ttl,omitempty"`
	SleepAfter       *Duration `json:"sleep_after,omitempty"`
	MaxLifetime      *Duration `json:"max_lifetime,omitempty" doc:"Fixed when the lease begins."`
	ExpiryConditions []string  `json:"expiry_conditions,omitempty"`
}

// Apply returns the specification as it holds for a lease with these settings.
func (s LeaseSettings) Apply(spec EnvironmentSpec) EnvironmentSpec {
	if s.TTL != nil {
		spec.TTL = *s.TTL
	}
	if s.SleepAfter != nil {
		spec.SleepAfter = s.SleepAfter
	}
	if s.MaxLifetime != nil {
		spec.MaxLifetime = *s.MaxLifetime
	}
	if len(s.ExpiryConditions) > 0 {
		spec.ExpiryConditions = s.ExpiryConditions
	}
	return spec
}

// Lease is the right of one agent to one sandbox in one environment, in its current generation.
type Lease struct {
	// ID is "<agent_did>::<environment_id>".
	ID            string `json:"id"`
	AgentDID      string `json:"agent_did"`
	EnvironmentID string `json:"environment_id"`
	// Owner is who may renew and release it: an API token, or one Terraform object.
	Owner string `json:"owner"`
	// Generation counts the incarnations of the lease, from 1.
	Generation int64       `json:"generation"`
	Status     LeaseStatus `json:"status" enum:"pending,active,expired,destroyed"`
	SandboxID  string      `json:"sandbox_id"`
	Phase      Phase       `json:"phase" enum:"pending,awake,asleep,gone"`
	Standing
	Backend  Backend `json:"backend"`
	Instance string  `json:"instance,omitempty"`

	Image            string      `json:"image"`
	Resources        Resources   `json:"resources"`
	Network          NetworkMode `json:"network"`
	TTL              Duration    `json:"ttl"`
	MaxLifetime      Duration    `json:"max_lifetime"`
	SleepAfter       Duration    `json:"sleep_after"`
	SleepMode        SleepMode   `json:"sleep_mode"`
	ExpiryConditions []string    `json:"expiry_conditions"`
	// Settings are the lease's own, where it differs from its environment.
	Settings LeaseSettings `json:"settings,omitzero"`

	LeasedAt     time.Time `json:"leased_at"`
	ReadyAt      time.Time `json:"ready_at,omitzero"`
	LastActivity time.Time `json:"last_activity"`
	// ExpiresAt is min(last_activity + ttl, leased_at + max_lifetime); it moves with every use.
	ExpiresAt time.Time `json:"expires_at"`
	// Drift are the open findings about the sandbox: where the backend shows something else.
	Drift []DriftFinding `json:"drift,omitempty"`
	// ObservedAt is when the backend last said something about the sandbox.
	ObservedAt time.Time `json:"observed_at,omitzero"`

	EndedAt   time.Time `json:"ended_at,omitzero"`
	EndedBy   EndedBy   `json:"ended_by,omitempty"`
	EndReason string    `json:"end_reason,omitempty"`
	// KeptUntil is until when a sandbox that failed after it was ready is kept, stopped, to be looked at.
	KeptUntil time.Time `json:"kept_until,omitzero" doc:"Until when a sandbox that failed is kept, stopped, for a post-mortem; releasing its generation removes it earlier."`
	// DestroyedAt is when the backend confirmed that the sandbox is gone.
	DestroyedAt time.Time `json:"destroyed_at,omitzero"`
	// State is where the state of /data stands, nil where the environment keeps none.
	State *LeaseState `json:"state,omitempty"`
	// Attempts counts failed tries of the step at hand; LastError is the last one's text.
	Attempts  int64  `json:"attempts,omitempty"`
	LastError string `json:"last_error,omitempty"`

	// Cost is the gross cost of this generation so far, at its backend's prices.
	Cost NanoUSD `json:"cost_usd"`
	// LastSequence is the sequence of the sandbox's latest event.
	LastSequence int64 `json:"last_sequence"`
	// LastEventID is the ledger's latest event as of this reading: a reader that follows the events after it
	// misses none and gets none twice.
	LastEventID int64 `json:"last_event_id" doc:"The ledger's latest event as of this reading: follow after it."`
	// RetiredAt is when the details of a destroyed lease were purged. What stays is its owner, its generation,
	// when and by what it ended, and what it cost.
	RetiredAt time.Time `json:"retired_at,omitzero"`
}

// Acquire asks for an agent's lease in an environment.
type Acquire struct {
	AgentDID      string        `json:"agent_did"`
	EnvironmentID string        `json:"environment_id"`
	Owner         string        `json:"owner,omitempty" doc:"Default is the caller's token."`
	Settings      LeaseSettings `json:"settings,omitzero"`
	// NoWait: the lease is wanted as soon as it is accepted, pending where its sandbox is not ready yet.
	// It is no part of what is asked for: with it and without it, the same lease is acquired.
	NoWait bool `json:"-"`
	// Tenant is who asks, nil for the operator. The service's face sets it; no request says it.
	Tenant *Tenant `json:"-"`
}

// Validate checks the request on its own. Errors: Invalid, naming each field.
func (a Acquire) Validate() error { return InvalidFields("lease", a.fields()) }

func (a Acquire) fields() []Field {
	f := checkAgentDID(nil, "agent_did", a.AgentDID)
	f = checkEnvironmentID(f, "environment_id", a.EnvironmentID)
	return append(f, a.Settings.fields()...)
}

func (s LeaseSettings) fields() []Field {
	fields := s.Apply(EnvironmentSpec{}.WithDefaults()).leaseFields()
	for i := range fields {
		fields[i].Name = "settings." + fields[i].Name
	}
	return fields
}

// Acquired is the answer to Acquire.
type Acquired struct {
	Lease Lease `json:"lease"`
	// IsNew is true for exactly one of the callers that ask for the same generation.
	IsNew bool `json:"is_new"`
}

// LeaseRef names a lease in a request.
type LeaseRef struct {
	ID string `json:"id"`
	// Generation fences: a request for another generation than the current one is refused
	// (Conflict, ReasonOtherGeneration). Zero means the current one.
	Generation int64 `json:"generation,omitempty"`
	// Owner must be the lease's owner where a method says so. Empty means: do not check.
	Owner string `json:"owner,omitempty"`
}

func (r LeaseRef) String() string {
	if r.Generation == 0 {
		return r.ID
	}
	return fmt.Sprintf("%s generation %d", r.ID, r.Generation)
}

// Renew extends a lease and, with Settings, changes what it may change.
type Renew struct {
	LeaseRef
	// Settings replace the lease's own settings when not nil. MaxLifetime cannot change.
	Settings *LeaseSettings `json:"settings,omitempty"`
}

// Validate checks the request on its own. Errors: Invalid.
func (r Renew) Validate() error {
	if r.Settings == nil {
		return nil
	}
	return InvalidFields("lease settings", r.Settings.fields())
}

// LeaseCounts is how many leases there are, by the state of their sandboxes. What is deleted does not count.
type LeaseCounts struct {
	Pending  int64 `json:"pending"`
	Ready    int64 `json:"ready"`
	Asleep   int64 `json:"asleep"`
	Stopped  int64 `json:"stopped"`
	Failed   int64 `json:"failed"`
	Deleting int64 `json:"deleting"`
}

// Live is how many leases may be used.
func (c LeaseCounts) Live() int64 { return c.Pending + c.Ready + c.Asleep + c.Stopped }

// Plus returns the sum of both.
func (c LeaseCounts) Plus(o LeaseCounts) LeaseCounts {
	return LeaseCounts{c.Pending + o.Pending, c.Ready + o.Ready, c.Asleep + o.Asleep, c.Stopped + o.Stopped, c.Failed + o.Failed, c.Deleting + o.Deleting}
}

// LeaseFilter selects leases; empty fields select all.
type LeaseFilter struct {
	EnvironmentID string
	AgentDID      string
	Status        LeaseStatus
	// After is the id of the last lease of the page before.
	After string
	// Limit is the page size, 1 to 1000; zero means 1000.
	Limit int
}

// Validate checks a filter. Errors: Invalid.
func (f LeaseFilter) Validate() error {
	if f.Status == "" || slices.Contains(LeaseStatuses, f.Status) {
		return nil
	}
	return InvalidFields("the filter of leases", []Field{{Name: "status", Problem: fmt.Sprintf("must be one of %v, not %q", LeaseStatuses, f.Status)}})
}

// Page sizes of all lists.
const MaxPage = 1000
