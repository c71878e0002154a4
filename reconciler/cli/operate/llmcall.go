package operate

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func llmCalls(c *console.Console) *cobra.Command {
	list := listLLMCalls(c)
	c.Watchable(list)
	return console.Group("llm-call", "List the model calls with their tokens and cost", list)
}

func listLLMCalls(c *console.Console) *cobra.Command {
	var q sandbox.LLMCallQuery
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the model calls with their tokens and cost, latest first",
		Args:  console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			if q.LeaseID, err = console.LeaseID(cmd.Context(), service, q.LeaseID); err != nil {
				return err
			}
			calls, err := service.ListLLMCalls(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.Print(cmd, wire.LLMCallPage{Calls: calls}, func(t *table.Table) { fillLLMCalls(t, calls) })
		},
	}
	options := cmd.Flags()
	flags.Filter(options, &q.EnvironmentID, "environment", "only this environment")
	flags.Filter(options, &q.LeaseID, "lease", "only this lease")
	options.StringVar(&q.Session, "session", "", "only calls of this session, as the agent itself says")
	options.IntVar(&q.Limit, "limit", sandbox.DefaultLLMCalls, "show at most this many, 1 to 1000")
	return cmd
}

func fillLLMCalls(t *table.Table, calls []sandbox.LLMCall) {
	t.Head(table.Lease(), table.WideNum("GENERATION"), table.Col("STARTED"), table.Col("ROUTE"), table.Flex("MODEL"),
		table.Col("OUTCOME"), table.Num("INPUT"), table.Num("CACHED"), table.Num("OUTPUT"), table.Num("COST"))
	for _, c := range calls {
		cost := format.Dollars(c.Cost)
		if c.Unknown || c.Outcome == sandbox.LLMRunning {
			cost = "at most " + cost
		}
		t.Row(c.LeaseID, strconv.FormatInt(c.Generation, 10), t.When(c.StartedAt), c.Route, c.Model, string(c.Outcome),
			strconv.FormatInt(c.Tokens.Input+c.Tokens.CacheWrite, 10), strconv.FormatInt(c.Tokens.CachedInput, 10),
			strconv.FormatInt(c.Tokens.Output, 10), cost)
	}
}
