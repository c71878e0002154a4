package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/client/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

func (a *app) events() *cobra.Command {
	var (
		filter sandbox.EventFilter
		follow bool
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List events, and with --follow wait for more",
		Long:  `List events. With --output json each is one line.`,
		Args:  exactly(),
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
	f.StringVar(&filter.EnvironmentID, "environment", "", "only of this environment")
	f.StringVar(&filter.LeaseID, "lease", "", "only of this lease")
	f.StringVar(&filter.SandboxID, "sandbox", "", "only of this sandbox")
	f.Int64Var(&filter.FromSequence, "from-sequence", 0, "only after this sequence of --sandbox")
	return cmd
}

// showEvent prints events one by one, so that followed ones show at once.
func (a *app) showEvent(cmd *cobra.Command) func(sandbox.Event) error {
	out := cmd.OutOrStdout()
	if a.output == "json" {
		lines := json.NewEncoder(out)
		return func(e sandbox.Event) error { return lines.Encode(e) }
	}
	return func(e sandbox.Event) error {
		subject := e.EnvironmentID
		if e.LeaseID != "" {
			subject = e.LeaseID + "#" + strconv.FormatInt(e.Generation, 10)
		}
		_, err := fmt.Fprintf(out, "%s  %-22s  %s  %s\n", moment(e.At), e.Type, clean(subject), clean(string(e.Data)))
		return err
	}
}

func (a *app) costs() *cobra.Command {
	var (
		q        sandbox.CostQuery
		from, to string
	)
	cmd := &cobra.Command{
		Use:   "costs",
		Short: "Show what sandboxes have cost",
		Long: `Show what sandboxes have cost, gross, at the prices that were in force; and what the same use
would cost on Cloudflare. Plan fees and what they include belong to an account and are left out.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, bound := range []struct {
				flag, text string
				to         *time.Time
			}{{"--from", from, &q.From}, {"--to", to, &q.To}} {
				var err error
				if bound.text == "" {
					continue
				}
				if *bound.to, err = time.Parse(time.RFC3339, bound.text); err != nil {
					return usage("%s: %q is not a time such as 2026-08-01T00:00:00Z", bound.flag, bound.text)
				}
			}
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			report, err := service.Costs(cmd.Context(), q)
			if err != nil {
				return err
			}
			return a.print(cmd, report, func(t *table) { fillCosts(t, q.GroupBy, report) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.EnvironmentID, "environment", "", "only of this environment")
	f.StringVar(&q.AgentDID, "agent", "", "only of this agent")
	f.StringVar(&from, "from", "", "from this time on, in RFC 3339")
	f.StringVar(&to, "to", "", "up to this time, in RFC 3339")
	f.StringVar((*string)(&q.GroupBy), "group-by", string(sandbox.CostByLease), "lease, environment, agent, day or month")
	return cmd
}

func fillCosts(t *table, by sandbox.CostGroup, report sandbox.CostReport) {
	name := map[sandbox.CostGroup]func(sandbox.CostRow) string{
		sandbox.CostByLease:       func(r sandbox.CostRow) string { return r.LeaseID },
		sandbox.CostByEnvironment: func(r sandbox.CostRow) string { return r.EnvironmentID },
		sandbox.CostByAgent:       func(r sandbox.CostRow) string { return r.AgentDID },
		sandbox.CostByDay:         func(r sandbox.CostRow) string { return r.Day },
		sandbox.CostByMonth:       func(r sandbox.CostRow) string { return r.Month },
	}[by]
	row := func(name string, r sandbox.CostRow) {
		t.row(name, strconv.FormatInt(r.Generations, 10), length(r.AwakeSeconds), length(r.AsleepSeconds), length(r.CPUSeconds), dollars(r.Cost), dollars(r.ShadowCost))
	}
	t.row(map[sandbox.CostGroup]string{sandbox.CostByLease: "LEASE", sandbox.CostByEnvironment: "ENVIRONMENT", sandbox.CostByAgent: "AGENT",
		sandbox.CostByDay: "DAY (UTC)", sandbox.CostByMonth: "MONTH (UTC)"}[by], "GENERATIONS", "AWAKE", "ASLEEP", "CPU", "COST", "ON CLOUDFLARE")
	for _, r := range report.Rows {
		row(name(r), r)
	}
	row("total", report.Total)
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
					t.row(moment(d.FirstSeenAt), string(d.Kind), d.LeaseID, d.SandboxID, d.Field, d.Expected, d.Observed, moment(d.ResolvedAt), d.Resolution)
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.EnvironmentID, "environment", "", "only of this environment")
	flags.StringVar(&f.LeaseID, "lease", "", "only of this lease")
	flags.BoolVar(&f.OpenOnly, "open", false, "leave out what is resolved")
	return cmd
}
