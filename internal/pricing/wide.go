package pricing

import (
	"math"
	"math/bits"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// wide is an unsigned amount of 128 bits, enough for the usage of any real period. Reports price thousands of records,
// and this takes 35 ns and no memory for one amount where exact takes 5 µs and 19 allocations (BenchmarkItem). exact is
// for what does not fit, and for estimates, which divide on the way.
type wide struct{ hi, lo uint64 }

// wideProduct multiplies whole numbers; a negative factor counts as zero. It reports whether the product
// fits.
func wideProduct(factors ...int64) (wide, bool) {
	p := wide{lo: 1}
	for _, f := range factors {
		u := uint64(max(f, 0))
		hi, lo := bits.Mul64(p.lo, u)
		over, top := bits.Mul64(p.hi, u)
		sum, carry := bits.Add64(hi, top, 0)
		if over != 0 || carry != 0 {
			return wide{}, false
		}
		p = wide{sum, lo}
	}
	return p, true
}

// rounded returns a / divisor in nano-dollars, rounded half up, at most math.MaxInt64. The divisor must be
// even. It reports whether 128 bits were enough.
func (a wide) rounded(divisor uint64) (sandbox.NanoUSD, bool) {
	lo, carry := bits.Add64(a.lo, divisor/2, 0)
	hi, carry := bits.Add64(a.hi, 0, carry)
	switch {
	case carry != 0:
		return 0, false
	case hi >= divisor:
		return math.MaxInt64, true
	}
	n, _ := bits.Div64(hi, lo, divisor)
	return sandbox.NanoUSD(min(n, math.MaxInt64)), true
}
