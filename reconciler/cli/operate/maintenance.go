package operate

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func sweep(c *console.Console) *cobra.Command {
	var r sandbox.SweepRequest
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Compare the backends with the ledger now, and destroy orphans",
		Long: `Compare the backends with the ledger now, as the reconciler does every 30 seconds, and show the
differences. An orphan carries the ledger's label but has no row in the ledger. It is destroyed when
a sweep finds it for the second time and it is older than two minutes.`,
		Args: console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			report, err := service.Sweep(cmd.Context(), r)
			if err != nil {
				return err
			}
			if err := c.Print(cmd, report, func(t *table.Table) { fillSweep(t, report) }); err != nil {
				return err
			}
			for _, i := range report.Instances {
				if i.Error != "" {
					return sandbox.Errorf(sandbox.Failed, "sweep of %s instance %s: %s", i.Backend, i.Instance, i.Error)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "show what a sweep would do, without doing it")
	return cmd
}

func fillSweep(t *table.Table, report sandbox.SweepReport) {
	prefix := ""
	if report.DryRun {
		prefix = "would "
	}
	t.Head(table.Flex("SANDBOX"), table.Wide("INSTANCE"), table.Col("KIND"), table.Flex("ENVIRONMENT"),
		table.Wide("FIELD"), table.Wide("EXPECTED"), table.Wide("OBSERVED"), table.Wide("FIRST SEEN"), table.Col("ACTION"),
		table.Flex("WHY"))
	t.None("No differences.")
	for _, i := range report.Instances {
		for _, f := range i.Findings {
			t.Row(f.SandboxID, i.Instance, string(f.Kind), f.EnvironmentID, f.Field, f.Expected, f.Observed,
				t.When(f.FirstSeenAt), prefix+string(f.Action), f.Why)
		}
	}
}

func adopt(c *console.Console) *cobra.Command {
	var r sandbox.AdoptRequest
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Adopt the sandboxes of a ledger that was emptied, restored or lost",
		Long: `Adopt sandboxes that run on the backends under a ledger's label but are unknown to this ledger. Create
their environments first. An adopted sandbox keeps its generation and its deadline. Its usage counts
from now on. Use --ledger only for a ledger that is lost: two live ledgers must not share a sandbox.
Sandboxes of a warm pool are adopted only with --end, because a lease may have used them since.
A later sweep destroys sandboxes under this ledger's own label that were not adopted, unless they
were created before the ledger was restored.

Without --environment and --ledger, adopt also accepts the backend instances in their current state.
A ledger that was restored from a copy then grants leases again, with generations above all unknown
ones. Its sandboxes on an instance that was wiped are marked as vanished.`,
		Args: console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			report, err := service.Adopt(cmd.Context(), r)
			if err != nil {
				return err
			}
			return c.Print(cmd, report, func(t *table.Table) { fillAdopt(t, report) })
		},
	}
	f := cmd.Flags()
	flags.Filter(f, &r.LedgerID, "ledger", "`id` of the lost ledger (default: this ledger)")
	flags.Filter(f, &r.EnvironmentID, "environment", "only this environment")
	f.BoolVar(&r.End, "end", false, "end the adopted leases at once and destroy their sandboxes")
	f.BoolVar(&r.DryRun, "dry-run", false, "show what adopt would do, without doing it")
	return cmd
}

func fillAdopt(t *table.Table, report sandbox.AdoptReport) {
	yes := "yes"
	if report.DryRun {
		yes = "would be"
	}
	t.Head(table.Lease(), table.Wide("INSTANCE"), table.WideNum("GENERATION"), table.Wide("SANDBOX"),
		table.Wide("ENVIRONMENT"), table.Col("STATE"), table.Col("DEADLINE"), table.Col("ADOPTED"), table.Flex("WHY NOT"))
	t.None("No sandboxes to adopt.")
	for _, s := range report.Sandboxes {
		adopted := "no"
		if s.Adopted {
			adopted = yes
		}
		t.Row(s.LeaseID, s.Instance, strconv.FormatInt(s.Generation, 10), s.SandboxID, s.EnvironmentID, string(s.State),
			t.When(s.Deadline), adopted, s.Why)
	}
}
