package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
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
