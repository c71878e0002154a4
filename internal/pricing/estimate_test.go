package pricing_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The project's original worked example: 8 agents, 4 hours a day, 30 days, basic instances at 10 % of their
// CPU.
func TestEightAgentsFourHoursADayCost15Dollars61(t *testing.T) {
	t.Parallel()
	basic, ok := sandbox.ResourcesOf("basic")
	if !ok {
		t.Fatal("there is no instance type basic")
	}
	got := pricing.EstimateMonth(pricing.Cloudflare(), basic, pricing.Usage{
		Leases: 8, HoursPerDay: 4 * time.Hour, DaysPerMonth: 30, CPUSharePercent: 10,
	})
	want := pricing.Estimate{
		Memory:   8_415_000_000, // (960 - 25) GiB-hours x 3600 x $0.0000025
		CPU:      1_278_000_000, // (1440 - 375) vCPU-minutes x 60 x $0.00002
		Disk:     917_280_000,   // (3840 - 200) GB-hours x 3600 x $0.00000007
		Plan:     5_000_000_000,
		Total:    15_610_280_000,
		PerLease: 1_951_285_000,
	}
	if got != want {
		t.Errorf("estimate = %+v, want %+v", got, want)
	}
	if got.Total.Cents() != "15.61" || got.PerLease.Cents() != "1.95" {
		t.Errorf("in cents: $%s in all and $%s an agent, want $15.61 and $1.95", got.Total.Cents(), got.PerLease.Cents())
	}
}

func TestUsageWithinTheAllotmentCostsThePlanOnly(t *testing.T) {
	t.Parallel()
	basic, _ := sandbox.ResourcesOf("basic")
	got := pricing.EstimateMonth(pricing.Cloudflare(), basic,
		pricing.Usage{Leases: 1, HoursPerDay: 30 * time.Minute, CPUSharePercent: 100})
	if got.Total != 5*sandbox.USD {
		t.Errorf("total = $%s, want the plan's $5.00", got.Total)
	}
}

func TestAnEstimateWithoutLeasesHasNoCostPerLease(t *testing.T) {
	t.Parallel()
	got := pricing.EstimateMonth(pricing.Cloudflare(), sandbox.DefaultResources, pricing.Usage{HoursPerDay: time.Hour})
	if got.Total != 5*sandbox.USD || got.PerLease != 0 {
		t.Errorf("estimate = %+v, want only the plan", got)
	}
}

func TestSleepIsEstimatedWhereTheBookChargesIt(t *testing.T) {
	t.Parallel()
	book := sandbox.PriceBook{AsleepDiskGBSecond: 1}
	size := sandbox.Resources{DiskMB: 2000}
	got := pricing.EstimateMonth(book, size, pricing.Usage{Leases: 3, HoursPerDay: 4 * time.Hour})
	if want := sandbox.NanoUSD(3 * 30 * 20 * 3600 * 2); got.Disk != want || got.Total != want {
		t.Errorf("estimate = %+v, want %d for 20 hours of sleep a day", got, want)
	}
}

// Without allotment and plan, a month's estimate equals the cost of its periods.
func TestEstimateAgreesWithCost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		book, size := drawBook(t), drawResources(t)
		book.Included, book.PlanMonth = sandbox.Allotment{}, 0
		size.CPUMillis = 1000
		awake := time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "awake"))
		e := pricing.EstimateMonth(book, size, pricing.Usage{Leases: 1, HoursPerDay: awake, CPUSharePercent: 100})
		cost := pricing.Cost(book, size, 30*awake, 30*(24*time.Hour-awake), 30*awake)
		if diff := e.Total - cost; diff > 2 || diff < -2 { // three rounded parts, compared with one
			t.Fatalf("estimate %d, cost %d", e.Total, cost)
		}
	})
}

func TestMoreLeasesNeverCostLess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		book, size := drawBook(t), drawResources(t)
		u := pricing.Usage{
			Leases:          rapid.Int64Range(0, 1000).Draw(t, "leases"),
			HoursPerDay:     time.Duration(rapid.Int64Range(0, 24).Draw(t, "hours")) * time.Hour,
			CPUSharePercent: rapid.Int64Range(0, 100).Draw(t, "share"),
		}
		more := u
		more.Leases++
		a, b := pricing.EstimateMonth(book, size, u), pricing.EstimateMonth(book, size, more)
		if a.Total > b.Total || a.Memory > b.Memory || a.CPU > b.CPU || a.Disk > b.Disk {
			t.Fatalf("%d leases: %+v, one more: %+v", u.Leases, a, b)
		}
		if a.Total < a.Plan {
			t.Fatalf("the allotment made money: %+v", a)
		}
	})
}

func TestAnEstimateNeverOverflows(t *testing.T) {
	t.Parallel()
	huge := sandbox.Resources{MemoryMB: math.MaxInt64, CPUMillis: math.MaxInt64, DiskMB: math.MaxInt64}
	got := pricing.EstimateMonth(pricing.Cloudflare(), huge,
		pricing.Usage{Leases: math.MaxInt64, HoursPerDay: 24 * time.Hour, CPUSharePercent: 100})
	if got.Memory != math.MaxInt64 || got.Total != math.MaxInt64 {
		t.Errorf("estimate = %+v, want the largest amount", got)
	}
}

func TestUsageIsChecked(t *testing.T) {
	t.Parallel()
	if err := (pricing.Usage{
		Leases:          8,
		HoursPerDay:     24 * time.Hour,
		DaysPerMonth:    31,
		CPUSharePercent: 100,
	}).Validate(); err != nil {
		t.Errorf("usage at its limits: %v", err)
	}
	wrong := pricing.Usage{Leases: -1, HoursPerDay: 25 * time.Hour, DaysPerMonth: 32, CPUSharePercent: 101}
	assertFields(t, wrong.Validate(), "leases", "hours_per_day", "days_per_month", "cpu_share_percent")
}

// TestEachPartOfAnEstimateIsRoundedHalfUp: to the nearest nano-dollar, never truncated.
func TestEachPartOfAnEstimateIsRoundedHalfUp(t *testing.T) {
	t.Parallel()
	second := pricing.Usage{Leases: 1, HoursPerDay: time.Second, DaysPerMonth: 1, CPUSharePercent: 100}
	perSecond := sandbox.PriceBook{MemoryGiBSecond: 1, CPUSecond: 1, DiskGBSecond: 1}
	for quarters, want := range []sandbox.NanoUSD{0, 0, 1, 1, 1, 1, 2, 2} {
		size := sandbox.Resources{MemoryMB: 256 * int64(quarters), CPUMillis: 250 * int64(quarters)}
		if got := pricing.EstimateMonth(perSecond, size, second); got.Memory != want || got.CPU != want {
			t.Errorf("%d quarters: memory %d and CPU %d nano-dollars, want %d", quarters, got.Memory, got.CPU, want)
		}
	}
	// The price is per decimal or per binary gigabyte.
	for mb, want := range map[int64]sandbox.NanoUSD{400: 0, 700: 1, 1300: 1, 1700: 2} {
		if got := pricing.EstimateMonth(perSecond, sandbox.Resources{DiskMB: mb}, second); got.Disk != want {
			t.Errorf("%d MB of disk: %d nano-dollars, want %d", mb, got.Disk, want)
		}
	}
	for leases, want := range map[int64]sandbox.NanoUSD{1: 2, 2: 1, 3: 1, 4: 1, 5: 0} {
		if got := pricing.EstimateMonth(sandbox.PriceBook{PlanMonth: 2}, sandbox.Resources{},
			pricing.Usage{Leases: leases}); got.PerLease != want {
			t.Errorf("2 nano-dollars for %d leases: %d each, want %d", leases, got.PerLease, want)
		}
	}
}
