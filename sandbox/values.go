package sandbox

import (
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Duration is a time.Duration whose text and JSON form is Go's ("24h0m0s", "5m").
type Duration time.Duration

// D returns the duration as the standard library's type.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; it accepts the same texts as time.ParseDuration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as \"90s\", \"5m\" or \"24h\"", b)
	}
	*d = Duration(v)
	return nil
}

// NanoUSD is an amount of money in billionths of a US dollar. Its text and JSON form is a decimal string of
// dollars with up to nine digits after the point ("15.61", "0.000025").
type NanoUSD int64

// USD is one US dollar.
const USD NanoUSD = 1_000_000_000

// String returns the exact amount in dollars, with at least two digits after the point.
func (n NanoUSD) String() string {
	sign, u := "", uint64(n)
	if n < 0 {
		sign, u = "-", -u
	}
	frac := strings.TrimRight(fmt.Sprintf("%09d", u%uint64(USD)), "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return fmt.Sprintf("%s%d.%s", sign, u/uint64(USD), frac)
}

// Cents returns the amount rounded half away from zero to whole cents, such as "15.61".
func (n NanoUSD) Cents() string {
	const cent = USD / 100
	half := cent / 2
	if n < 0 {
		half = -half
	}
	return ((n + half) / cent * cent).String()
}

// MarshalText implements encoding.TextMarshaler.
func (n NanoUSD) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It rejects more than nine digits after the point instead
// of rounding.
func (n *NanoUSD) UnmarshalText(b []byte) error {
	const longest = 64 // a longer amount, or an exponent, would take long to compute
	var r *big.Rat
	ok := len(b) <= longest && strings.Trim(string(b), "+-.0123456789") == ""
	if ok {
		r, ok = new(big.Rat).SetString(string(b))
	}
	if !ok {
		return fmt.Errorf("%.64q is not an amount of US dollars such as \"15.61\"", b)
	}
	r.Mul(r, new(big.Rat).SetInt64(int64(USD)))
	if !r.IsInt() || !r.Num().IsInt64() {
		return fmt.Errorf("%q has more than nine digits after the point or is too large", b)
	}
	*n = NanoUSD(r.Num().Int64())
	return nil
}
