package operate

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func drift(c *console.Console) *cobra.Command {
	var f sandbox.DriftFilter
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Show current and past differences between backends and ledger",
		Args:  console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			if f.LeaseID, err = console.LeaseID(cmd.Context(), service, f.LeaseID); err != nil {
				return err
			}
			findings, err := service.ListDrift(cmd.Context(), f)
			if err != nil {
				return err
			}
			return c.Print(cmd, wire.DriftPage{Findings: findings}, func(t *table.Table) { fillDrift(t, findings) })
		},
	}
	options := cmd.Flags()
	flags.Filter(options, &f.EnvironmentID, "environment", "only this environment")
	flags.Filter(options, &f.LeaseID, "lease", "only this lease")
	options.StringVar((*string)(&f.Kind), "kind", "",
		"only this kind: vanished, stopped, out_of_memory, changed, orphan, leftover or usage")
	options.StringVar((*string)(&f.Status), "status", "", "only findings with this status: open or resolved")
	console.Complete(cmd, "status", sandbox.DriftStatuses...)
	c.Watchable(cmd)
	return cmd
}

func fillDrift(t *table.Table, findings []sandbox.DriftFinding) {
	t.Head(table.Num("ID"), table.Col("SEEN"), table.Col("KIND"), table.Lease(), table.Wide("SANDBOX"),
		table.Flex("FIELD"), table.Flex("EXPECTED"), table.Flex("OBSERVED"), table.Col("RESOLVED"), table.Flex("RESOLUTION"))
	t.None("No drift.")
	for _, d := range findings {
		t.Row(strconv.FormatInt(d.ID, 10), t.When(d.FirstSeenAt), string(d.Kind), d.LeaseID, d.SandboxID, d.Field,
			d.Expected, d.Observed, t.When(d.ResolvedAt), d.Resolution)
	}
}
