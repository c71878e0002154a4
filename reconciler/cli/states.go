package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) states() *cobra.Command {
	var filter sandbox.StateFilter
	cmd := &cobra.Command{
		Use:   "states",
		Short: "List what is kept of /data",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			page := wire.StatePage{States: []sandbox.SavedState{}}
			for filter.Limit = sandbox.MaxPage; ; {
				some, err := service.ListStates(cmd.Context(), filter)
				if err != nil {
					return err
				}
				page.States = append(page.States, some...)
				if len(some) < filter.Limit {
					return a.print(cmd, page, func(t *table) { fillStates(t, page.States) })
				}
				filter.After = some[len(some)-1].Key
			}
		},
	}
	cmd.Flags().StringVar(&filter.EnvironmentID, "environment", "", "only what was saved in this environment")
	cmd.Flags().StringVar(&filter.AgentDID, "agent", "", "only what this agent saved")
	cmd.AddCommand(&cobra.Command{
		Use:   "delete <key>",
		Short: "Forget what is kept under a key: who is next begins anew",
		Args:  exactly("key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			return service.DeleteState(cmd.Context(), args[0])
		},
	})
	return cmd
}

func fillStates(t *table, states []sandbox.SavedState) {
	t.row("KEY", "SAVED AT", "GENERATION", "SANDBOX", "BYTES", "UNPACKED", "FILES")
	for _, s := range states {
		t.row(s.Key, moment(s.SavedAt), strconv.FormatInt(s.Generation, 10), s.SandboxID,
			strconv.FormatInt(s.Bytes, 10), strconv.FormatInt(s.UnpackedBytes, 10), strconv.FormatInt(s.Files, 10))
	}
}
