package sandbox

import "time"

// PriceBook holds the list prices of one backend. Data, with source and date; see internal/pricing.
type PriceBook struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	// AsOf is the date of the source, "2006-01-02".
	AsOf string `json:"as_of"`
	// Prices per second of provisioned size while awake, and of CPU actually used.
	MemoryGiBSecond NanoUSD `json:"memory_gib_second_usd"`
	CPUSecond       NanoUSD `json:"cpu_second_usd"`
	DiskGBSecond    NanoUSD `json:"disk_gb_second_usd"`
	// The same while asleep; a backend whose sleeping sandboxes hold nothing charges nothing.
	AsleepMemoryGiBSecond NanoUSD `json:"asleep_memory_gib_second_usd"`
	AsleepDiskGBSecond    NanoUSD `json:"asleep_disk_gb_second_usd"`
	// PlanMonth is the flat fee per account and month; Included is what it covers.
	PlanMonth NanoUSD   `json:"plan_month_usd"`
	Included  Allotment `json:"included,omitzero"`
}

// Allotment is the usage that a plan's monthly fee includes, once per account.
type Allotment struct {
	MemoryGiBSeconds int64 `json:"memory_gib_seconds"`
	CPUSeconds       int64 `json:"cpu_seconds"`
	DiskGBSeconds    int64 `json:"disk_gb_seconds"`
}

// CostGroup says by what a cost report is grouped.
type CostGroup string

// The groupings.
const (
	CostByLease       CostGroup = "lease"
	CostByEnvironment CostGroup = "environment"
	CostByAgent       CostGroup = "agent"
	CostByDay         CostGroup = "day"
	CostByMonth       CostGroup = "month"
)

// CostQuery selects usage. Zero times mean: from the beginning, until now. From and To are exact as
// long as single usage periods are kept; of what is older only UTC days are, and times within those
// are Invalid. A report up to a past moment says what it said then, except that the CPU time of a
// period is spread evenly over its length, which was not known before it ended.
type CostQuery struct {
	EnvironmentID string
	AgentDID      string
	From, To      time.Time
	GroupBy       CostGroup // zero means CostByLease
}

// CostRow is the gross cost of one group: the sum over the UTC days of its usage periods at list
// price, each rounded to the nano-dollar, so that all groupings of the same usage agree exactly;
// without plan fee and included allotment, which belong to an account and not to a lease.
type CostRow struct {
	EnvironmentID string `json:"environment_id,omitempty"`
	AgentDID      string `json:"agent_did,omitempty"`
	LeaseID       string `json:"lease_id,omitempty"`
	Day           string `json:"day,omitempty"`
	Month         string `json:"month,omitempty"`
	// Generations counts the generations whose usage began in the row and the time of the query; one
	// that began before does not count again. Usage in a warm pool is of no generation yet.
	Generations   int64   `json:"generations"`
	AwakeSeconds  float64 `json:"awake_seconds"`
	AsleepSeconds float64 `json:"asleep_seconds"`
	CPUSeconds    float64 `json:"cpu_seconds"`
	Cost          NanoUSD `json:"cost_usd"`
	// ShadowCost is what the same usage would cost on Cloudflare.
	ShadowCost NanoUSD `json:"shadow_cost_usd"`
}

// CostReport is the answer to a CostQuery.
type CostReport struct {
	AsOf  time.Time `json:"as_of"`
	Rows  []CostRow `json:"rows"`
	Total CostRow   `json:"total"`
	// PriceBooks are the books that were applied, by backend.
	PriceBooks map[Backend]PriceBook `json:"price_books"`
}

// DriftKind says how the world differs from the ledger.
type DriftKind string

// The kinds of drift.
const (
	DriftVanished    DriftKind = "vanished"
	DriftStopped     DriftKind = "stopped"
	DriftOutOfMemory DriftKind = "out_of_memory"
	DriftChanged     DriftKind = "changed"
	DriftOrphan      DriftKind = "orphan" // labelled as ours, known to no row
	// DriftLeftover: a volume, network or helper of ours whose sandbox or environment is gone.
	DriftLeftover DriftKind = "leftover"
)

// DriftFinding is one difference between ledger and backend, kept as a record.
type DriftFinding struct {
	ID            int64     `json:"id"`
	Kind          DriftKind `json:"kind" enum:"vanished,stopped,out_of_memory,changed,orphan,leftover"`
	SandboxID     string    `json:"sandbox_id"`
	LeaseID       string    `json:"lease_id,omitempty"`
	EnvironmentID string    `json:"environment_id,omitempty"`
	Instance      string    `json:"instance"`
	Field         string    `json:"field,omitempty"`
	Expected      string    `json:"expected,omitempty"`
	Observed      string    `json:"observed,omitempty"`
	FirstSeenAt   time.Time `json:"first_seen_at"`
	LastSeenAt    time.Time `json:"last_seen_at"`
	ResolvedAt    time.Time `json:"resolved_at,omitzero"`
	// Resolution says how it was resolved or, while it is open, who has to do what.
	Resolution string `json:"resolution,omitempty"`
}

// DriftFilter selects findings, newest first.
type DriftFilter struct {
	EnvironmentID string
	LeaseID       string
	// OpenOnly leaves out what is resolved.
	OpenOnly bool
	Limit    int
}

// LedgerInfo identifies the ledger behind a Service.
type LedgerInfo struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	// PriceBooks are in force, by backend.
	PriceBooks map[Backend]PriceBook `json:"price_books"`
}
