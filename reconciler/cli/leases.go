package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) leases() *cobra.Command {
	var f sandbox.LeaseFilter
	cmd := &cobra.Command{
		Use:   "leases",
		Short: "List leases",
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
	cmd.AddCommand(a.acquire(), a.acquireBatch(), a.release(), a.usage(), a.health())
	return cmd
}

func (a *app) acquire() *cobra.Command {
	var want sandbox.Acquire
	cmd := &cobra.Command{
		Use:   "acquire <agent> <environment>",
		Short: "Acquire a lease for an agent and wait until its sandbox is ready",
		Args:  exactly("agent", "environment"),
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
	cmd.Flags().BoolVar(&want.NoWait, "no-wait", false, "return once the lease is accepted, while it may still be pending")
	return cmd
}

func (a *app) release() *cobra.Command {
	var ref sandbox.LeaseRef
	var noWait bool
	cmd := &cobra.Command{
		Use:   "release <lease>",
		Short: "End a lease and wait until its sandbox is gone",
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			ref.ID = args[0]
			release := service.Release
			if noWait {
				release = service.StartRelease
			}
			lease, err := release(cmd.Context(), ref)
			if err != nil {
				return err
			}
			return a.printLeases(cmd, lease, []sandbox.Lease{lease})
		},
	}
	cmd.Flags().Int64Var(&ref.Generation, "generation", 0,
		"fail unless the lease, or a failed sandbox kept for inspection, has this generation")
	cmd.Flags().StringVar(&ref.Owner, "owner", "", "fail unless this is the owner")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return at once; the lease is expired until its sandbox is gone")
	return cmd
}

func (a *app) printLeases(cmd *cobra.Command, v any, leases []sandbox.Lease) error {
	return a.print(cmd, v, func(t *table) {
		t.row("LEASE", "GENERATION", "STATUS", "SANDBOX", "LEASED", "ENDS", "COST", "OWNER", "REMARK")
		for _, l := range leases {
			ends, remark := l.ExpiresAt, ""
			if l.EndedBy != "" {
				ends, remark = l.EndedAt, string(l.EndedBy)+": "+l.EndReason
			}
			if l.LastError != "" {
				remark = fmt.Sprintf("%s (failed %s: %s)", remark, printable.Count(l.Attempts, "time", "times"), l.LastError)
			}
			for _, c := range l.Companions {
				if c.State == sandbox.CompanionFailed {
					remark = strings.TrimSpace(fmt.Sprintf("%s companion %s failed: %s", remark, c.Name, c.Message))
				}
			}
			t.row(l.ID, strconv.FormatInt(l.Generation, 10), string(l.Status), string(l.SandboxState), moment(l.LeasedAt),
				moment(ends), dollars(l.Cost), l.Owner, remark)
		}
	})
}

// labelFlag adds the flag of a filter by labels.
func labelFlag(flags *pflag.FlagSet, s *sandbox.LabelSelector, what string) {
	flags.StringVar((*string)(s), "labels", "", what+" `labels`: key=value or key, separated by commas")
}

func (a *app) environments() *cobra.Command {
	var labels sandbox.LabelSelector
	cmd := &cobra.Command{
		Use:   "environments",
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
	cmd.AddCommand(&cobra.Command{
		Use:   "reopen <environment>",
		Short: "Reopen an ended environment for new leases",
		Args:  exactly("environment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			e, err := service.ReopenEnvironment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printEnvironments(cmd, e, []sandbox.Environment{e})
		},
	})
	return cmd
}

func (a *app) printEnvironments(cmd *cobra.Command, v any, environments []sandbox.Environment) error {
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	return a.print(cmd, v, func(t *table) {
		t.row("ENVIRONMENT", "TYPE", "STATUS", "LEASES", "ASLEEP", "FAILED", "DRIFT", "BACKEND", "MEMORY", "CPUS", "TTL",
			"IMAGE", "OWNER", "REMARK")
		for _, e := range environments {
			remark := ""
			if e.EndedBy != "" {
				remark = "ended by " + e.EndedBy + " at " + moment(e.EndedAt)
			}
			t.row(e.ID, string(e.Type), string(e.Status), count(e.Leases.Live()), count(e.Leases.Asleep+e.Leases.Stopped),
				count(e.Leases.Failed), count(e.OpenDrift), string(e.Backend), fmt.Sprintf("%d MB", e.Resources.MemoryMB),
				strconv.FormatFloat(float64(e.Resources.CPUMillis)/1000, 'g', -1, 64), length(e.TTL.D().Seconds()),
				e.Image, e.Owner, remark)
		}
	})
}
