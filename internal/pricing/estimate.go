package pricing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// DaysPerMonth is the length of a month in estimates.
const DaysPerMonth = 30

// Usage is the expected use of the leases of one environment in a month.
type Usage struct {
	// Leases is the number of sandboxes.
	Leases int64
	// HoursPerDay is how long each sandbox is awake per day, 0 to 24 h. It is asleep otherwise.
	HoursPerDay time.Duration
	// DaysPerMonth is the number of days in the month that it exists, at most 31. Zero means the constant.
	DaysPerMonth int64
	// CPUSharePercent is the share of its CPU limit that each sandbox uses while awake, 0 to 100. With a
	// limit of a quarter of a core, 10 means 0.025 cores.
	CPUSharePercent int64
	// CommandsPerHour is the number of commands per sandbox and hour awake, 0 to a million. Only
	// EstimatePlatformMonth uses it.
	CommandsPerHour int64
}

// maxCommandsPerHour limits CommandsPerHour: nearly 300 a second.
const maxCommandsPerHour = 1_000_000

// Validate checks the usage. Errors: sandbox.Invalid, naming each field.
func (u Usage) Validate() error {
	var f []sandbox.Field
	if u.Leases < 0 {
		f = append(f, sandbox.Field{Name: "leases", Problem: "must not be negative"})
	}
	if u.HoursPerDay < 0 || u.HoursPerDay > 24*time.Hour {
		f = append(f, sandbox.Field{Name: "hours_per_day", Problem: "must be between 0 and 24 hours"})
	}
	if u.DaysPerMonth < 0 || u.DaysPerMonth > 31 {
		f = append(f, sandbox.Field{Name: "days_per_month", Problem: "must be between 0 and 31"})
	}
	if u.CPUSharePercent < 0 || u.CPUSharePercent > 100 {
		f = append(f, sandbox.Field{Name: "cpu_share_percent", Problem: "must be between 0 and 100"})
	}
	if u.CommandsPerHour < 0 || u.CommandsPerHour > maxCommandsPerHour {
		f = append(f, sandbox.Field{Name: "commands_per_hour", Problem: "must be between 0 and 1000000"})
	}
	return sandbox.InvalidFields("expected usage", f)
}

// Estimate is the expected cost of a month if nothing else uses the account: the allotment is subtracted once
// and the plan's fee is added once.
type Estimate struct {
	Memory, CPU, Disk sandbox.NanoUSD
	Plan              sandbox.NanoUSD
	Total             sandbox.NanoUSD
	// PerLease is Total divided by the number of leases; zero if there are none.
	PerLease sandbox.NanoUSD
}

// EstimateMonth returns the cost of a month of sandboxes of size r. It depends only on its arguments, so that
// Terraform can plan it. Memory, CPU and disk are rounded separately.
func EstimateMonth(b sandbox.PriceBook, r sandbox.Resources, u Usage) Estimate {
	if u.DaysPerMonth == 0 {
		u.DaysPerMonth = DaysPerMonth
	}
	leaseDays := product(u.Leases, u.DaysPerMonth)
	awake := times(leaseDays, seconds(u.HoursPerDay))
	asleep := times(leaseDays, seconds(24*time.Hour-u.HoursPerDay))
	gib, gb := gibibytes(r), gigabytes(r)
	cpu := times(awake, times(cores(r), per(product(u.CPUSharePercent), 100)))

	e := Estimate{
		Memory: round(sum(
			times(beyond(times(gib, awake), b.Included.MemoryGiBSeconds), price(b.MemoryGiBSecond)),
			times(times(gib, asleep), price(b.AsleepMemoryGiBSecond)))),
		CPU: round(times(beyond(cpu, b.Included.CPUSeconds), price(b.CPUSecond))),
		Disk: round(sum(
			times(beyond(times(gb, awake), b.Included.DiskGBSeconds), price(b.DiskGBSecond)),
			times(times(gb, asleep), price(b.AsleepDiskGBSecond)))),
		Plan: max(b.PlanMonth, 0),
	}
	total := sum(price(e.Memory), price(e.CPU), price(e.Disk), price(e.Plan))
	e.Total = round(total)
	if u.Leases > 0 {
		e.PerLease = round(per(total, u.Leases))
	}
	return e
}
