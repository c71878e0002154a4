package sandbox

import (
	"math"
	"time"
)

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

// Charges is a gross cost by what it is for: memory and disk that were held and CPU that was used
// while awake, and what was held while asleep.
type Charges struct {
	Memory, CPU, Disk, Asleep NanoUSD
}

// Total returns the sum, at most what a NanoUSD can hold.
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

// Plus returns the charges of both.
func (c Charges) Plus(o Charges) Charges {
	return Charges{c.Memory + o.Memory, c.CPU + o.CPU, c.Disk + o.Disk, c.Asleep + o.Asleep}
}

// Minus returns the charges without those of o.
func (c Charges) Minus(o Charges) Charges {
	return Charges{c.Memory - o.Memory, c.CPU - o.CPU, c.Disk - o.Disk, c.Asleep - o.Asleep}
}

// Amounts is what usage costs: at list price, and after its share of what its account pays.
type Amounts struct {
	// Gross is the sum of usage periods at list price.
	Gross NanoUSD `json:"gross_usd" doc:"Sum of usage periods at list price."`
	// Included is what the account's plan includes, PlanFee what it costs.
	Included NanoUSD `json:"included_usd" doc:"Share of what the account's plan includes, which is taken off."`
	PlanFee  NanoUSD `json:"plan_fee_usd" doc:"Share of the account's plan fee."`
	// Net is Gross - Included + PlanFee.
	Net NanoUSD `json:"net_usd" doc:"gross_usd - included_usd + plan_fee_usd"`
}

// Plus returns the sum of both.
func (a Amounts) Plus(o Amounts) Amounts {
	return Amounts{a.Gross + o.Gross, a.Included + o.Included, a.PlanFee + o.PlanFee, a.Net + o.Net}
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

// CostRow is what one group has used and cost.
//
// Gross is the sum over the UTC days of its usage periods, each charged to the nano-dollar. Included
// and PlanFee are its share of its accounts' lines: they are computed over the account's whole
// calendar month, up to To, and over everything on the account, whatever the query selects. The
// shares of one resource's allotment are by what use of that resource cost, those of the fee by
// gross cost, and equal while that is zero: first among leases, then among a lease's days. All
// groupings of the same usage so agree to the nano-dollar.
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
	Amounts
	// Shadow is what the same usage would cost on Cloudflare, if each account were one there.
	Shadow Amounts `json:"shadow" doc:"What the same usage would cost on Cloudflare, if each account were one there."`
}

// Resource is what an account line is for.
type Resource string

// The resources. Sleep is charged by some price books, and included in no allotment.
const (
	ResourceMemory Resource = "memory"
	ResourceCPU    Resource = "cpu"
	ResourceDisk   Resource = "disk"
	ResourceAsleep Resource = "asleep"
)

// AccountLine is what an account used of one resource in a month.
type AccountLine struct {
	Resource Resource `json:"resource" enum:"memory,cpu,disk,asleep"`
	// Unit is that of Used and of Allotment: "GiB-hours", "vCPU-minutes", "GB-hours" or "hours".
	Unit      string  `json:"unit" enum:"GiB-hours,vCPU-minutes,GB-hours,hours"`
	Used      float64 `json:"used"`
	Allotment float64 `json:"allotment" doc:"How much of it the plan includes in a month."`
	Gross     NanoUSD `json:"gross_usd"`
	Included  NanoUSD `json:"included_usd" doc:"What the allotment takes off."`
}

// Statement is what an account owes for a month by one price book.
type Statement struct {
	PriceBook string        `json:"price_book" doc:"Name of the price book whose plan the account was on."`
	Source    string        `json:"source" doc:"Where its prices are from."`
	AsOf      string        `json:"as_of,omitempty" doc:"The date of its source."`
	Lines     []AccountLine `json:"lines"`
	Amounts
}

// AccountMonth is what one account, which is one backend instance, used in one calendar month, UTC,
// up to the moment of its report. The plan's fee is owed in full as soon as anything is used in the
// month; a month without use owes nothing.
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
	// Accounts are the whole account months that the query touches. Without a filter, and over whole
	// months, they sum up to Total.
	Accounts []AccountMonth `json:"accounts" doc:"What each account owes for each calendar month that the report touches, whole, whatever else is selected. Empty for a token that is limited to environments."`
	// PriceBooks are in force now, by backend.
	PriceBooks map[Backend]PriceBook `json:"price_books"`
}
