package accounting

import (
	"cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

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
	// ContinuesFrom is when the usage began that the period continues after a midnight, 0 if it begins with the period.
	ContinuesFrom micro.Time
	CPU           micro.Span
	// RolledAt is when cost_days and sandbox_costs first counted it, 0 before. It is negative if only
	// cost_days counts it.
	RolledAt micro.Time
	// Generations is 1 if a generation's usage begins with this period. Usage in a pool belongs to no
	// generation.
	Generations int64
}

// BegunAt returns when the usage began. A reading of CPU time divides usage at midnight, and that begins nothing.
func (p *UsagePeriod) BegunAt() micro.Time { return cmp.Or(p.ContinuesFrom, p.StartedAt) }

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
