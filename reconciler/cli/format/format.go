// Package format writes values of the domain as short texts for people: times, costs, durations and ids.
package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Moment formats a time in the local time zone, to the second.
func Moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}

// Dollars formats a cost to the cent, and an amount below one cent with two significant digits.
func Dollars(n sandbox.NanoUSD) string {
	if n == 0 || n >= sandbox.USD/100 {
		return "$" + n.Cents()
	}
	unit := sandbox.NanoUSD(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return "$" + ((n + unit/2) / unit * unit).String()
}

// Hours returns a formatter of seconds as hours. The total decides the precision of all figures: 0.01 h (36 s)
// from 10 hours on, else 0.0001 h (0.36 s).
func Hours(all float64) func(seconds float64) string {
	digits := 2
	if all < 10*3600 {
		digits = 4
	}
	return func(seconds float64) string { return strconv.FormatFloat(seconds/3600, 'f', digits, 64) }
}

// Length formats seconds in their two largest units, such as 3d4h, without a second one that is 0.
func Length(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	if d == 0 && seconds > 0 {
		return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
	}
	days, d := d/(24*time.Hour), d%(24*time.Hour)
	hours, d := d/time.Hour, d%time.Hour
	minutes, rest := d/time.Minute, d%time.Minute/time.Second
	two := func(n time.Duration, unit string, rest time.Duration, of string) string {
		if rest == 0 {
			return fmt.Sprintf("%d%s", n, unit)
		}
		return fmt.Sprintf("%d%s%d%s", n, unit, rest, of)
	}
	switch {
	case days > 0:
		return two(days, "d", hours, "h")
	case hours > 0:
		return two(hours, "h", minutes, "m")
	case minutes > 0:
		return two(minutes, "m", rest, "s")
	default:
		return fmt.Sprintf("%ds", rest)
	}
}

// Cut shortens a text to a number of characters, the last of which is then "…".
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// ShortLease returns the short form of a lease id: ada@catan-7 for did:plc:ada::catan-7. Other texts are unchanged.
func ShortLease(id string) string {
	agent, environment, err := sandbox.ParseLeaseID(id)
	if err != nil {
		return id
	}
	return agent[strings.LastIndex(agent, ":")+1:] + "@" + environment
}

// Verdict formats the verdict of a rule of an audit.
func Verdict(v sandbox.Verdict) string {
	switch v {
	case sandbox.VerdictPass:
		return "PASS"
	case sandbox.VerdictFinding:
		return "FINDING"
	default:
		return "N/A"
	}
}

// Yes formats a condition: yes, or nothing.
func Yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
