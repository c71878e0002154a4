// Package pricing turns usage into money: price books, the estimated cost of a month, and the cost of usage
// periods. Its calculations are pure functions.
//
// # Rounding
//
// Money is whole nano-dollars. The cost of usage has four items: memory, CPU and disk while awake, and
// everything held while asleep. Each item is computed as an exact fraction and rounded once, half up. The
// cost is their sum. So usage that is cut into n pieces differs from the same usage in one piece by at most
// (n+1)/2 nano-dollars per item.
//
// # Range
//
// Intermediate products have 128 bits, or any size if that is not enough. A result beyond an int64 of
// nano-dollars (9.2 billion dollars) is capped at the largest int64. Negative sizes and durations, which can
// result from a clock that was set back, cost nothing.
package pricing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Cost returns the gross cost, at list price, of one sandbox of size r with the given awake time, asleep time
// and CPU time. Plan fee and allotment belong to an account and are not included; see Settle.
func Cost(b sandbox.PriceBook, r sandbox.Resources, awake, asleep, cpu time.Duration) sandbox.NanoUSD {
	return Charge(b, r, awake, asleep, cpu).Total()
}

// Charge returns the items of Cost. Reports and budgets price every open period again, so it computes in 128
// bits if possible.
func Charge(b sandbox.PriceBook, r sandbox.Resources, awake, asleep, cpu time.Duration) sandbox.Charges {
	return sandbox.Charges{
		Memory: item(perGiB, r.MemoryMB, awake, b.MemoryGiBSecond),
		CPU:    item(1, 1, cpu, b.CPUSecond),
		Disk:   item(perGB, r.DiskMB, awake, b.DiskGBSecond),
		Asleep: rest(b, r, asleep),
	}
}

// Sizes in MiB have prices per GiB. Sizes in MB have prices per GB of 1000 MB.
const (
	perGiB = 1024
	perGB  = 1000
)

// item prices an amount held for a time. The price is per second for perUnit of the amount.
func item(perUnit uint64, amount int64, held time.Duration, price sandbox.NanoUSD) sandbox.NanoUSD {
	if product, ok := wideProduct(amount, int64(held), int64(price)); ok {
		if n, ok := product.rounded(perUnit * uint64(time.Second)); ok {
			return n
		}
	}
	return round(per(product(amount, int64(held), int64(price)), int64(perUnit)*int64(time.Second)))
}

// rest prices what a sandbox holds while asleep, as one item.
func rest(b sandbox.PriceBook, r sandbox.Resources, asleep time.Duration) sandbox.NanoUSD {
	if b.AsleepMemoryGiBSecond == 0 && b.AsleepDiskGBSecond == 0 {
		return 0
	}
	return round(times(seconds(asleep),
		sum(times(gibibytes(r), price(b.AsleepMemoryGiBSecond)), times(gigabytes(r), price(b.AsleepDiskGBSecond)))))
}

// The units of prices, in units of sizes.

func gibibytes(r sandbox.Resources) exact { return per(product(r.MemoryMB), perGiB) }

func gigabytes(r sandbox.Resources) exact { return per(product(r.DiskMB), perGB) }

func cores(r sandbox.Resources) exact { return per(product(r.CPUMillis), 1000) }

func seconds(d time.Duration) exact { return per(product(d), int64(time.Second)) }

func price(n sandbox.NanoUSD) exact { return product(n) }
