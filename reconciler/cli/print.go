package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The forms of --output.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
)

var outputs = []string{outputTable, outputWide, outputJSON, outputYAML, outputName}

// print prints a value in the form of --output. fill fills the table, whose first column are the ids.
func (a *app) print(cmd *cobra.Command, v any, fill func(t *table)) error {
	out := cmd.OutOrStdout()
	switch a.output {
	case outputJSON:
		enc := printable.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case outputYAML:
		return printYAML(out, v)
	}
	t := &table{now: a.now(), wide: a.output == outputWide, paint: inColour(out)}
	if !t.wide {
		t.width = a.width(out)
	}
	fill(t)
	if a.output == outputName {
		return t.names(out)
	}
	return t.print(out)
}

// moment formats a time in the local time zone, to the second.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}

// dollars formats a cost to the cent, and an amount below one cent with two significant digits.
func dollars(n sandbox.NanoUSD) string {
	if n == 0 || n >= sandbox.USD/100 {
		return "$" + n.Cents()
	}
	unit := sandbox.NanoUSD(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return "$" + ((n + unit/2) / unit * unit).String()
}

// inHours returns a formatter of seconds as hours. The total decides the precision of all figures: 0.01 h (36 s)
// from 10 hours on, else 0.0001 h (0.36 s).
func inHours(all float64) func(seconds float64) string {
	digits := 2
	if all < 10*3600 {
		digits = 4
	}
	return func(seconds float64) string { return strconv.FormatFloat(seconds/3600, 'f', digits, 64) }
}

// length formats seconds in their two largest units, such as 3d4h, without a second one that is 0.
func length(seconds float64) string {
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
