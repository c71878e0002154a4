package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) leases() *cobra.Command {
	list, get := a.listLeases(), a.getLease()
	usage, health := a.usage(), a.health()
	a.watchable(list, get, usage)
	cmd := group("lease", "Create, get, list, renew, release, sleep and wake leases",
		a.createLease(), a.createLeases(), get, list, a.renewLease(), a.releaseLease(),
		a.onLease("sleep", "Put the sandbox of a lease to sleep now", (*client.Client).Sleep),
		a.onLease("wake", "Wake the sandbox of a lease now", (*client.Client).Wake),
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

func (a *app) listLeases() *cobra.Command {
	var f sandbox.LeaseFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List leases, also those that have ended",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			all, err := everyPage(func(after string) ([]sandbox.Lease, error) {
				f.After, f.Limit = after, sandbox.MaxPage
				return service.ListLeases(cmd.Context(), f)
			}, func(l sandbox.Lease) string { return l.ID })
			if err != nil {
				return err
			}
			return a.printLeases(cmd, wire.LeasePage{Leases: all}, all)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.EnvironmentID, "environment", "", "only this environment")
	flags.StringVar(&f.AgentDID, "agent", "", "only this agent")
	flags.StringVar((*string)(&f.Status), "status", "",
		"only leases with this status: pending, active, expired or destroyed")
	complete(cmd, "status", sandbox.LeaseStatuses...)
	labelFlag(flags, &f.Labels, "only leases with these")
	return cmd
}

func (a *app) getLease() *cobra.Command {
	return &cobra.Command{
		Use:   "get <lease>",
		Short: "Show a lease",
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := a.connectTo(cmd, args[0])
			if err != nil {
				return err
			}
			lease, err := service.GetLease(cmd.Context(), id)
			if err != nil {
				return err
			}
			return a.printLeases(cmd, lease, []sandbox.Lease{lease})
		},
	}
}

func (a *app) createLease() *cobra.Command {
	var want sandbox.Acquire
	cmd := &cobra.Command{
		Use:   "create <agent> <environment>",
		Short: "Create a lease for an agent and wait until its sandbox is ready",
		Long: `Create a lease for an agent and wait until its sandbox is ready. An agent that has a lease in the environment
gets that one. After the end of a lease, the agent gets its next generation: a new sandbox.`,
		Example: `  sandbox lease create did:plc:ada catan-7`,
		Args:    exactly("agent", "environment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			want.AgentDID, want.EnvironmentID = args[0], args[1]
			got, err := service.Acquire(cmd.Context(), want)
			if err != nil {
				return err
			}
			return a.printLeases(cmd, got, []sandbox.Lease{got.Lease})
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
func (a *app) onLease(verb, short string,
	do func(*client.Client, context.Context, sandbox.LeaseRef) (sandbox.Lease, error)) *cobra.Command {
	var ref sandbox.LeaseRef
	cmd := &cobra.Command{
		Use:   verb + " <lease>",
		Short: short,
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := a.connectTo(cmd, args[0])
			if err != nil {
				return err
			}
			ref.ID = id
			lease, err := do(service, cmd.Context(), ref)
			if err != nil {
				return err
			}
			return a.printLeases(cmd, lease, []sandbox.Lease{lease})
		},
	}
	cmd.Flags().Int64Var(&ref.Generation, "generation", 0, "fail unless the lease has this generation")
	cmd.Flags().StringVar(&ref.Owner, "owner", "", "fail unless this is the owner")
	return cmd
}

func (a *app) renewLease() *cobra.Command {
	return a.onLease("renew", "Count as activity: the lease ends its TTL from now, unless it is used again",
		func(c *client.Client, ctx context.Context, ref sandbox.LeaseRef) (sandbox.Lease, error) {
			return c.Renew(ctx, sandbox.Renew{LeaseRef: ref})
		})
}

func (a *app) releaseLease() *cobra.Command {
	var noWait bool
	cmd := a.onLease("release", "End a lease and wait until its sandbox is gone",
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

func (a *app) printLeases(cmd *cobra.Command, v any, leases []sandbox.Lease) error {
	return a.print(cmd, v, func(t *table) {
		t.head(leaseCol(), wideNum("GENERATION"), col("STATUS"), col("SANDBOX"), col("LEASED"), col("ENDS"),
			num("COST"), wide("OWNER"), flex("REMARK"))
		for _, l := range leases {
			ends := l.ExpiresAt
			if l.EndedBy != "" {
				ends = l.EndedAt
			}
			t.row(l.ID, strconv.FormatInt(l.Generation, 10), string(l.Status), string(l.SandboxState), t.when(l.LeasedAt),
				t.when(ends), dollars(l.Cost), l.Owner, remarkOn(l))
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

// labelFlag adds the flag of a filter by labels.
func labelFlag(flags *pflag.FlagSet, s *sandbox.LabelSelector, what string) {
	flags.StringVar((*string)(s), "labels", "", what+" `labels`: key=value or key, separated by commas")
}
