package pricing_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestCostOfOneHourOfOneGiB(t *testing.T) {
	t.Parallel()
	basic, _ := sandbox.ResourcesOf("basic")
	got := pricing.Cost(pricing.Cloudflare(), basic, time.Hour, 24*time.Hour, 90*time.Second)
	// 3600 s x (1 GiB x $0.0000025 + 4 GB x $0.00000007) + 90 s x $0.00002; sleep is free.
	if want := sandbox.NanoUSD(9_000_000 + 1_008_000 + 1_800_000); got != want {
		t.Errorf("cost = $%s, want $%s", got, want)
	}
}

func TestSleepCostsWhatTheBookSays(t *testing.T) {
	t.Parallel()
	book := sandbox.PriceBook{AsleepMemoryGiBSecond: 100, AsleepDiskGBSecond: 10}
	r := sandbox.Resources{MemoryMB: 2048, DiskMB: 3000}
	if got := pricing.Cost(book, r, time.Hour, 10*time.Second, time.Hour); got != 2300 {
		t.Errorf("cost = %d nano-dollars, want 2300", got)
	}
}

func TestEachItemIsRoundedHalfUpOnce(t *testing.T) {
	t.Parallel()
	book := sandbox.PriceBook{MemoryGiBSecond: 1, DiskGBSecond: 1}
	half := time.Second / 2
	for name, c := range map[string]struct {
		r    sandbox.Resources
		want sandbox.NanoUSD
	}{
		"half a nano-dollar is one":           {sandbox.Resources{MemoryMB: 1024}, 1},
		"less than half is nothing":           {sandbox.Resources{MemoryMB: 1023}, 0},
		"two items are rounded each":          {sandbox.Resources{MemoryMB: 1024, DiskMB: 1000}, 2},
		"negative sizes do not lower the sum": {sandbox.Resources{MemoryMB: 1024, DiskMB: -1000}, 1},
	} {
		if got := pricing.Cost(book, c.r, half, 0, 0); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// items is the number of items in a cost.
const items = 4

func TestCutPeriodsCostTheSameToWithinRounding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		book, size := drawBook(t), drawResources(t)
		pieces := rapid.SliceOfN(rapid.Custom(drawTimes), 1, 20).Draw(t, "pieces")
		var whole times
		var inPieces sandbox.NanoUSD
		for _, p := range pieces {
			whole = whole.plus(p)
			inPieces += p.cost(book, size)
		}
		diff := inPieces - whole.cost(book, size)
		if bound := items * sandbox.NanoUSD(len(pieces)+1) / 2; diff > bound || diff < -bound {
			t.Fatalf("%d pieces differ by %d nano-dollars, more than %d", len(pieces), diff, bound)
		}
	})
}

func TestMoreUsageNeverCostsLess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		book, size := drawBook(t), drawResources(t)
		less := drawTimes(t)
		more := less.plus(drawTimes(t))
		if a, b := less.cost(book, size), more.cost(book, size); a > b {
			t.Fatalf("%+v costs %d, %+v costs %d", less, a, more, b)
		}
	})
}

func TestCostNeverOverflows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		any64 := rapid.Int64()
		book := sandbox.PriceBook{
			MemoryGiBSecond: sandbox.NanoUSD(any64.Draw(t, "memory price")),
			DiskGBSecond:    sandbox.NanoUSD(any64.Draw(t, "disk price")),
			CPUSecond:       sandbox.NanoUSD(any64.Draw(t, "cpu price")),
		}
		size := sandbox.Resources{MemoryMB: any64.Draw(t, "memory"), DiskMB: any64.Draw(t, "disk")}
		awake, cpu := any64.Draw(t, "awake"), any64.Draw(t, "cpu")
		got := pricing.Cost(book, size, time.Duration(awake), 0, time.Duration(cpu))

		want := new(big.Int)
		item := func(perUnit int64, factors ...int64) {
			n, divisor := big.NewInt(1), new(big.Int).Mul(big.NewInt(perUnit), big.NewInt(1e9))
			for _, f := range factors {
				n.Mul(n, big.NewInt(max(f, 0)))
			}
			n.Add(n, new(big.Int).Rsh(divisor, 1)).Quo(n, divisor)
			if !n.IsInt64() {
				n.SetInt64(math.MaxInt64)
			}
			want.Add(want, n)
		}
		item(1024, size.MemoryMB, awake, int64(book.MemoryGiBSecond))
		item(1000, size.DiskMB, awake, int64(book.DiskGBSecond))
		item(1, cpu, int64(book.CPUSecond))
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		if int64(got) != want.Int64() {
			t.Fatalf("got %d, want %s", got, want)
		}
	})
}

type times struct{ awake, asleep, cpu time.Duration }

func (a times) plus(b times) times {
	return times{a.awake + b.awake, a.asleep + b.asleep, a.cpu + b.cpu}
}

func (a times) cost(b sandbox.PriceBook, r sandbox.Resources) sandbox.NanoUSD {
	return pricing.Cost(b, r, a.awake, a.asleep, a.cpu)
}

// drawTimes draws the times of a usage period of up to a year.
func drawTimes(t *rapid.T) times {
	year := rapid.Int64Range(0, int64(365*24*time.Hour))
	return times{
		awake:  time.Duration(year.Draw(t, "awake")),
		asleep: time.Duration(year.Draw(t, "asleep")),
		cpu:    time.Duration(year.Draw(t, "cpu")),
	}
}

func drawBook(t *rapid.T) sandbox.PriceBook {
	amount := rapid.Custom(func(t *rapid.T) sandbox.NanoUSD {
		return sandbox.NanoUSD(rapid.Int64Range(0, 100_000).Draw(t, "amount"))
	})
	return sandbox.PriceBook{
		MemoryGiBSecond:       amount.Draw(t, "memory price"),
		CPUSecond:             amount.Draw(t, "cpu price"),
		DiskGBSecond:          amount.Draw(t, "disk price"),
		AsleepMemoryGiBSecond: amount.Draw(t, "asleep memory price"),
		AsleepDiskGBSecond:    amount.Draw(t, "asleep disk price"),
		PlanMonth:             amount.Draw(t, "plan") * 1e6,
		Included: sandbox.Allotment{
			MemoryGiBSeconds: rapid.Int64Range(0, 1e6).Draw(t, "included memory"),
			CPUSeconds:       rapid.Int64Range(0, 1e6).Draw(t, "included cpu"),
			DiskGBSeconds:    rapid.Int64Range(0, 1e6).Draw(t, "included disk"),
		},
	}
}

func drawResources(t *rapid.T) sandbox.Resources {
	return sandbox.Resources{
		MemoryMB:  rapid.Int64Range(64, 32768).Draw(t, "memory_mb"),
		CPUMillis: rapid.Int64Range(50, 16000).Draw(t, "cpu_millis"),
		DiskMB:    rapid.Int64Range(1024, 102400).Draw(t, "disk_mb"),
	}
}
