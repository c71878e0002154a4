package pricing_test

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestSharesSumUpExactlyAndAreWithinANanoDollarOfExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount, weights := drawShare(t)
		sum, weight := sandbox.NanoUSD(0), new(big.Int)
		for _, w := range weights {
			weight.Add(weight, big.NewInt(int64(w)))
		}
		for i, share := range pricing.Share(amount, weights) {
			sum += share
			exact := big.NewRat(int64(amount), int64(len(weights)))
			if weight.Sign() > 0 {
				exact.SetFrac(new(big.Int).Mul(big.NewInt(int64(amount)), big.NewInt(int64(weights[i]))), weight)
			}
			off := new(big.Rat).Sub(new(big.Rat).SetInt64(int64(share)), exact)
			if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
				t.Fatalf("%d of %d by %d: got %d, exact is %s", i, amount, weights, share, exact.FloatString(3))
			}
		}
		if sum != amount {
			t.Fatalf("the shares of %d by %d sum up to %d", amount, weights, sum)
		}
	})
}

func TestAShareDoesNotDependOnTheOrderOfOthers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount, weights := drawShare(t)
		order := rapid.Permutation(weights).Draw(t, "order")
		// Equal weights differ only by their position, so compare them as a set.
		if a, b := sharesByWeight(amount, weights), sharesByWeight(amount, order); !slices.Equal(a, b) {
			t.Fatalf("%d by %d is %v, by %d %v", amount, weights, a, order, b)
		}
	})
}

func sharesByWeight(amount sandbox.NanoUSD, weights []sandbox.NanoUSD) [][2]sandbox.NanoUSD {
	var pairs [][2]sandbox.NanoUSD
	for i, share := range pricing.Share(amount, weights) {
		pairs = append(pairs, [2]sandbox.NanoUSD{weights[i], share})
	}
	slices.SortFunc(pairs, func(x, y [2]sandbox.NanoUSD) int { return slices.Compare(x[:], y[:]) })
	return pairs
}

func TestALargerWeightNeverGetsLess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount, weights := drawShare(t)
		pairs := sharesByWeight(amount, weights)
		for i := 1; i < len(pairs); i++ {
			if pairs[i-1][0] < pairs[i][0] && pairs[i-1][1] > pairs[i][1] {
				t.Fatalf("of %d, weights get %v", amount, pairs)
			}
			if pairs[i-1][0] == pairs[i][0] && pairs[i][1]-pairs[i-1][1] > 1 {
				t.Fatalf("of %d, equal weights get %v", amount, pairs)
			}
		}
	})
}

// An allotment is shared by the charges that it reduces, and never exceeds them.
func TestAShareOfNoMoreThanTheSumNeverExceedsItsWeight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		_, weights := drawShare(t)
		var sum sandbox.NanoUSD
		for _, w := range weights {
			sum += w
		}
		amount := sandbox.NanoUSD(rapid.Int64Range(0, int64(sum)).Draw(t, "part"))
		for i, share := range pricing.Share(amount, weights) {
			if share > weights[i] {
				t.Fatalf("of %d, %d gets %d", amount, weights[i], share)
			}
		}
	})
}

func TestWhatIsLeftGoesToTheLargestRemainder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount        sandbox.NanoUSD
		weights, want []sandbox.NanoUSD
	}{
		{10, []sandbox.NanoUSD{1, 1, 1}, []sandbox.NanoUSD{4, 3, 3}},
		{10, []sandbox.NanoUSD{5, 3, 1}, []sandbox.NanoUSD{6, 3, 1}}, // 5.56, 3.33, 1.11
		{3, []sandbox.NanoUSD{1, 3}, []sandbox.NanoUSD{1, 2}},        // 0.75, 2.25
		{1, []sandbox.NanoUSD{1, 1, 2}, []sandbox.NanoUSD{0, 0, 1}},
		{7, []sandbox.NanoUSD{0, 0}, []sandbox.NanoUSD{4, 3}},
		{7, []sandbox.NanoUSD{0, 5}, []sandbox.NanoUSD{0, 7}},
		{-7, []sandbox.NanoUSD{1, 5}, []sandbox.NanoUSD{0, 0}},
		{7, nil, []sandbox.NanoUSD{}},
		{math.MaxInt64, []sandbox.NanoUSD{math.MaxInt64 - 1, 1}, []sandbox.NanoUSD{math.MaxInt64 - 1, 1}},
	} {
		if got := pricing.Share(c.amount, c.weights); !slices.Equal(got, c.want) {
			t.Errorf("%d by %d is %d, want %d", c.amount, c.weights, got, c.want)
		}
	}
}

func drawShare(t *rapid.T) (sandbox.NanoUSD, []sandbox.NanoUSD) {
	largest := rapid.SampledFrom([]int64{0, 3, 1e9, 1e17}).Draw(t, "largest")
	weight := rapid.Custom(func(t *rapid.T) sandbox.NanoUSD {
		return sandbox.NanoUSD(rapid.Int64Range(0, largest).Draw(t, "weight"))
	})
	return sandbox.NanoUSD(rapid.Int64Range(0, math.MaxInt64).Draw(t, "amount")), rapid.SliceOfN(weight, 1, 40).Draw(t,
		"weights")
}

// One GiB-hour in MiB x milliseconds, one GB-hour in MB x milliseconds.
const (
	gibHour = 1024 * 3_600_000
	gbHour  = 1000 * 3_600_000
)

func TestAnAllotmentTakesOffWhatItIncludes(t *testing.T) {
	t.Parallel()
	book := pricing.Cloudflare() // 25 GiB-hours, 375 vCPU-minutes, 200 GB-hours
	for name, c := range map[string]struct {
		used        pricing.Volume
		gross, want sandbox.Charges
	}{
		"everything within it, except sleep": {
			pricing.Volume{MemoryMiBMillis: 25 * gibHour, CPUMicros: 375 * 60e6, DiskMBMillis: 7},
			sandbox.Charges{Memory: 225, CPU: 450, Disk: 3, Asleep: 11},
			sandbox.Charges{Memory: 225, CPU: 450, Disk: 3},
		},
		"the included part of what exceeds it": {
			pricing.Volume{MemoryMiBMillis: 100 * gibHour, CPUMicros: 500 * 60e6, DiskMBMillis: 600 * gbHour},
			sandbox.Charges{Memory: 900_000_000, CPU: 600_000_000, Disk: 151_200_000},
			sandbox.Charges{Memory: 225_000_000, CPU: 450_000_000, Disk: 50_400_000},
		},
		"nothing without usage": {},
		"without overflow": {
			pricing.Volume{MemoryMiBMillis: math.MaxInt64},
			sandbox.Charges{Memory: math.MaxInt64},
			sandbox.Charges{Memory: 92_160_000_000},
		},
	} {
		if got := pricing.Settle(book, c.used, c.gross); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
