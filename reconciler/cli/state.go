package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) states() *cobra.Command {
	list := a.listStates()
	a.watchable(list)
	return group("state", "List and delete the snapshots of /data", list, a.deleteState())
}

func (a *app) listStates() *cobra.Command {
	var filter sandbox.SnapshotFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the snapshots of /data",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			page := wire.StatePage{States: []sandbox.Snapshot{}}
			for filter.Limit = sandbox.MaxPage; ; {
				some, err := service.ListSnapshots(cmd.Context(), filter)
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
	cmd.Flags().StringVar(&filter.EnvironmentID, "environment", "", "only snapshots saved in this environment")
	cmd.Flags().StringVar(&filter.AgentDID, "agent", "", "only snapshots of this agent")
	return cmd
}

func (a *app) deleteState() *cobra.Command {
	return &cobra.Command{
		Use:   "delete <key>",
		Short: "Delete the snapshot with a key; the next lease with that key starts empty",
		Args:  exactly("key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			return service.DeleteSnapshot(cmd.Context(), args[0])
		},
	}
}

func fillStates(t *table, states []sandbox.Snapshot) {
	t.head(flex("KEY"), col("SAVED"), wideNum("GENERATION"), wide("SANDBOX"), num("BYTES"), num("UNPACKED"), num("FILES"))
	for _, s := range states {
		t.row(s.Key, t.when(s.SavedAt), strconv.FormatInt(s.Generation, 10), s.SandboxID,
			strconv.FormatInt(s.Bytes, 10), strconv.FormatInt(s.UnpackedBytes, 10), strconv.FormatInt(s.Files, 10))
	}
}
