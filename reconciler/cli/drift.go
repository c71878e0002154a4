package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) drift() *cobra.Command {
	var f sandbox.DriftFilter
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Show how the backends differ from the ledger, or did",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			if f.LeaseID, err = leaseID(cmd.Context(), service, f.LeaseID); err != nil {
				return err
			}
			findings, err := service.ListDrift(cmd.Context(), f)
			if err != nil {
				return err
			}
			return a.print(cmd, wire.DriftPage{Findings: findings}, func(t *table) { fillDrift(t, findings) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.EnvironmentID, "environment", "", "only this environment")
	flags.StringVar(&f.LeaseID, "lease", "", "only this lease")
	flags.StringVar((*string)(&f.Kind), "kind", "",
		"only this kind: vanished, stopped, out_of_memory, changed, orphan, leftover or usage")
	flags.StringVar((*string)(&f.Status), "status", "", "only findings with this status: open or resolved")
	complete(cmd, "status", sandbox.DriftStatuses...)
	a.watchable(cmd)
	return cmd
}

func fillDrift(t *table, findings []sandbox.DriftFinding) {
	t.head(num("ID"), col("SEEN"), col("KIND"), leaseCol(), wide("SANDBOX"), flex("FIELD"), flex("EXPECTED"),
		flex("OBSERVED"), col("RESOLVED"), flex("RESOLUTION"))
	for _, d := range findings {
		t.row(strconv.FormatInt(d.ID, 10), t.when(d.FirstSeenAt), string(d.Kind), d.LeaseID, d.SandboxID, d.Field,
			d.Expected, d.Observed, t.when(d.ResolvedAt), d.Resolution)
	}
}
