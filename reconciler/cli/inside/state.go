package inside

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func states(c *console.Console) *cobra.Command {
	list := listStates(c)
	c.Watchable(list)
	return console.Group("state", "List and delete the snapshots of /data", list, deleteState(c))
}

func listStates(c *console.Console) *cobra.Command {
	var filter sandbox.SnapshotFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the snapshots of /data",
		Args:  console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			all, err := console.EveryPage(func(after string) ([]sandbox.Snapshot, error) {
				filter.After, filter.Limit = after, sandbox.MaxPage
				return service.ListSnapshots(cmd.Context(), filter)
			}, func(s sandbox.Snapshot) string { return s.Key })
			if err != nil {
				return err
			}
			return c.Print(cmd, wire.StatePage{States: all}, func(t *table.Table) { fillStates(t, all) })
		},
	}
	flags.Filter(cmd.Flags(), &filter.EnvironmentID, "environment", "only snapshots saved in this environment")
	flags.Filter(cmd.Flags(), &filter.AgentDID, "agent", "only snapshots of this agent")
	return cmd
}

func deleteState(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "delete <key>",
		Short: "Delete the snapshot with a key; the next lease with that key starts empty",
		Args:  console.Exactly("key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			return service.DeleteSnapshot(cmd.Context(), args[0])
		},
	}
}

func fillStates(t *table.Table, states []sandbox.Snapshot) {
	t.Head(table.Flex("KEY"), table.Col("SAVED"), table.WideNum("GENERATION"), table.Wide("SANDBOX"), table.Num("BYTES"),
		table.Num("UNPACKED"), table.Num("FILES"))
	for _, s := range states {
		t.Row(s.Key, t.When(s.SavedAt), strconv.FormatInt(s.Generation, 10), s.SandboxID,
			strconv.FormatInt(s.Bytes, 10), strconv.FormatInt(s.UnpackedBytes, 10), strconv.FormatInt(s.Files, 10))
	}
}
