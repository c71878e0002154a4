// Package pricing turns usage into money: price books, the estimated cost of a month, and the cost
// of usage periods. Its calculations are pure functions.
//
// # Rounding
//
// Money is whole nano-dollars. An amount is computed exactly, as a fraction, and rounded once, at
// its end, half up. Usage that is cut into n pieces therefore differs from the same usage in one
// piece by at most (n+1)/2 nano-dollars.
//
// # Range
//
// Intermediate products are of 128 bits, and without limit where those do not suffice. A result beyond an int64 of nano-dollars (9.2 billion
// dollars) is given as the largest int64. Negative sizes and durations, which a clock that was set
// back can produce, cost nothing.
package pricing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// Cost returns the gross cost, at list price, of one sandbox of size r that was awake and asleep
// for the given times and used the given CPU time. Plan fee and included allotment belong to an
// account, not to a sandbox, and are left out.
func Cost(b sandbox.PriceBook, r sandbox.Resources, awake, asleep, cpu time.Duration) sandbox.NanoUSD {
	if n, ok := costWide(b, r, awake, asleep, cpu); ok {
		return n
	}
	return costExact(b, r, awake, asleep, cpu)
}

// costWide is Cost in 128 bits: reports and budgets price every open period anew. It reports
// whether those sufficed. All terms are in units of 1/(128,000 x 10^9) nano-dollars, the common
// denominator of MiB per GiB (1024), MB per GB (1000) and nanoseconds per second.
func costWide(b sandbox.PriceBook, r sandbox.Resources, awake, asleep, cpu time.Duration) (sandbox.NanoUSD, bool) {
	const perMiB, perMB, perCPU = 125, 128, 128_000
	var total wide
	for _, factors := range [...][4]int64{
		{perMiB, r.MemoryMB, int64(awake), int64(b.MemoryGiBSecond)},
		{perMiB, r.MemoryMB, int64(asleep), int64(b.AsleepMemoryGiBSecond)},
		{perMB, r.DiskMB, int64(awake), int64(b.DiskGBSecond)},
		{perMB, r.DiskMB, int64(asleep), int64(b.AsleepDiskGBSecond)},
		{perCPU, 1, int64(cpu), int64(b.CPUSecond)},
	} {
		term, ok := wideProduct(factors[:]...)
		if !ok {
			return 0, false
		}
		if total, ok = total.plus(term); !ok {
			return 0, false
		}
	}
	return total.rounded(perCPU * uint64(time.Second))
}

// costExact is Cost without limits.
func costExact(b sandbox.PriceBook, r sandbox.Resources, awake, asleep, cpu time.Duration) sandbox.NanoUSD {
	gib, gb := gibibytes(r), gigabytes(r)
	return round(sum(
		times(gib, times(seconds(awake), price(b.MemoryGiBSecond))),
		times(gib, times(seconds(asleep), price(b.AsleepMemoryGiBSecond))),
		times(gb, times(seconds(awake), price(b.DiskGBSecond))),
		times(gb, times(seconds(asleep), price(b.AsleepDiskGBSecond))),
		times(seconds(cpu), price(b.CPUSecond))))
}

// The units of prices, from those of sizes: memory is given in MiB and priced per GiB, disk is
// given in MB and priced per GB of 1000 MB.

func gibibytes(r sandbox.Resources) exact { return per(product(r.MemoryMB), 1024) }

func gigabytes(r sandbox.Resources) exact { return per(product(r.DiskMB), 1000) }

func cores(r sandbox.Resources) exact { return per(product(r.CPUMillis), 1000) }

func seconds(d time.Duration) exact { return per(product(d), int64(time.Second)) }

func price(n sandbox.NanoUSD) exact { return product(n) }
