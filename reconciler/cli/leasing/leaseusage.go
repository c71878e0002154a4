package leasing

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func leaseUsage(c *console.Console) *cobra.Command {
	var (
		history bool
		within  console.Span
	)
	cmd := &cobra.Command{
		Use:   "usage <lease>",
		Short: "Show the current or past resource usage of a lease's sandbox",
		Long: `Show the current resource usage of a lease's sandbox, without waking it.

--history shows samples of the last 24 hours instead, about one a minute while the sandbox was awake. It also works
for a lease that has ended. CPU is the mean since the previous sample. The first sample after a start has none.`,
		Args: console.Exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := sandbox.UsageHistoryQuery{}
			if err := within.Parse(&q.From, &q.To); err != nil {
				return err
			}
			if !history && within != (console.Span{}) {
				return exit.Usagef("--from and --to need --history")
			}
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			q.ID = id
			if history {
				h, err := service.LeaseUsageHistory(cmd.Context(), q)
				if err != nil {
					return err
				}
				return c.Print(cmd, h, func(t *table.Table) { fillSamples(t, h) })
			}
			u, err := service.LeaseUsage(cmd.Context(), q.LeaseRef)
			if err != nil {
				return err
			}
			return c.Print(cmd, u, func(t *table.Table) {
				cpu := ""
				if u.CPUPercent != nil {
					cpu = strconv.FormatFloat(*u.CPUPercent, 'f', -1, 64) + " %"
				}
				t.Head(table.Lease(), table.Col("STATE"), table.Num("CPU"), table.Num("CPU TIME"), table.Num("MEMORY"),
					table.Num("OF"), table.Num("PIDS"), table.Num("OF"), table.Num("DISK"), table.Num("FILES"))
				t.Row(id, string(u.State), cpu, u.CPUTime.D().Round(time.Millisecond).String(),
					mebibytes(u.MemoryBytes), fmt.Sprintf("%d MiB", u.Limits.MemoryMB),
					strconv.FormatInt(u.PIDs, 10), strconv.FormatInt(u.Limits.PIDs, 10), diskOf(u.Disk), filesOf(u.Disk))
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&history, "history", false, "show past samples instead of the current usage")
	within.Flags(f)
	return cmd
}

func fillSamples(t *table.Table, h sandbox.LeaseUsageHistory) {
	t.Head(table.Col("SAMPLED"), table.Num("CPU"), table.Num("OF"), table.Num("CPU TIME"), table.Num("MEMORY"),
		table.Num("OF"), table.Num("PIDS"), table.Num("OF"))
	for _, s := range h.Samples {
		cpu := ""
		if s.CPUMillis != nil {
			cpu = cores(*s.CPUMillis)
		}
		t.Row(t.When(s.At), cpu, cores(h.Limits.CPUMillis), s.CPUTime.D().Round(time.Millisecond).String(),
			mebibytes(s.MemoryBytes), fmt.Sprintf("%d MiB", h.Limits.MemoryMB), strconv.FormatInt(s.PIDs, 10),
			strconv.FormatInt(h.Limits.PIDs, 10))
	}
}

func cores(millis int64) string { return strconv.FormatFloat(float64(millis)/1000, 'f', 3, 64) }

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func diskOf(d *sandbox.DiskUsage) string {
	switch {
	case d == nil:
		return ""
	case !d.Complete:
		return "more than " + mebibytes(d.Bytes)
	default:
		return mebibytes(d.Bytes)
	}
}

func filesOf(d *sandbox.DiskUsage) string {
	if d == nil {
		return ""
	}
	return strconv.FormatInt(d.Files, 10)
}

func health(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "health <lease>",
		Short: "Check whether a lease's sandbox is usable, without waking it; exit with 1 if not",
		Args:  console.Exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			h, err := service.LeaseHealth(cmd.Context(), sandbox.LeaseRef{ID: id})
			if err != nil {
				return err
			}
			err = c.Print(cmd, h, func(t *table.Table) {
				t.Head(table.Lease(), table.Col("HEALTHY"), table.Col("STATUS"), table.Col("PHASE"), table.Col("ON ITS BACKEND"),
					table.Flex("PROBLEM"))
				t.Row(id, strconv.FormatBool(h.Healthy), string(h.Status), string(h.Phase), string(h.State), h.Problem)
			})
			if err == nil && !h.Healthy {
				return exit.With(exit.Failed, nil)
			}
			return err
		},
	}
}
