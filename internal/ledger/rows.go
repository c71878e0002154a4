package ledger

import (
	"cmp"
	"encoding/json"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Desired is the wanted state of a sandbox.
type Desired string

// The wanted states.
const (
	Present Desired = "present"
	Gone    Desired = "gone"
)

// Environment is a row of environments.
type Environment struct {
	ID       string `gorm:"primaryKey"`
	Owner    string
	Type     sandbox.EnvironmentType
	Backend  sandbox.Backend
	Instance string
	Spec     sandbox.EnvironmentSpec `gorm:"serializer:json"`
	Status   sandbox.EnvironmentStatus
	Epoch    int64
	Ended    EnvironmentEnd `gorm:"embedded;embeddedPrefix:ended_"`
	OpenedAt micro.Time
	Pool     PoolFailures     `gorm:"embedded;embeddedPrefix:pool_"`
	Claim    EnvironmentClaim `gorm:"embedded"`
	// UnmadeSince is when the first creation began, 0 once it has succeeded.
	UnmadeSince micro.Time
	// PurgedAt is when the details were purged so that only the name is left, 0 before.
	PurgedAt  micro.Time `gorm:"column:retired_at"`
	CreatedAt micro.Time `gorm:"autoCreateTime:false"`
	UpdatedAt micro.Time `gorm:"autoUpdateTime:false"`
}

// EnvironmentEnd is the set of conditions that have ended an environment since it was last opened.
type EnvironmentEnd struct {
	Conditions []string `gorm:"serializer:json"`
	// By is the last one of Conditions, At its time.
	By string
	At micro.Time
}

// PoolFailures counts the sandboxes of a warm pool that could not be made, in a row.
type PoolFailures struct {
	Failures int64
	// Error is the text of the last failure. No sandbox is made before DueAt.
	Error string
	DueAt micro.Time
}

// EnvironmentClaim is the right of one request to create, change or remove an environment's resources on its
// backend.
type EnvironmentClaim struct {
	Token string     `gorm:"column:claim"`
	Until micro.Time `gorm:"column:claimed_until"`
}

// Holds reports whether the claim is valid at now.
func (c *EnvironmentClaim) Holds(now micro.Time) bool { return c.Until > now }

// Lease is a row of leases.
type Lease struct {
	ID            string `gorm:"primaryKey"`
	AgentDID      string `gorm:"column:agent_did"`
	EnvironmentID string
	Generation    int64
	SandboxID     string
	CreatedAt     micro.Time `gorm:"autoCreateTime:false"`
}

// Hold is a row of holds: a use that counts as activity until it ends.
type Hold struct {
	SandboxID string `gorm:"primaryKey"`
	Holder    string `gorm:"primaryKey"`
	Until     micro.Time
}

// Event is a row of events.
type Event struct {
	ID            int64 `gorm:"primaryKey"`
	EnvironmentID string
	LeaseID       string
	SandboxID     string
	Generation    int64
	Sequence      int64
	Type          sandbox.EventType
	At            micro.Time
	Actor         string
	Address       string
	Data          string
}

// Domain converts the event to the domain type.
func (e *Event) Domain() sandbox.Event {
	return sandbox.Event{
		ID:            e.ID,
		Sequence:      e.Sequence,
		SandboxID:     e.SandboxID,
		LeaseID:       e.LeaseID,
		Generation:    e.Generation,
		EnvironmentID: e.EnvironmentID,
		Type:          e.Type,
		At:            e.At.Time(),
		Actor:         e.Actor,
		Address:       e.Address,
		Data:          json.RawMessage(e.Data),
	}
}

// Delivery is a row of deliveries.
type Delivery struct {
	ID            string `gorm:"primaryKey"`
	ReceivedAt    micro.Time
	Source        string
	Body          []byte
	Type          string
	EnvironmentID string
	AgentDID      string `gorm:"column:agent_did"`
	Generation    int64
	OccurredAt    micro.Time
	Status        sandbox.DeliveryStatus
	Matched       int
	DidYouMean    string
}

// PriceBook is a row of price_books.
type PriceBook struct {
	ID      string `gorm:"primaryKey"`
	Backend sandbox.Backend
	Body    sandbox.PriceBook `gorm:"serializer:json"`
	AddedAt micro.Time
}

// UsagePeriod is a row of usage_periods: a stretch of time that one sandbox spent in one billable state.
type UsagePeriod struct {
	ID            int64 `gorm:"primaryKey"`
	SandboxID     string
	LeaseID       string
	EnvironmentID string
	AgentDID      string `gorm:"column:agent_did"`
	Backend       sandbox.Backend
	Instance      string
	PriceBookID   string
	MemoryMB      int64
	CPUMillis     int64
	DiskMB        int64
	State         sandbox.Phase
	StartedAt     micro.Time
	EndedAt       micro.Time
	CPU           micro.Span
	// RolledAt is when cost_days and sandbox_costs first counted it, 0 before. It is negative if only
	// cost_days counts it.
	RolledAt micro.Time
	// Generations is 1 if a generation's usage begins with this period. Usage in a pool belongs to no
	// generation.
	Generations int64
}

// Resources returns the size that the period is billed for.
func (p *UsagePeriod) Resources() sandbox.Resources {
	return sandbox.Resources{MemoryMB: p.MemoryMB, CPUMillis: p.CPUMillis, DiskMB: p.DiskMB}
}

// CostDay is a row of cost_days: ended usage of one lease on one UTC day.
type CostDay struct {
	Month         string `gorm:"primaryKey"` // 2006-01
	EnvironmentID string `gorm:"primaryKey"`
	LeaseID       string `gorm:"primaryKey"`
	Instance      string `gorm:"primaryKey"`
	Day           string `gorm:"primaryKey"` // 2006-01-02
	AgentDID      string `gorm:"column:agent_did"`
	Backend       sandbox.Backend
	Usage
}

// AccountDay is a row of account_days: the price book of the most recently begun usage of an account on a UTC
// day.
type AccountDay struct {
	Instance    string `gorm:"primaryKey"`
	Day         string `gorm:"primaryKey"`
	Backend     sandbox.Backend
	PriceBookID string
	// BegunAt is when that usage began, possibly on an earlier day.
	BegunAt micro.Time
}

// Later reports whether usage with its book began later than with the other's.
func (d AccountDay) Later(o AccountDay) bool {
	return cmp.Or(cmp.Compare(d.BegunAt, o.BegunAt), cmp.Compare(d.PriceBookID, o.PriceBookID)) > 0
}

// BudgetThreshold is a row of budget_thresholds: a month's budget reached a percentage.
type BudgetThreshold struct {
	EnvironmentID string          `gorm:"primaryKey"`
	Month         string          `gorm:"primaryKey"` // 2006-01
	Monthly       sandbox.NanoUSD `gorm:"primaryKey;autoIncrement:false"`
	Percent       int64           `gorm:"primaryKey;autoIncrement:false"`
	Spent         sandbox.NanoUSD
	ReachedAt     micro.Time
}

// Usage is an amount of usage and its price.
type Usage struct {
	// Generations is the number of generations whose usage began in it.
	Generations int64
	Awake       micro.Span
	Asleep      micro.Span
	CPU         micro.Span
	Memory      int64 // MiB x milliseconds, awake
	Disk        int64 // MB x milliseconds, awake
	// Cost is gross. Shadow is the cost at Cloudflare's list prices.
	Cost   sandbox.Charges `gorm:"embedded;embeddedPrefix:cost_"`
	Shadow sandbox.Charges `gorm:"embedded;embeddedPrefix:shadow_"`
}

// Plus returns the sum of both.
func (u Usage) Plus(o Usage) Usage {
	return Usage{
		Generations: u.Generations + o.Generations,
		Awake:       u.Awake + o.Awake, Asleep: u.Asleep + o.Asleep, CPU: u.CPU + o.CPU,
		Memory: u.Memory + o.Memory, Disk: u.Disk + o.Disk,
		Cost: u.Cost.Plus(o.Cost), Shadow: u.Shadow.Plus(o.Shadow),
	}
}

// DriftFinding is a row of drift_findings.
type DriftFinding struct {
	ID            int64 `gorm:"primaryKey"`
	Kind          sandbox.DriftKind
	SandboxID     string
	LeaseID       string
	EnvironmentID string
	Instance      string
	Field         string
	Expected      string
	Observed      string
	FirstSeenAt   micro.Time
	LastSeenAt    micro.Time
	Looks         int64
	ResolvedAt    micro.Time
	Resolution    string
}

// Domain converts the finding to the domain type.
func (f *DriftFinding) Domain() sandbox.DriftFinding {
	return sandbox.DriftFinding{
		ID: f.ID, Kind: f.Kind, SandboxID: f.SandboxID, LeaseID: f.LeaseID, EnvironmentID: f.EnvironmentID,
		Instance: f.Instance, Field: f.Field, Expected: f.Expected, Observed: f.Observed,
		FirstSeenAt: f.FirstSeenAt.Time(), LastSeenAt: f.LastSeenAt.Time(),
		ResolvedAt: f.ResolvedAt.Time(), Resolution: f.Resolution,
	}
}
