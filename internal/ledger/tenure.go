package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Tenure is the generation and the lease of a sandbox, with its times. A sandbox that leaves a warm pool gets a new
// tenure as a whole.
type Tenure struct {
	// LeaseID is nil while the sandbox waits in a pool.
	LeaseID    *string
	Generation int64
	AgentDID   string `gorm:"column:agent_did"`
	Owner      string
	// BatchID names an all-or-none batch, "" for a single lease.
	BatchID      string
	LeasedAt     micro.Time
	ReadyAt      micro.Time // 0 before
	LastActivity micro.Time
}

// NewTenure returns a tenure that begins now.
func NewTenure(leaseID *string, generation int64, agentDID, owner string, now micro.Time) Tenure {
	return Tenure{
		LeaseID:      leaseID,
		Generation:   generation,
		AgentDID:     agentDID,
		Owner:        owner,
		LeasedAt:     now,
		LastActivity: now,
	}
}

// Lease returns the id of the sandbox's lease, "" in a pool.
func (t *Tenure) Lease() string {
	if t.LeaseID == nil {
		return ""
	}
	return *t.LeaseID
}

// Terms are the settings of a lease: its own ones, or else its environment's.
type Terms struct {
	TTL         micro.Span
	MaxLifetime micro.Span
	// SleepAfter is 0 for never. In a warm pool it is 0 for a sandbox that waits awake, and positive for one
	// that sleeps.
	SleepAfter micro.Span
	// CommandTimeout is for commands that set none; 0 means sandbox.DefaultExecTimeout.
	CommandTimeout   micro.Span
	ExpiryConditions []string              `gorm:"serializer:json"`
	Settings         sandbox.LeaseSettings `gorm:"serializer:json"`
	// Labels are the labels of the lease and of its environment.
	Labels map[string]string `gorm:"serializer:json"`
	// PostStart are the commands to run before the sandbox is ready.
	PostStart []sandbox.PostStart `gorm:"serializer:json"`
}

// NewTerms returns the terms of a lease with its own settings, which are already applied to spec.
func NewTerms(spec sandbox.EnvironmentSpec, own sandbox.LeaseSettings) Terms {
	return Terms{
		TTL: micro.SpanOf(spec.TTL), MaxLifetime: micro.SpanOf(spec.MaxLifetime), SleepAfter: micro.SpanOf(*spec.SleepAfter),
		CommandTimeout: micro.SpanOf(spec.CommandTimeout), ExpiryConditions: spec.ExpiryConditions, Settings: own,
		PostStart: spec.PostStart,
		Labels:    sandbox.EffectiveLabels(spec.Labels, nil), // GORM stores a nil map as NULL
	}
}

// Follow applies an environment's changed times, conditions and labels where the lease has none of its own. Lifetime
// and post-start commands stay as they were at the start of the lease.
func (t *Terms) Follow(spec sandbox.EnvironmentSpec) {
	applied := t.Settings.Apply(spec)
	t.TTL, t.SleepAfter = micro.SpanOf(applied.TTL), micro.SpanOf(*applied.SleepAfter)
	t.ExpiryConditions = applied.ExpiryConditions
	t.CommandTimeout = micro.SpanOf(applied.CommandTimeout)
	t.Labels = sandbox.EffectiveLabels(applied.Labels, nil)
}

// Limits are the times that a backend keeps itself.
func (t *Terms) Limits() driver.Limits {
	return driver.Limits{TTL: t.TTL.Duration(), SleepAfter: t.SleepAfter.Duration()}
}

// Origin is the origin of a sandbox that was not created for its lease: a warm pool or another ledger.
type Origin struct {
	// LedgerID is the label under which the backend knows an adopted sandbox; "" is this ledger's.
	LedgerID string
	// PooledAt is when the sandbox was created for a warm pool, 0 if it was not.
	PooledAt micro.Time
	// HardDeadline is the backend's deadline of the sandbox; 0 means leased_at + max_lifetime.
	HardDeadline micro.Time
}
