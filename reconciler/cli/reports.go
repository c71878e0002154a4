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
		Short: "List events, and with --follow wait for more",
		Long: `List events, the oldest that is retained first. With --output json each is one line.

With --after the list goes on where another one, or the last_event_id of a lease, an environment or
the ledger, has left off; it fails when not all events after it are retained any more.`,
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
	f.StringVar(&filter.EnvironmentID, "environment", "", "only of this environment")
	f.StringVar(&filter.LeaseID, "lease", "", "only of this lease")
	f.StringVar(&filter.SandboxID, "sandbox", "", "only of this sandbox")
	f.StringVar(&filter.Type, "type", "", "only of this `type`, such as egress.denied, or of all that begin alike, such as 'egress.*'")
	f.Int64Var(&filter.AfterID, "after", 0, "only after the event with this `id`, such as a lease's last_event_id")
	f.Int64Var(&filter.FromSequence, "from-sequence", 0, "only after this sequence of --sandbox")
	return cmd
}

// showEvent prints events one by one, so that followed ones show at once.
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
		line := fmt.Sprintf("%s  %-26s  %s  %s", moment(e.At), e.Type, printable.Text(subject), printable.Text(string(e.Data)))
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
	flags.StringVar((*string)(&f.Kind), "kind", "", "only of this kind: vanished, stopped, out_of_memory, changed, orphan, leftover or usage")
	flags.StringVar((*string)(&f.Status), "status", "", "only open or only resolved ones")
	complete(cmd, "status", sandbox.DriftStatuses...)
	return cmd
}
