package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) agents() *cobra.Command {
	list := a.listAgents()
	a.watchable(list)
	return group("agent", "List the agents of leases: processes that serve HTTP", list)
}

func (a *app) listAgents() *cobra.Command {
	var f sandbox.AgentFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the agents of leases that have not ended: processes that serve HTTP",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			all, err := everyPage(func(after string) ([]sandbox.Agent, error) {
				f.After, f.Limit = after, sandbox.MaxPage
				return service.Agents(cmd.Context(), f)
			}, func(a sandbox.Agent) string { return a.ID })
			if err != nil {
				return err
			}
			return a.print(cmd, wire.AgentPage{Agents: all}, func(t *table) {
				t.head(col("AGENT"), leaseCol(), col("STATE"), col("STARTED"), flex("DESCRIPTION"))
				for _, agent := range all {
					t.row(agent.Name, agent.LeaseID, string(agent.State), t.when(agent.StartedAt), agent.Description)
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.EnvironmentID, "environment", "", "only this environment")
	flags.StringVar(&f.LeaseID, "lease", "", "only this lease")
	flags.StringVar((*string)(&f.State), "state", "", "only this state: starting, running, asleep or ended")
	complete(cmd, "state", sandbox.AgentStates...)
	return cmd
}
