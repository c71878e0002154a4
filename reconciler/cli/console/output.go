package console

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/terminal"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
)

// The forms of --output.
const (
	Table = "table"
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
	Names = "name"
)

var outputs = []string{Table, Wide, JSON, YAML, Names}

// OutputFlags adds --output and --quiet.
func (c *Console) OutputFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVarP(&c.Output, "output", "o", Table, "table, wide, json, yaml or name")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "print ids only, as -o name")
	Complete(cmd, "output", outputs...)
}

// CheckOutput applies --quiet. Errors: Invalid for an unknown form of --output.
func (c *Console) CheckOutput() error {
	if !slices.Contains(outputs, c.Output) {
		return exit.Usagef("--output must be table, wide, json, yaml or name, not %q", c.Output)
	}
	if c.quiet {
		c.Output = Names
	}
	return nil
}

// Print prints a value in the form of --output. fill fills the table, whose first column holds the ids; with --watch,
// Print calls it twice.
func (c *Console) Print(cmd *cobra.Command, v any, fill func(t *table.Table)) error {
	out := cmd.OutOrStdout()
	switch c.Output {
	case JSON:
		enc := printable.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case YAML:
		return printYAML(out, v)
	}
	t := &table.Table{Now: c.Now(), Wide: c.Output == Wide, Paint: terminal.InColour(out)}
	if !t.Wide {
		t.Width = c.Columns(out)
	}
	fill(t)
	if c.Output == Names {
		return t.Names(out)
	}
	if c.watched != nil {
		exact := &table.Table{Now: t.Now, Wide: t.Wide, Exact: true}
		fill(exact)
		if err := exact.Print(c.watched); err != nil {
			return err
		}
	}
	if err := t.Print(out); err != nil {
		return err
	}
	none, to := t.Remark(), cmd.ErrOrStderr()
	if c.watched != nil {
		to = out // the same frame as the table
	}
	if none != "" {
		_, err := fmt.Fprintln(to, none)
		return err
	}
	return nil
}
