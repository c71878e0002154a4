package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// print prints a value as JSON, or as the table that fill fills.
func (a *app) print(cmd *cobra.Command, v any, fill func(t *table)) error {
	if a.output == "json" {
		enc := printable.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	t := newTable(cmd.OutOrStdout(), inColour(cmd.OutOrStdout()))
	fill(t)
	return t.w.Flush()
}

// table prints columns of text. The first row holds the titles. The tabwriter keeps the first error for Flush.
type table struct {
	w      *tabwriter.Writer
	colour bool
	rows   int
}

func newTable(w io.Writer, colour bool) *table {
	return &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), colour: colour}
}

func (t *table) row(cells ...string) {
	for i := range cells {
		if cells[i] = printable.Text(cells[i]); cells[i] == "" {
			cells[i] = "-"
		}
		if t.colour {
			cells[i] = paint(cells[i], t.rows == 0)
		}
	}
	t.rows++
	line := strings.Join(cells, "\t") + "\n"
	_, _ = io.WriteString(t.w, line) // Flush returns the error
}

// note adds a line below the columns.
func (t *table) note(text string) { _, _ = io.WriteString(t.w, printable.Text(text)+"\n") } // Flush returns the error

// alignRight right-aligns the columns from to to-1.
func alignRight(rows [][]string, from, to int) {
	width := make([]int, to)
	for _, cells := range rows {
		for i := from; i < to; i++ {
			width[i] = max(width[i], utf8.RuneCountInString(cells[i]))
		}
	}
	for _, cells := range rows {
		for i := from; i < to; i++ {
			cells[i] = fmt.Sprintf("%*s", width[i], cells[i])
		}
	}
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

// length formats seconds in their two largest units, such as 3d4h.
func length(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	if d == 0 && seconds > 0 {
		return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
	}
	days, d := d/(24*time.Hour), d%(24*time.Hour)
	hours, d := d/time.Hour, d%time.Hour
	minutes, rest := d/time.Minute, d%time.Minute/time.Second
	switch {
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh%dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm%ds", minutes, rest)
	default:
		return fmt.Sprintf("%ds", rest)
	}
}
