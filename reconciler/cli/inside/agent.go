package inside

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func agents(c *console.Console) *cobra.Command {
	list := listAgents(c)
	c.Watchable(list)
	return console.Group("agent", "List the agents of leases: processes that serve HTTP", list)
}

func listAgents(c *console.Console) *cobra.Command {
	var f sandbox.AgentFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the agents of leases that have not ended: processes that serve HTTP",
		Args:  console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			all, err := console.EveryPage(func(after string) ([]sandbox.Agent, error) {
				f.After, f.Limit = after, sandbox.MaxPage
				return service.Agents(cmd.Context(), f)
			}, func(a sandbox.Agent) string { return a.ID })
			if err != nil {
				return err
			}
			return c.Print(cmd, wire.AgentPage{Agents: all}, func(t *table.Table) {
				t.Head(table.Col("AGENT"), table.Lease(), table.Col("STATE"), table.Col("STARTED"), table.Flex("DESCRIPTION"))
				for _, agent := range all {
					t.Row(agent.Name, agent.LeaseID, string(agent.State), t.When(agent.StartedAt), agent.Description)
				}
			})
		},
	}
	options := cmd.Flags()
	flags.Filter(options, &f.EnvironmentID, "environment", "only this environment")
	flags.Filter(options, &f.LeaseID, "lease", "only this lease")
	options.StringVar((*string)(&f.State), "state", "", "only this state: starting, running, asleep or ended")
	console.Complete(cmd, "state", sandbox.AgentStates...)
	return cmd
}
