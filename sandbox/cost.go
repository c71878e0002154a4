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

// costByLabel is how a grouping by a label begins.
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
	// Labels selects leases by the labels that they have now. Usage in a warm pool has those of its environment.
	Labels   LabelSelector
	From, To time.Time
	GroupBy  CostGroup // zero means CostByLease
}

// Validate checks the filter and the grouping. Errors: Invalid.
func (q CostQuery) Validate() error {
	f := q.Labels.fields()
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
// falls. What plans include and cost stands only in the report's accounts.
type CostRow struct {
	EnvironmentID string `json:"environment_id,omitempty"`
	AgentDID      string `json:"agent_did,omitempty"`
	LeaseID       string `json:"lease_id,omitempty"`
	Day           string `json:"day,omitempty"`
	Month         string `json:"month,omitempty"`
	// Label is the value of the label that the report groups by, "" where the label is empty or missing.
	Label string `json:"label,omitempty" doc:"Value of the label that the report groups by."`
	// Generations counts the generations whose usage began in this row within the query's time. Usage in a warm
	// pool belongs to no generation.
	Generations   int64   `json:"generations"`
	AwakeSeconds  float64 `json:"awake_seconds"`
	AsleepSeconds float64 `json:"asleep_seconds"`
	CPUSeconds    float64 `json:"cpu_seconds"`
	// Gross is the sum over the UTC days of its usage periods, each charged to the nano-dollar.
	Gross NanoUSD `json:"gross_usd" doc:"Cost of sandboxes at list price."`
	// LLM is what calls of models used that began in this row within the query's time, at list price.
	LLM LLMUse `json:"llm,omitzero" doc:"What calls of models used, at the list prices of their routes."`
	// Total is Gross and the cost of LLM, which budgets count.
	Total NanoUSD `json:"total_usd" doc:"gross_usd + llm.cost_usd"`
	// Shadow is what the same usage would cost on Cloudflare.
	Shadow NanoUSD `json:"shadow_gross_usd" doc:"What the same usage of sandboxes would cost on Cloudflare at list price."`
}

// Spent returns what budgets count.
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
