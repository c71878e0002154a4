package sandbox

import (
	"math"
	"strings"
	"time"
)

// PriceBook holds the list prices of one backend, with their source and date. See internal/pricing.
type PriceBook struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	// AsOf is the date of the source, "2006-01-02".
	AsOf string `json:"as_of"`
	// Prices per second of provisioned size while awake, and of CPU actually used.
	MemoryGiBSecond NanoUSD `json:"memory_gib_second_usd"`
	CPUSecond       NanoUSD `json:"cpu_second_usd"`
	DiskGBSecond    NanoUSD `json:"disk_gb_second_usd"`
	// Prices while asleep. A backend whose sleeping sandboxes hold nothing charges nothing.
	AsleepMemoryGiBSecond NanoUSD `json:"asleep_memory_gib_second_usd"`
	AsleepDiskGBSecond    NanoUSD `json:"asleep_disk_gb_second_usd"`
	// PlanMonth is the flat fee per account and month. Included is the usage that it covers.
	PlanMonth NanoUSD   `json:"plan_month_usd"`
	Included  Allotment `json:"included,omitzero"`
}

// Allotment is the usage that a plan's monthly fee includes, once per account.
type Allotment struct {
	MemoryGiBSeconds int64 `json:"memory_gib_seconds"`
	CPUSeconds       int64 `json:"cpu_seconds"`
	DiskGBSeconds    int64 `json:"disk_gb_seconds"`
}

// Charges is a gross cost by purpose: memory and disk held while awake, CPU used while awake, and everything
// held while asleep.
type Charges struct {
	Memory, CPU, Disk, Asleep NanoUSD
}

// Total returns the sum, capped at the largest NanoUSD.
func (c Charges) Total() NanoUSD {
	var total NanoUSD
	for _, n := range [...]NanoUSD{c.Memory, c.CPU, c.Disk, c.Asleep} {
		if n > math.MaxInt64-total {
			return math.MaxInt64
		}
		total += n
	}
	return total
}

// Plus returns the sum of c and o.
func (c Charges) Plus(o Charges) Charges {
	return Charges{c.Memory + o.Memory, c.CPU + o.CPU, c.Disk + o.Disk, c.Asleep + o.Asleep}
}

// Amounts is what an account owes for usage: at list price, and after its plan.
type Amounts struct {
	// Gross is the sum of usage periods at list price.
	Gross NanoUSD `json:"gross_usd" doc:"Sum of usage periods at list price."`
	// Included is what the account's plan includes. PlanFee is the plan's fee.
	Included NanoUSD `json:"included_usd" doc:"Usage that the account's plan includes; it is subtracted."`
	PlanFee  NanoUSD `json:"plan_fee_usd" doc:"The account's plan fee."`
	// Net is Gross - Included + PlanFee.
	Net NanoUSD `json:"net_usd" doc:"gross_usd - included_usd + plan_fee_usd"`
}

// Plus returns the sum of a and o.
func (a Amounts) Plus(o Amounts) Amounts {
	return Amounts{a.Gross + o.Gross, a.Included + o.Included, a.PlanFee + o.PlanFee, a.Net + o.Net}
}

// CostGroup says how a cost report groups usage.
type CostGroup string

// The groupings.
const (
	CostByLease       CostGroup = "lease"
	CostByEnvironment CostGroup = "environment"
	CostByAgent       CostGroup = "agent"
	CostByDay         CostGroup = "day"
	CostByMonth       CostGroup = "month"
)

// costByLabel is the prefix of a grouping by a label.
const costByLabel = "label:"

// CostByLabel groups by the value of a label. Usage without the label is one row.
func CostByLabel(key string) CostGroup { return CostGroup(costByLabel + key) }

// Label returns the key of a grouping by a label.
func (g CostGroup) Label() (key string, byLabel bool) {
	return strings.CutPrefix(string(g), costByLabel)
}

// CostQuery selects usage. Zero times mean: from the beginning, until now. From and To are exact while single
// usage periods are kept. Older usage is kept by UTC day, and a time within such a day is Invalid. A report up
// to a past time does not change later, with one exception: when a period ends, its CPU time is spread evenly
// over its length.
type CostQuery struct {
	EnvironmentID string
	AgentDID      string
	// Labels selects leases by the labels that they have now. Usage in a warm pool has the labels of its environment.
	Labels   LabelSelector
	From, To time.Time
	GroupBy  CostGroup // zero means CostByLease
}

// Validate checks the query without the ledger. Errors: Invalid.
func (q CostQuery) Validate() error {
	f := checkTimes(q.Labels.fields(), q.From, q.To)
	key, byLabel := q.GroupBy.Label()
	switch q.GroupBy {
	case "", CostByLease, CostByEnvironment, CostByAgent, CostByDay, CostByMonth:
	default:
		if !byLabel || LabelSelector(key).fields() != nil || key == "" {
			f = append(f, Field{"group_by", "must be lease, environment, agent, day, month or label:<key>"})
		}
	}
	return InvalidFields("cost query", f)
}

// CostRow is the usage and the cost of one group at list price. It depends only on the group's own usage, so it never
// falls. Only the report's accounts contain what plans include and cost.
type CostRow struct {
	EnvironmentID string `json:"environment_id,omitempty"`
	AgentDID      string `json:"agent_did,omitempty"`
	LeaseID       string `json:"lease_id,omitempty"`
	Day           string `json:"day,omitempty"`
	Month         string `json:"month,omitempty"`
	// Label is the value of the label that the report groups by, "" if the label is empty or missing.
	Label string `json:"label,omitempty" doc:"Value of the label that the report groups by."`
	// Generations counts the generations whose usage began in this row within the query's time. Usage in a warm
	// pool belongs to no generation.
	Generations   int64   `json:"generations"`
	AwakeSeconds  float64 `json:"awake_seconds"`
	AsleepSeconds float64 `json:"asleep_seconds"`
	CPUSeconds    float64 `json:"cpu_seconds"`
	// Gross is the sum over the UTC days of its usage periods, each charged to the nano-dollar.
	Gross NanoUSD `json:"gross_usd" doc:"Cost of sandboxes at list price."`
	// LLM is the use of models by calls that began in this row within the query's time, at list price.
	LLM LLMUse `json:"llm,omitzero" doc:"What model calls used, at the list prices of their routes."`
	// Total is Gross and the cost of LLM, which budgets count.
	Total NanoUSD `json:"total_usd" doc:"gross_usd + llm.cost_usd"`
	// Shadow is what the same usage would cost on Cloudflare.
	Shadow NanoUSD `json:"shadow_gross_usd" doc:"What the same usage of sandboxes would cost on Cloudflare at list price."`
}

// Spent returns the cost that budgets count.
func (r CostRow) Spent() NanoUSD { return r.Total }

// Resource is what an account line charges for.
type Resource string

// The resources. Some price books charge for sleep. No allotment includes it.
const (
	ResourceMemory Resource = "memory"
	ResourceCPU    Resource = "cpu"
	ResourceDisk   Resource = "disk"
	ResourceAsleep Resource = "asleep"
)

// AccountLine is what an account used of one resource in a month.
type AccountLine struct {
	Resource Resource `json:"resource" enum:"memory,cpu,disk,asleep"`
	// Unit is the unit of Used and Allotment: "GiB-hours", "vCPU-minutes", "GB-hours" or "hours".
	Unit      string  `json:"unit" enum:"GiB-hours,vCPU-minutes,GB-hours,hours"`
	Used      float64 `json:"used"`
	Allotment float64 `json:"allotment" doc:"How much the plan includes in a month."`
	Gross     NanoUSD `json:"gross_usd"`
	Included  NanoUSD `json:"included_usd" doc:"Amount that the allotment subtracts."`
}

// Statement is what an account owes for a month at the prices of one price book.
type Statement struct {
	PriceBook string        `json:"price_book" doc:"Name of the price book whose plan the account was on."`
	Source    string        `json:"source" doc:"Source of its prices."`
	AsOf      string        `json:"as_of,omitempty" doc:"Date of its source."`
	Lines     []AccountLine `json:"lines"`
	Amounts
}

// AccountMonth is the usage of one account (one backend instance) in one calendar month (UTC), up to the time
// of the report. Any usage in a month makes the full plan fee due; a month without usage costs nothing.
type AccountMonth struct {
	Backend  Backend `json:"backend"`
	Instance string  `json:"instance"`
	Month    string  `json:"month"` // 2006-01
	Statement
	// Shadow is the statement of the same usage on Cloudflare.
	Shadow Statement `json:"shadow"`
}

// CostReport is the answer to a CostQuery.
type CostReport struct {
	AsOf  time.Time `json:"as_of"`
	Rows  []CostRow `json:"rows"`
	Total CostRow   `json:"total"`
	// Accounts are the complete account months that the query touches. Without a filter and over whole months, their gross
	// costs add up to that of Total.
	Accounts []AccountMonth `json:"accounts" doc:"What each account owes for each whole calendar month that the report touches, whatever the query selects. Empty for a token that is limited to environments."`
	// PriceBooks are the current ones, by backend.
	PriceBooks map[Backend]PriceBook `json:"price_books"`
}

// Budget limits what the sandboxes of one environment, and their model calls, may cost in a calendar month (UTC).
//
// When a lease is granted, spent and reserved amounts together never exceed the budget. A live lease reserves its
// likely cost of the next hour. Its past use is spent, and the reserved hour moves on. A running model call
// reserves the most that it can cost. When the budget is spent, the environment's leases end.
type Budget struct {
	// Monthly is gross, at the list prices of the environment's backend.
	Monthly NanoUSD `json:"monthly_usd" doc:"US dollars that leases may cost in a calendar month (UTC), at list price. An acquire is refused if it leaves no room for an hour of the lease, and leases end when it is spent. Docker costs nothing unless a price book is configured."`
}

// A lease reserves its next hour awake, or less if it expires or the month ends earlier. That includes its memory and
// disk in full, and a part of its CPU limit.
const (
	BudgetReserve    = time.Hour
	BudgetCPUPercent = 25
)

// BudgetUse is how much of its budget an environment has used in the current month.
type BudgetUse struct {
	Month   string  `json:"month"` // 2006-01, UTC
	Monthly NanoUSD `json:"monthly_usd"`
	// Spent is the gross cost so far. LLM is its part for model calls.
	Spent NanoUSD `json:"spent_usd"`
	LLM   NanoUSD `json:"llm_usd,omitempty" doc:"Part of spent_usd for model calls."`
	// Reserved is the likely cost of live leases in the next hour, see BudgetReserve, plus the most that running calls of
	// models can cost.
	Reserved NanoUSD `json:"reserved_usd" doc:"What live leases are likely to cost in the next hour, and the most that running model calls can cost."`
}

// Left returns the amount that is neither spent nor reserved, at least zero.
func (u BudgetUse) Left() NanoUSD { return max(u.Monthly-u.Spent-u.Reserved, 0) }

// MonthOf returns the start of the calendar month (UTC) that contains t.
func MonthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// ProjectMonth projects the cost of the whole calendar month from what was spent since its start, or since the
// given time if that is later. It assumes a constant rate. It is an estimate: exact to a millionth.
func ProjectMonth(spent NanoUSD, since, now time.Time) NanoUSD {
	month := MonthOf(now)
	if since.Before(month) {
		since = month
	}
	passed, left := now.Sub(since), month.AddDate(0, 1, 0).Sub(now)
	if passed <= 0 {
		return spent
	}
	return spent + NanoUSD(float64(spent)*(float64(left)/float64(passed)))
}

// BudgetThresholds are the percentages of a month's budget that raise EventBudgetReached.
var BudgetThresholds = [...]int64{80, 100}

// Reached reports whether at least percent of the budget is spent.
func (u BudgetUse) Reached(percent int64) bool {
	part := u.Monthly/100*NanoUSD(percent) + (u.Monthly%100*NanoUSD(percent)+99)/100
	return u.Spent >= part
}

// BudgetReached is the data of EventBudgetReached. The event is raised once for each environment, month, budget
// amount and threshold. After a change of the budget, its thresholds can be reached again.
type BudgetReached struct {
	Month   string  `json:"month"` // 2006-01, UTC
	Percent int64   `json:"percent"`
	Monthly NanoUSD `json:"monthly_usd"`
	Spent   NanoUSD `json:"spent_usd"`
}

// DiskUsage is the disk space that a sandbox's files use.
type DiskUsage struct {
	// Bytes is the space that the files in Roots use on disk, without holes.
	Bytes int64 `json:"bytes"`
	// Files counts files and directories in Roots.
	Files int64 `json:"files"`
	// Complete: everything was counted. Counting stops at a million files.
	Complete bool `json:"complete"`
}

// LeaseUsage is what a lease's sandbox uses now.
type LeaseUsage struct {
	LeaseID    string `json:"lease_id"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandbox_id"`
	// State is the state that the backend reports. A stopped sandbox uses only disk.
	State       State    `json:"state"`
	CPUTime     Duration `json:"cpu_time" doc:"CPU time since the sandbox last started."`
	CPUPercent  *float64 `json:"cpu_percent,omitempty" doc:"Mean CPU use since the last sample of the history, in percent of one core. Absent if that sample is more than three minutes old, or the sandbox has started since."`
	MemoryBytes int64    `json:"memory_bytes"`
	PIDs        int64    `json:"pids"`
	// Limits are the sandbox's limits.
	Limits Resources `json:"limits"`
	// Disk is nil while the sandbox sleeps, because nothing in it can count files.
	Disk      *DiskUsage `json:"disk,omitempty"`
	SampledAt time.Time  `json:"sampled_at"`
}

// Retention of usage samples.
const (
	// UsageKept is how long samples are kept: long enough to inspect today's events, and short enough that the
	// number of awake sandboxes bounds the ledger's size.
	UsageKept = 24 * time.Hour
	// MaxUsageGap is the longest time between two samples for a mean. It allows for one missed sample.
	MaxUsageGap = 3 * time.Minute
)

// UsageHistoryQuery selects samples of a lease's sandbox, from From until before To. Zero times mean: all
// retained samples, until now.
type UsageHistoryQuery struct {
	LeaseRef
	From, To time.Time
}

// Validate checks the query without the ledger. Errors: Invalid.
func (q UsageHistoryQuery) Validate() error {
	return InvalidFields("the usage query", checkTimes(nil, q.From, q.To))
}

// checkTimes checks the times of a query; a zero to means now.
func checkTimes(f []Field, from, to time.Time) []Field {
	if !to.IsZero() && to.Before(from) {
		f = append(f, Field{Name: "from", Problem: "must not be after to"})
	}
	return f
}

// UsageSample is what a sandbox used at one time.
type UsageSample struct {
	At          time.Time `json:"at"`
	CPUTime     Duration  `json:"cpu_time" doc:"CPU time since the sandbox last started."`
	CPUMillis   *int64    `json:"cpu_millis,omitempty" doc:"Mean CPU use since the previous sample, in thousandths of a core. Absent if that sample is more than three minutes old, or the sandbox has started since."`
	MemoryBytes int64     `json:"memory_bytes"`
	PIDs        int64     `json:"pids"`
}

// Since returns the sample with its mean CPU use since the sample before. The mean is nil across a gap or a
// start of the sandbox.
func (s UsageSample) Since(before UsageSample) UsageSample {
	s.CPUMillis = nil
	took, used := s.At.Sub(before.At), s.CPUTime.D()-before.CPUTime.D()
	if took > 0 && took <= MaxUsageGap && used >= 0 {
		millis := int64(1000 * float64(used) / float64(took))
		s.CPUMillis = &millis
	}
	return s
}

// LeaseUsageHistory is what a lease's sandbox used while awake: about one sample a minute, retained for
// UsageKept.
type LeaseUsageHistory struct {
	LeaseID    string `json:"lease_id"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandbox_id"`
	// Limits are the sandbox's limits.
	Limits Resources `json:"limits"`
	// Samples are sorted oldest first. There are none for times of sleep or when the backend did not answer.
	Samples []UsageSample `json:"samples"`
}
