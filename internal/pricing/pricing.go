// Package pricing turns usage into money: price books, the estimated cost of a month, and the cost
// of usage periods. Its calculations are pure functions.
//
// # Rounding
//
// Money is whole nano-dollars. What a stretch of usage costs is charged by item: memory, CPU and disk
// while awake, and what it holds while asleep. Each is computed exactly, as a fraction, and rounded
// once, half up; the cost is their sum. Usage that is cut into n pieces therefore differs from the
// same usage in one piece by at most (n+1)/2 nano-dollars an item.
//
// # Range
//
// Intermediate products are of 128 bits, and without limit where those do not suffice. A result
// beyond an int64 of nano-dollars (9.2 billion dollars) is given as the largest int64. Negative sizes and durations, which a clock that was set
// back can produce, cost nothing.
package pricing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Cost returns the gross cost, at list price, of one sandbox of size r that was awake and asleep
// for the given times and used the given CPU time. Plan fee and included allotment belong to an
// account, not to a sandbox, and are left out; see Settle.
func Cost(b sandbox.PriceBook, r sandbox.Resources, awake, asleep, cpu time.Duration) sandbox.NanoUSD {
	return Charge(b, r, awake, asleep, cpu).Total()
}

// Charge returns what Cost is the sum of. Reports and budgets price every open period anew, so that
// it computes in 128 bits where those suffice.
func Charge(b sandbox.PriceBook, r sandbox.Resources, awake, asleep, cpu time.Duration) sandbox.Charges {
	return sandbox.Charges{
		Memory: item(perGiB, r.MemoryMB, awake, b.MemoryGiBSecond),
		CPU:    item(1, 1, cpu, b.CPUSecond),
		Disk:   item(perGB, r.DiskMB, awake, b.DiskGBSecond),
		Asleep: rest(b, r, asleep),
	}
}

// Memory is given in MiB and priced per GiB, disk is given in MB and priced per GB of 1000 MB.
const (
	perGiB = 1024
	perGB  = 1000
)

// item prices an amount that is held for a time, of which perUnit make the unit that is priced.
func item(perUnit uint64, amount int64, held time.Duration, price sandbox.NanoUSD) sandbox.NanoUSD {
	if product, ok := wideProduct(amount, int64(held), int64(price)); ok {
		if n, ok := product.rounded(perUnit * uint64(time.Second)); ok {
			return n
		}
	}
	return round(per(product(amount, int64(held), int64(price)), int64(perUnit)*int64(time.Second)))
}

// rest prices what a sandbox holds while asleep, which is one item.
func rest(b sandbox.PriceBook, r sandbox.Resources, asleep time.Duration) sandbox.NanoUSD {
	if b.AsleepMemoryGiBSecond == 0 && b.AsleepDiskGBSecond == 0 {
		return 0
	}
	return round(times(seconds(asleep), sum(times(gibibytes(r), price(b.AsleepMemoryGiBSecond)), times(gigabytes(r), price(b.AsleepDiskGBSecond)))))
}

// The units of prices, from those of sizes.

func gibibytes(r sandbox.Resources) exact { return per(product(r.MemoryMB), perGiB) }

func gigabytes(r sandbox.Resources) exact { return per(product(r.DiskMB), perGB) }

func cores(r sandbox.Resources) exact { return per(product(r.CPUMillis), 1000) }

func seconds(d time.Duration) exact { return per(product(d), int64(time.Second)) }

func price(n sandbox.NanoUSD) exact { return product(n) }
