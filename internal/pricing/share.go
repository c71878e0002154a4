package pricing

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Share divides an amount by weights with the largest remainder method. Each gets its exact share rounded
// down. The remaining nano-dollars go, one each, to the shares that lost most by rounding. The shares add up
// to the amount exactly, and each is within one nano-dollar of its exact value. A larger weight never gets
// less. Among equal remainders, the larger weight comes first, then the one listed first. So callers must
// list weights in a deterministic order.
//
// If all weights are zero, the shares are equal. Negative amounts and weights count as zero. The sum of the
// weights must not exceed an int64.
func Share(amount sandbox.NanoUSD, weights []sandbox.NanoUSD) []sandbox.NanoUSD {
	shares := make([]sandbox.NanoUSD, len(weights))
	if amount <= 0 || len(weights) == 0 {
		return shares
	}
	var sum uint64
	for _, w := range weights {
		sum += uint64(max(w, 0))
	}
	if sum == 0 {
		return shareEqually(amount, shares)
	}
	left := amount
	lost := make([]uint64, len(weights)) // lost by rounding, in fractions of 1/sum
	for i, w := range weights {
		hi, lo := bits.Mul64(uint64(amount), uint64(max(w, 0)))
		share, remainder := bits.Div64(hi, lo, sum)
		shares[i], lost[i] = sandbox.NanoUSD(share), remainder
		left -= shares[i]
	}
	if left == 0 {
		return shares
	}
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(lost[j], lost[i]), cmp.Compare(weights[j], weights[i]), cmp.Compare(i, j))
	})
	for _, i := range order[:left] {
		shares[i]++
	}
	return shares
}

func shareEqually(amount sandbox.NanoUSD, shares []sandbox.NanoUSD) []sandbox.NanoUSD {
	each, left := amount/sandbox.NanoUSD(len(shares)), int(amount%sandbox.NanoUSD(len(shares)))
	for i := range shares {
		shares[i] = each
		if i < left {
			shares[i]++
		}
	}
	return shares
}
