package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMoneyIsShownToTheCentOrFiner(t *testing.T) {
	t.Parallel()
	for amount, want := range map[sandbox.NanoUSD]string{
		0:                 "$0.00",
		15_609_999_999:    "$15.61",
		sandbox.USD / 100: "$0.01",
		9_999_999:         "$0.01",
		4_567_890:         "$0.0046",
		123_456:           "$0.00012",
		12:                "$0.000000012",
		1:                 "$0.000000001",
	} {
		if got := dollars(amount); got != want {
			t.Errorf("%d is shown as %s, want %s", int64(amount), got, want)
		}
	}
}

func TestLengthsAreShownInTwoUnits(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{
		0: "0s", 0.0042: "4ms", 59.6: "1m", 61: "1m1s", 3600: "1h", 5400: "1h30m", 90061: "1d1h", 864000: "10d",
	} {
		if got := length(seconds); got != want {
			t.Errorf("%v s is shown as %s, want %s", seconds, got, want)
		}
	}
}

func TestATableInColourHasTheColumnsOfOneWithout(t *testing.T) {
	t.Parallel()
	shown := func(colour bool) string {
		var b bytes.Buffer
		table := table{paint: colour}
		table.head(col("LEASE"), col("STATUS"), col("REMARK"))
		table.row("did:plc:ann::catan-7", string(sandbox.LeaseActive), "")
		table.row("did:plc:bo::catan-7", string(sandbox.SandboxFailed), "\x1b[31mred")
		if err := table.print(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	coloured := shown(true)
	for _, want := range []string{bold + "STATUS" + end, green + "active" + end, red + "failed" + end, " [31mred"} {
		if !strings.Contains(coloured, want) {
			t.Errorf("%q is not in %q", want, coloured)
		}
	}
	if without := regexp.MustCompile(`\x1b\[[0-9]+m`).ReplaceAllString(coloured, ""); without != shown(false) {
		t.Errorf("without colours it is\n%swant\n%s", without, shown(false))
	}
}

func TestATableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	shown := func(width int, ids ...string) string {
		var b bytes.Buffer
		table := table{width: width}
		table.head(leaseCol(), col("STATUS"), num("COST"), wide("OWNER"), flex("REMARK"))
		for _, id := range ids {
			table.row(id, "destroyed", "$0.01", "suite", "condition: game.finished: ann wins after a long night")
		}
		table.note("a note that is longer than the narrow table")
		if err := table.print(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, c := range []struct {
		width int
		ids   []string
		want  string
	}{
		{0, []string{"did:plc:ann::catan-7"},
			`LEASE                 STATUS      COST  REMARK
did:plc:ann::catan-7  destroyed  $0.01  condition: game.finished: ann wins after a long night
a note that is longer than the narrow table
`},
		{80, []string{"did:plc:ann::catan-7"},
			`LEASE        STATUS      COST  REMARK
ann@catan-7  destroyed  $0.01  condition: game.finished: ann wins after a long …
a note that is longer than the narrow table
`},
		{40, []string{"did:plc:ann::catan-7", "did:web:ann::catan-7"},
			`LEASE         STATUS      COST  REMARK
did:plc:ann…  destroyed  $0.01  conditi…
did:web:ann…  destroyed  $0.01  conditi…
a note that is longer than the narrow
table
`},
	} {
		got := shown(c.width, c.ids...)
		if got != c.want {
			t.Errorf("at %d columns it is\n%swant\n%s", c.width, got, c.want)
		}
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(line) - 1; c.width > 0 && n > c.width {
				t.Errorf("at %d columns, a line has %d: %s", c.width, n, line)
			}
		}
	}
}

// TestNothingPrintedActsOnATerminal: neither in a table nor in JSON, which keeps its value.
func TestNothingPrintedActsOnATerminal(t *testing.T) {
	t.Parallel()
	const hostile = "map\u202egnp.exe\u009b31m\u2066"
	for output, want := range map[string]string{
		"table": `map\u202egnp.exe\u009b31m\u2066`,
		"yaml":  `reason: "map\u202egnp.exe\x9B31m\u2066"`,
		"json":  `"map\u202egnp.exe\u009b31m\u2066"`,
	} {
		var b bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&b)
		a := newApp(Config{})
		a.output = output
		if err := a.print(cmd, map[string]string{"reason": hostile}, func(t *table) {
			t.head(col("REASON"))
			t.row(hostile)
			t.note(hostile)
		}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) || strings.ContainsAny(b.String(), "\u202e\u009b\u2066") {
			t.Errorf("as %s it is printed as %q", output, b.String())
		}
	}
}
