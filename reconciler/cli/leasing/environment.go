package leasing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func environments(c *console.Console) *cobra.Command {
	list, get := listEnvironments(c), getEnvironment(c)
	c.Watchable(list, get)
	cmd := console.Group("env", "Apply, get, list, end, reopen and delete environments",
		applyEnvironment(c), get, list, endEnvironment(c), reopenEnvironment(c), deleteEnvironment(c))
	cmd.Long = `Apply, get, list, end, reopen and delete environments. An environment is a game, a campaign or a task:
it sets the image, the size and the rules of the sandboxes that its agents lease.`
	return cmd
}

func listEnvironments(c *console.Console) *cobra.Command {
	var labels sandbox.LabelSelector
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List environments",
		Args:  console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			all, err := service.ListEnvironments(cmd.Context())
			if err := cmp.Or(labels.Validate(), err); err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(e sandbox.Environment) bool { return !labels.Selects(e.Labels) })
			return printEnvironments(c, cmd, wire.EnvironmentPage{Environments: all}, all)
		},
	}
	console.LabelFlag(cmd.Flags(), &labels, "only environments with these")
	return cmd
}

func getEnvironment(c *console.Console) *cobra.Command {
	return environmentCommand(c, "get", "Show an environment", (*client.Client).GetEnvironment)
}

// environmentCommand returns a command that performs one operation on an environment, and prints it.
func environmentCommand(c *console.Console, verb, short string,
	do func(*client.Client, context.Context, string) (sandbox.Environment, error)) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " <environment>",
		Short: short,
		Args:  console.Exactly("environment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			e, err := do(service, cmd.Context(), args[0])
			return printEnvironment(c, cmd, e, err)
		},
	}
}

func endEnvironment(c *console.Console) *cobra.Command {
	condition := sandbox.Condition{}
	cmd := &cobra.Command{
		Use:   "end <environment>",
		Short: "End an environment and its leases, as the end of its game does",
		Long: `End an environment and its leases: send it the first of its expiry conditions that is not about one agent, such
as game.finished. An ended environment grants no leases until env reopen.`,
		Example: `  sandbox env end catan-7 --reason "the table broke up"`,
		Args:    console.Exactly("environment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			e, err := service.GetEnvironment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if condition.Type == "" {
				if condition.Type, err = endingCondition(e); err != nil {
					return err
				}
			}
			condition.Data.EnvironmentID, condition.Timestamp = e.ID, c.Now().UTC()
			receipt, err := service.Deliver(cmd.Context(), sandbox.Delivery{ID: console.NewMessageID(), Condition: condition})
			if err != nil {
				return err
			}
			e, err = service.GetEnvironment(cmd.Context(), e.ID)
			if err == nil && e.Status == sandbox.EnvironmentOpen {
				return sandbox.Errorf(sandbox.Conflict, "environment %s is still open: its condition %s is %s: "+
					"repeat the command if a lease has just begun, or use env delete --force", e.ID, condition.Type, receipt.Status)
			}
			return printEnvironment(c, cmd, e, err)
		},
	}
	cmd.Flags().StringVar(&condition.Type, "condition", "", "`type` of the condition (default: the environment's own)")
	cmd.Flags().StringVar(&condition.Data.Reason, "reason", "", "reason to record")
	return cmd
}

// endingCondition returns the first condition that ends all leases of an environment.
func endingCondition(e sandbox.Environment) (string, error) {
	for _, c := range e.ExpiryConditions {
		if !strings.HasPrefix(c, "agent.") {
			return c, nil
		}
	}
	return "", exit.Usagef("environment %s has only expiry conditions of single agents, %s: name another one with "+
		"--condition, or use env delete --force", e.ID, strings.Join(e.ExpiryConditions, ", "))
}

func reopenEnvironment(c *console.Console) *cobra.Command {
	return environmentCommand(c, "reopen", "Reopen an ended environment for new leases",
		(*client.Client).ReopenEnvironment)
}

func deleteEnvironment(c *console.Console) *cobra.Command {
	var d sandbox.DeleteEnvironment
	cmd := &cobra.Command{
		Use:   "delete <environment>",
		Short: "Delete an environment and wait until its sandboxes are gone",
		Args:  console.Exactly("environment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := c.Connect(cmd)
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
func printEnvironment(c *console.Console, cmd *cobra.Command, e sandbox.Environment, err error) error {
	if err != nil {
		return err
	}
	return printEnvironments(c, cmd, e, []sandbox.Environment{e})
}

func printEnvironments(c *console.Console, cmd *cobra.Command, v any, environments []sandbox.Environment) error {
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	return c.Print(cmd, v, func(t *table.Table) {
		t.Head(table.Col("ENVIRONMENT"), table.Wide("TYPE"), table.Col("STATUS"), table.Num("LEASES"), table.Num("ASLEEP"),
			table.Num("FAILED"), table.Num("DRIFT"), table.Wide("BACKEND"), table.Num("MEMORY"), table.Num("CPUS"),
			table.Col("TTL"), table.Flex("IMAGE"), table.Wide("OWNER"), table.Flex("REMARK"))
		for _, e := range environments {
			remark := ""
			if e.EndedBy != "" {
				remark = "ended by " + e.EndedBy + " " + t.When(e.EndedAt)
			}
			t.Row(e.ID, string(e.Type), string(e.Status), count(e.Leases.Live()), count(e.Leases.Asleep+e.Leases.Stopped),
				count(e.Leases.Failed), count(e.OpenDrift), string(e.Backend), fmt.Sprintf("%d MiB", e.Resources.MemoryMB),
				strconv.FormatFloat(float64(e.Resources.CPUMillis)/1000, 'g', -1, 64), format.Length(e.TTL.D().Seconds()),
				e.Image, e.Owner, remark)
		}
	})
}
