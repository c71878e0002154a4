package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) sweep() *cobra.Command {
	var r sandbox.SweepRequest
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Compare the backends with the ledger now, and destroy orphans",
		Long: `Compare the backends with the ledger now, as the reconciler does every 30 seconds, and show the
differences. An orphan carries the ledger's label but has no row in the ledger. It is destroyed when
a sweep finds it for the second time and it is older than two minutes.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			report, err := service.Sweep(cmd.Context(), r)
			if err != nil {
				return err
			}
			if err := a.print(cmd, report, func(t *table) { fillSweep(t, report) }); err != nil {
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

func fillSweep(t *table, report sandbox.SweepReport) {
	prefix := ""
	if report.DryRun {
		prefix = "would "
	}
	t.head(flex("SANDBOX"), wide("INSTANCE"), col("KIND"), flex("ENVIRONMENT"), wide("FIELD"), wide("EXPECTED"),
		wide("OBSERVED"), wide("FIRST SEEN"), col("ACTION"), flex("WHY"))
	for _, i := range report.Instances {
		for _, f := range i.Findings {
			t.row(f.SandboxID, i.Instance, string(f.Kind), f.EnvironmentID, f.Field, f.Expected, f.Observed,
				t.when(f.FirstSeenAt), prefix+string(f.Action), f.Why)
		}
	}
}

func (a *app) adopt() *cobra.Command {
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
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			report, err := service.Adopt(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.print(cmd, report, func(t *table) { fillAdopt(t, report) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.LedgerID, "ledger", "", "`id` of the lost ledger (default: this ledger)")
	f.StringVar(&r.EnvironmentID, "environment", "", "only this environment")
	f.BoolVar(&r.End, "end", false, "end the adopted leases at once and destroy their sandboxes")
	f.BoolVar(&r.DryRun, "dry-run", false, "show what adopt would do, without doing it")
	return cmd
}

func fillAdopt(t *table, report sandbox.AdoptReport) {
	yes := "yes"
	if report.DryRun {
		yes = "would be"
	}
	t.head(leaseCol(), wide("INSTANCE"), wideNum("GENERATION"), wide("SANDBOX"), wide("ENVIRONMENT"), col("STATE"),
		col("DEADLINE"), col("ADOPTED"), flex("WHY NOT"))
	for _, s := range report.Sandboxes {
		adopted := "no"
		if s.Adopted {
			adopted = yes
		}
		t.row(s.LeaseID, s.Instance, strconv.FormatInt(s.Generation, 10), s.SandboxID, s.EnvironmentID, string(s.State),
			t.when(s.Deadline), adopted, s.Why)
	}
}
