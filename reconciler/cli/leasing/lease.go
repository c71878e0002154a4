package leasing

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func leases(c *console.Console) *cobra.Command {
	list, get := listLeases(c), getLease(c)
	usage, health := leaseUsage(c), health(c)
	c.Watchable(list, get, usage)
	cmd := console.Group("lease", "Create, get, list, renew, release, sleep and wake leases",
		createLease(c), createLeases(c), get, list, renewLease(c), releaseLease(c),
		onLease(c, "sleep", "Put the sandbox of a lease to sleep now", (*client.Client).Sleep),
		onLease(c, "wake", "Wake the sandbox of a lease now", (*client.Client).Wake),
		usage, health)
	cmd.Long = `Create, get, list, renew, release, sleep and wake leases. A lease gives one agent one sandbox in an
environment.

A command takes the id of a lease, did:plc:ada::catan-7. It also takes the short form ada@catan-7, if only one agent of
the environment has a DID that ends with :ada.`
	cmd.Example = `  sandbox lease create did:plc:ada catan-7
  sandbox exec ada@catan-7 -- echo hello
  sandbox lease release ada@catan-7`
	return cmd
}

func listLeases(c *console.Console) *cobra.Command {
	var f sandbox.LeaseFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List leases, including ended ones",
		Args:  console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			all, err := console.EveryPage(func(after string) ([]sandbox.Lease, error) {
				f.After, f.Limit = after, sandbox.MaxPage
				return service.ListLeases(cmd.Context(), f)
			}, f.Next)
			if err != nil {
				return err
			}
			return printLeases(c, cmd, wire.LeasePage{Leases: all}, all)
		},
	}
	options := cmd.Flags()
	flags.Filter(options, &f.EnvironmentID, "environment", "only this environment")
	flags.Filter(options, &f.AgentDID, "agent", "only this agent")
	options.StringVar((*string)(&f.Status), "status", "",
		"only leases with this status: pending, active, expired or destroyed")
	console.Complete(cmd, "status", sandbox.LeaseStatuses...)
	console.LabelFlag(options, &f.Labels, "only leases with these")
	return cmd
}

func getLease(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "get <lease>",
		Short: "Show a lease",
		Args:  console.Exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			lease, err := service.GetLease(cmd.Context(), id)
			if err != nil {
				return err
			}
			return printLeases(c, cmd, lease, []sandbox.Lease{lease})
		},
	}
}

func createLease(c *console.Console) *cobra.Command {
	var want sandbox.Acquire
	cmd := &cobra.Command{
		Use:   "create <agent> <environment>",
		Short: "Create a lease for an agent and wait until its sandbox is ready",
		Long: `Create a lease for an agent and wait until its sandbox is ready. An agent that has a lease in the environment
gets that one. After the end of a lease, the agent gets its next generation: a new sandbox.`,
		Example: `  sandbox lease create did:plc:ada catan-7`,
		Args:    console.Exactly("agent", "environment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			want.AgentDID, want.EnvironmentID = args[0], args[1]
			got, err := service.Acquire(cmd.Context(), want)
			if err != nil {
				return err
			}
			return printLeases(c, cmd, got, []sandbox.Lease{got.Lease})
		},
	}
	cmd.Flags().StringVar(&want.Owner, "owner", "", "who may renew and release it (default: the token)")
	cmd.Flags().StringToStringVar(&want.Settings.Labels, "labels", nil,
		"labels of the lease, as `key=value,…`, in addition to those of the environment")
	cmd.Flags().Lookup("labels").DefValue = "" // not []
	cmd.Flags().BoolVar(&want.NoWait, "no-wait", false, "return once the lease is accepted, while it may still be pending")
	return cmd
}

// onLease returns a command that does something to a lease and shows it.
func onLease(c *console.Console, verb, short string,
	do func(*client.Client, context.Context, sandbox.LeaseRef) (sandbox.Lease, error)) *cobra.Command {
	var ref sandbox.LeaseRef
	cmd := &cobra.Command{
		Use:   verb + " <lease>",
		Short: short,
		Args:  console.Exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			ref.ID = id
			lease, err := do(service, cmd.Context(), ref)
			if err != nil {
				return err
			}
			return printLeases(c, cmd, lease, []sandbox.Lease{lease})
		},
	}
	cmd.Flags().Int64Var(&ref.Generation, "generation", 0, "fail unless the lease has this generation")
	cmd.Flags().StringVar(&ref.Owner, "owner", "", "fail unless this is the owner")
	return cmd
}

func renewLease(c *console.Console) *cobra.Command {
	return onLease(c, "renew", "Count as activity: the lease ends its TTL from now, unless it is used again",
		func(c *client.Client, ctx context.Context, ref sandbox.LeaseRef) (sandbox.Lease, error) {
			return c.Renew(ctx, sandbox.Renew{LeaseRef: ref})
		})
}

func releaseLease(c *console.Console) *cobra.Command {
	var noWait bool
	cmd := onLease(c, "release", "End a lease and wait until its sandbox is gone",
		func(c *client.Client, ctx context.Context, ref sandbox.LeaseRef) (sandbox.Lease, error) {
			if noWait {
				return c.StartRelease(ctx, ref)
			}
			return c.Release(ctx, ref)
		})
	cmd.Flags().Lookup("generation").Usage =
		"fail unless the lease, or a failed sandbox kept for inspection, has this generation"
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return at once; the lease is expired until its sandbox is gone")
	return cmd
}

func printLeases(c *console.Console, cmd *cobra.Command, v any, leases []sandbox.Lease) error {
	return c.Print(cmd, v, func(t *table.Table) {
		t.Head(table.Lease(), table.WideNum("GENERATION"), table.Col("STATUS"), table.Col("SANDBOX"), table.Col("LEASED"),
			table.Col("ENDS"), table.Num("COST"), table.Wide("OWNER"), table.Flex("REMARK"))
		for _, l := range leases {
			ends := l.ExpiresAt
			if l.EndedBy != "" {
				ends = l.EndedAt
			}
			t.Row(l.ID, strconv.FormatInt(l.Generation, 10), string(l.Status), string(l.SandboxState), t.When(l.LeasedAt),
				t.When(ends), format.Dollars(l.Cost), l.Owner, remarkOn(l))
		}
	})
}

// remarkOn says why a lease ended and what is wrong with it.
func remarkOn(l sandbox.Lease) string {
	var remarks []string
	if l.EndedBy != "" {
		remarks = append(remarks, string(l.EndedBy)+": "+l.EndReason)
	}
	if l.LastError != "" {
		remarks = append(remarks, fmt.Sprintf("failed %s: %s", printable.Count(l.Attempts, "time", "times"), l.LastError))
	}
	for _, c := range l.Companions {
		if c.State == sandbox.CompanionFailed || c.State == sandbox.CompanionUnhealthy {
			remarks = append(remarks, fmt.Sprintf("companion %s %s: %s", c.Name, c.State, c.Message))
		}
	}
	return strings.Join(remarks, "; ")
}
