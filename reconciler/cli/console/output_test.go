package console_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
)

// TestNothingPrintedActsOnATerminal: not in a table, and not in JSON, whose values stay the same.
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
		c := console.Console{Now: time.Now, Columns: func(io.Writer) int { return 0 }, Output: output}
		if err := c.Print(cmd, map[string]string{"reason": hostile}, func(t *table.Table) {
			t.Head(table.Col("REASON"))
			t.Row(hostile)
			t.Note(hostile)
		}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) || strings.ContainsAny(b.String(), "\u202e\u009b\u2066") {
			t.Errorf("as %s it is printed as %q", output, b.String())
		}
	}
}
