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
		Short: "Compare the backends with the ledger now, and destroy what no row wants",
		Long: `Compare the backends with the ledger now, as the reconciler does every 30 seconds, and show what
was found. What carries the ledger's label and is wanted by no row is destroyed when it is seen for
the second time, and is older than two minutes.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			stop := Progress(cmd, "comparing the backends with the ledger")
			report, err := service.Sweep(cmd.Context(), r)
			stop()
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
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "show what would be done; write and destroy nothing")
	return cmd
}

func fillSweep(t *table, report sandbox.SweepReport) {
	prefix := ""
	if report.DryRun {
		prefix = "would "
	}
	t.row("INSTANCE", "KIND", "ENVIRONMENT", "SANDBOX", "FIELD", "EXPECTED", "OBSERVED", "FIRST SEEN", "ACTION", "WHY")
	for _, i := range report.Instances {
		for _, f := range i.Findings {
			t.row(i.Instance, string(f.Kind), f.EnvironmentID, f.SandboxID, f.Field, f.Expected, f.Observed,
				moment(f.FirstSeenAt), prefix+string(f.Action), f.Why)
		}
	}
}

func (a *app) adopt() *cobra.Command {
	var r sandbox.AdoptRequest
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Take in the sandboxes of a ledger that was emptied, restored or lost",
		Long: `Take in the sandboxes that the backends have under a ledger's label and this ledger does not know.
Their environments must exist: create them first. Each keeps its generation and the deadline that it
was made with, and is paid for from now on. Give --ledger only for a ledger that is lost: no two
living ledgers may have the same sandbox. What was made for a warm pool is adopted with --end only:
whether a lease has had it since is not known. What is not adopted under this ledger's own label is
destroyed by a later sweep, unless it is from before the ledger was restored.

Without --environment and --ledger it also accepts the backend instances as they are: a ledger that was put back by a copy begins
leases again, with generations above all that it does not know of; and what it has on an instance that was wiped is vanished.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			stop := Progress(cmd, "looking for sandboxes and taking them in")
			report, err := service.Adopt(cmd.Context(), r)
			stop()
			if err != nil {
				return err
			}
			return a.print(cmd, report, func(t *table) { fillAdopt(t, report) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.LedgerID, "ledger", "", "`id` of the ledger that is lost (default: this ledger's own)")
	f.StringVar(&r.EnvironmentID, "environment", "", "only of this environment")
	f.BoolVar(&r.End, "end", false, "end the adopted leases at once, which destroys their sandboxes")
	f.BoolVar(&r.DryRun, "dry-run", false, "show what would be adopted; write nothing")
	return cmd
}

func fillAdopt(t *table, report sandbox.AdoptReport) {
	yes := "yes"
	if report.DryRun {
		yes = "would be"
	}
	t.row("INSTANCE", "LEASE", "GENERATION", "SANDBOX", "ENVIRONMENT", "STATE", "DEADLINE", "ADOPTED", "WHY NOT")
	for _, s := range report.Sandboxes {
		adopted := "no"
		if s.Adopted {
			adopted = yes
		}
		t.row(s.Instance, s.LeaseID, strconv.FormatInt(s.Generation, 10), s.SandboxID, s.EnvironmentID, string(s.State), moment(s.Deadline), adopted, s.Why)
	}
}
