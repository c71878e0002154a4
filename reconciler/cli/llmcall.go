package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) llmCalls() *cobra.Command {
	list := a.listLLMCalls()
	a.watchable(list)
	return group("llm-call", "List the calls of models with their tokens and cost", list)
}

func (a *app) listLLMCalls() *cobra.Command {
	var q sandbox.LLMCallQuery
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the calls of models with their tokens and cost, latest first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			if q.LeaseID, err = leaseID(cmd.Context(), service, q.LeaseID); err != nil {
				return err
			}
			calls, err := service.ListLLMCalls(cmd.Context(), q)
			if err != nil {
				return err
			}
			return a.print(cmd, wire.LLMCallPage{Calls: calls}, func(t *table) { fillLLMCalls(t, calls) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.EnvironmentID, "environment", "", "only this environment")
	flags.StringVar(&q.LeaseID, "lease", "", "only this lease")
	flags.StringVar(&q.Session, "session", "", "only calls of this session, as the agent itself says")
	flags.IntVar(&q.Limit, "limit", sandbox.DefaultLLMCalls, "show at most this many, 1 to 1000")
	return cmd
}

func fillLLMCalls(t *table, calls []sandbox.LLMCall) {
	t.head(leaseCol(), wideNum("GENERATION"), col("STARTED"), col("ROUTE"), flex("MODEL"), col("OUTCOME"),
		num("INPUT"), num("CACHED"), num("OUTPUT"), num("COST"))
	for _, c := range calls {
		cost := dollars(c.Cost)
		if c.Unknown || c.Outcome == sandbox.LLMRunning {
			cost = "at most " + cost
		}
		t.row(c.LeaseID, strconv.FormatInt(c.Generation, 10), t.when(c.StartedAt), c.Route, c.Model, string(c.Outcome),
			strconv.FormatInt(c.Tokens.Input+c.Tokens.CacheWrite, 10), strconv.FormatInt(c.Tokens.CachedInput, 10),
			strconv.FormatInt(c.Tokens.Output, 10), cost)
	}
}
