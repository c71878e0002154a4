package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) events() *cobra.Command {
	var (
		filter sandbox.EventFilter
		follow bool
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List events; --follow waits for more",
		Long: `List events, oldest first. With --output json, each event is one line.

--after continues an earlier list. It takes the id of its last event, or the last_event_id of a lease,
an environment or the ledger. The command fails if an event after that id was already purged.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			show := a.showEvent(cmd)
			if follow {
				err := service.FollowEvents(cmd.Context(), filter, show)
				if errors.Is(err, context.Canceled) {
					return nil
				}
				return err
			}
			filter.Limit = sandbox.MaxPage
			for {
				page, err := service.ListEvents(cmd.Context(), filter)
				if err != nil {
					return err
				}
				for _, e := range page {
					if err := show(e); err != nil {
						return err
					}
				}
				if len(page) < filter.Limit {
					return nil
				}
				filter.AfterID = page[len(page)-1].ID
			}
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "wait for more")
	f.StringVar(&filter.EnvironmentID, "environment", "", "only this environment")
	f.StringVar(&filter.LeaseID, "lease", "", "only this lease")
	f.StringVar(&filter.SandboxID, "sandbox", "", "only this sandbox")
	f.StringVar(&filter.Type, "type", "",
		"only this `type`, such as egress.denied, or a prefix such as 'egress.*'")
	labelFlag(f, &filter.Labels, "only events of environments and generations with these")
	f.Int64Var(&filter.AfterID, "after", 0, "only events after this `id`, such as a lease's last_event_id")
	f.Int64Var(&filter.FromSequence, "from-sequence", 0, "only events of --sandbox after this sequence")
	return cmd
}

// showEvent prints each event at once, so that --follow needs no buffer.
func (a *app) showEvent(cmd *cobra.Command) func(sandbox.Event) error {
	out := cmd.OutOrStdout()
	if a.output == "json" {
		lines := printable.NewEncoder(out)
		return func(e sandbox.Event) error { return lines.Encode(e) }
	}
	return func(e sandbox.Event) error {
		subject := e.EnvironmentID
		if e.LeaseID != "" {
			subject = e.LeaseID + "#" + strconv.FormatInt(e.Generation, 10)
		}
		line := fmt.Sprintf("%s  %-26s  %s  %s", moment(e.At), e.Type, printable.Text(subject),
			printable.Text(string(e.Data)))
		if e.Actor != "" {
			line += "  by " + printable.Text(e.Actor)
		}
		if e.Address != "" {
			line += " from " + printable.Text(e.Address)
		}
		_, err := fmt.Fprintln(out, line)
		return err
	}
}

func (a *app) llmCalls() *cobra.Command {
	var q sandbox.LLMCallQuery
	cmd := &cobra.Command{
		Use:   "llm-calls",
		Short: "Show the calls of models with their tokens and costs, latest first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			calls, err := service.ListLLMCalls(cmd.Context(), q)
			if err != nil {
				return err
			}
			return a.print(cmd, wire.LLMCallPage{Calls: calls}, func(t *table) {
				rows := [][]string{{"STARTED", "LEASE", "ROUTE", "MODEL", "OUTCOME", "INPUT", "CACHED", "OUTPUT", "COST"}}
				for _, c := range calls {
					cost := dollars(c.Cost)
					if c.Unknown || c.Outcome == sandbox.LLMRunning {
						cost = "at most " + cost
					}
					rows = append(rows, []string{
						moment(c.StartedAt), c.LeaseID + "#" + strconv.FormatInt(c.Generation, 10), c.Route, c.Model,
						string(c.Outcome), strconv.FormatInt(c.Tokens.Input+c.Tokens.CacheWrite, 10),
						strconv.FormatInt(c.Tokens.CachedInput, 10), strconv.FormatInt(c.Tokens.Output, 10), cost,
					})
				}
				alignRight(rows, 5, len(rows[0]))
				for _, cells := range rows {
					t.row(cells...)
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.EnvironmentID, "environment", "", "only this environment")
	flags.StringVar(&q.LeaseID, "lease", "", "only this lease")
	flags.StringVar(&q.Session, "session", "", "only calls of this session, as the agent itself says")
	flags.IntVar(&q.Limit, "limit", sandbox.DefaultLLMCalls, "show at most this many, 1 to 1000")
	return cmd
}

func (a *app) drift() *cobra.Command {
	var f sandbox.DriftFilter
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Show how the backends differed from the ledger",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			findings, err := service.ListDrift(cmd.Context(), f)
			if err != nil {
				return err
			}
			return a.print(cmd, wire.DriftPage{Findings: findings}, func(t *table) {
				t.row("FIRST SEEN", "KIND", "LEASE", "SANDBOX", "FIELD", "EXPECTED", "OBSERVED", "RESOLVED", "RESOLUTION")
				for _, d := range findings {
					t.row(moment(d.FirstSeenAt), string(d.Kind), d.LeaseID, d.SandboxID, d.Field, d.Expected, d.Observed,
						moment(d.ResolvedAt), d.Resolution)
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.EnvironmentID, "environment", "", "only this environment")
	flags.StringVar(&f.LeaseID, "lease", "", "only this lease")
	flags.StringVar((*string)(&f.Kind), "kind", "",
		"only this kind: vanished, stopped, out_of_memory, changed, orphan, leftover or usage")
	flags.StringVar((*string)(&f.Status), "status", "", "only findings with this status: open or resolved")
	complete(cmd, "status", sandbox.DriftStatuses...)
	return cmd
}
