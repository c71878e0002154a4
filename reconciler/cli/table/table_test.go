package table

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestATableInColourHasTheColumnsOfOneWithout(t *testing.T) {
	t.Parallel()
	shown := func(colour bool) string {
		var b bytes.Buffer
		table := Table{Paint: colour}
		table.Head(Col("LEASE"), Col("STATUS"), Col("REMARK"))
		table.Row("did:plc:ann::catan-7", string(sandbox.LeaseActive), "")
		table.Row("did:plc:bo::catan-7", string(sandbox.SandboxFailed), "\x1b[31mred")
		if err := table.Print(&b); err != nil {
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
		table := Table{Width: width}
		table.Head(Lease(), Col("STATUS"), Num("COST"), Wide("OWNER"), Flex("REMARK"))
		for _, id := range ids {
			table.Row(id, "destroyed", "$0.01", "suite", "condition: game.finished: ann wins after a long night")
		}
		table.Note("a note that is longer than the narrow table")
		if err := table.Print(&b); err != nil {
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
