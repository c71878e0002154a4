package pricing

import (
	"math"
	"math/big"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// exact is an exact amount of any size, never negative.
type exact = *big.Rat

// product multiplies whole numbers; a negative factor counts as zero.
func product[T ~int64](factors ...T) exact {
	p := big.NewInt(1)
	for _, f := range factors {
		p.Mul(p, big.NewInt(max(int64(f), 0)))
	}
	return new(big.Rat).SetInt(p)
}

func times(a, b exact) exact { return new(big.Rat).Mul(a, b) }

func per(a exact, divisor int64) exact { return new(big.Rat).Quo(a, product(divisor)) }

func sum(terms ...exact) exact {
	total := new(big.Rat)
	for _, t := range terms {
		total.Add(total, t)
	}
	return total
}

// beyond returns the part of a above the allowance.
func beyond(a exact, allowance int64) exact {
	rest := new(big.Rat).Sub(a, product(allowance))
	if rest.Sign() < 0 {
		return new(big.Rat)
	}
	return rest
}

// round returns the nearest whole number of nano-dollars, half up, at most math.MaxInt64.
func round(a exact) sandbox.NanoUSD {
	twice := new(big.Int).Lsh(a.Denom(), 1)
	n := new(big.Int).Lsh(a.Num(), 1)
	n.Quo(n.Add(n, a.Denom()), twice)
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return sandbox.NanoUSD(n.Int64())
}
