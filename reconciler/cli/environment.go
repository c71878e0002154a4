package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) environments() *cobra.Command {
	list, get := a.listEnvironments(), a.getEnvironment()
	a.watchable(list, get)
	cmd := group("env", "Apply, get, list, end, reopen and delete environments",
		a.applyEnvironment(), get, list, a.endEnvironment(), a.reopenEnvironment(), a.deleteEnvironment())
	cmd.Long = `Apply, get, list, end, reopen and delete environments. An environment is a game, a campaign or a task:
it sets the image, the size and the rules of the sandboxes that its agents lease.`
	return cmd
}

func (a *app) listEnvironments() *cobra.Command {
	var labels sandbox.LabelSelector
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List environments",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			all, err := service.ListEnvironments(cmd.Context())
			if err := cmp.Or(labels.Validate(), err); err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(e sandbox.Environment) bool { return !labels.Selects(e.Labels) })
			return a.printEnvironments(cmd, wire.EnvironmentPage{Environments: all}, all)
		},
	}
	labelFlag(cmd.Flags(), &labels, "only environments with these")
	return cmd
}

func (a *app) getEnvironment() *cobra.Command {
	return a.environmentCommand("get", "Show an environment", (*client.Client).GetEnvironment)
}

// environmentCommand is a command that does one thing with an environment, and prints it.
func (a *app) environmentCommand(verb, short string,
	do func(*client.Client, context.Context, string) (sandbox.Environment, error)) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " <environment>",
		Short: short,
		Args:  exactly("environment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			e, err := do(service, cmd.Context(), args[0])
			return a.printEnvironment(cmd, e, err)
		},
	}
}

func (a *app) endEnvironment() *cobra.Command {
	c := sandbox.Condition{}
	cmd := &cobra.Command{
		Use:   "end <environment>",
		Short: "End an environment and its leases, as the end of its game does",
		Long: `End an environment and its leases: send it the first of its expiry conditions that is not about one agent, such
as game.finished. An ended environment grants no leases until env reopen.`,
		Example: `  sandbox env end catan-7 --reason "the table broke up"`,
		Args:    exactly("environment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			e, err := service.GetEnvironment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.Type == "" {
				if c.Type, err = endingCondition(e); err != nil {
					return err
				}
			}
			c.Data.EnvironmentID, c.Timestamp = e.ID, a.now().UTC()
			receipt, err := service.Deliver(cmd.Context(), sandbox.Delivery{ID: newMessageID(), Condition: c})
			if err != nil {
				return err
			}
			e, err = service.GetEnvironment(cmd.Context(), e.ID)
			if err == nil && e.Status == sandbox.EnvironmentOpen {
				return sandbox.Errorf(sandbox.Conflict, "environment %s is still open: its condition %s is %s: "+
					"repeat the command if a lease has just begun, or use env delete --force", e.ID, c.Type, receipt.Status)
			}
			return a.printEnvironment(cmd, e, err)
		},
	}
	cmd.Flags().StringVar(&c.Type, "condition", "", "`type` of the condition (default: the environment's own)")
	cmd.Flags().StringVar(&c.Data.Reason, "reason", "", "reason to record")
	return cmd
}

// endingCondition returns the first condition that ends all leases of an environment.
func endingCondition(e sandbox.Environment) (string, error) {
	for _, c := range e.ExpiryConditions {
		if !strings.HasPrefix(c, "agent.") {
			return c, nil
		}
	}
	return "", usage("environment %s has only expiry conditions of single agents, %s: name another one with --condition, "+
		"or use env delete --force", e.ID, strings.Join(e.ExpiryConditions, ", "))
}

func (a *app) reopenEnvironment() *cobra.Command {
	return a.environmentCommand("reopen", "Reopen an ended environment for new leases", (*client.Client).ReopenEnvironment)
}

func (a *app) deleteEnvironment() *cobra.Command {
	var d sandbox.DeleteEnvironment
	cmd := &cobra.Command{
		Use:   "delete <environment>",
		Short: "Delete an environment and wait until its sandboxes are gone",
		Args:  exactly("environment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			d.ID = args[0]
			return service.DeleteEnvironment(cmd.Context(), d)
		},
	}
	cmd.Flags().BoolVar(&d.Force, "force", false, "end leases that are still active; without it they are an error")
	cmd.Flags().StringVar(&d.Owner, "owner", "", "fail unless this is the owner")
	return cmd
}

// printEnvironment prints an environment, or returns err.
func (a *app) printEnvironment(cmd *cobra.Command, e sandbox.Environment, err error) error {
	if err != nil {
		return err
	}
	return a.printEnvironments(cmd, e, []sandbox.Environment{e})
}

func (a *app) printEnvironments(cmd *cobra.Command, v any, environments []sandbox.Environment) error {
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	return a.print(cmd, v, func(t *table) {
		t.head(col("ENVIRONMENT"), wide("TYPE"), col("STATUS"), num("LEASES"), num("ASLEEP"), num("FAILED"), num("DRIFT"),
			wide("BACKEND"), num("MEMORY"), num("CPUS"), col("TTL"), flex("IMAGE"), wide("OWNER"), flex("REMARK"))
		for _, e := range environments {
			remark := ""
			if e.EndedBy != "" {
				remark = "ended by " + e.EndedBy + " " + t.when(e.EndedAt)
			}
			t.row(e.ID, string(e.Type), string(e.Status), count(e.Leases.Live()), count(e.Leases.Asleep+e.Leases.Stopped),
				count(e.Leases.Failed), count(e.OpenDrift), string(e.Backend), fmt.Sprintf("%d MiB", e.Resources.MemoryMB),
				strconv.FormatFloat(float64(e.Resources.CPUMillis)/1000, 'g', -1, 64), length(e.TTL.D().Seconds()),
				e.Image, e.Owner, remark)
		}
	})
}
