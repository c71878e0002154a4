package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

func (a *app) usage() *cobra.Command {
	return &cobra.Command{
		Use:   "usage <lease>",
		Short: "Show what a lease's sandbox uses now, without waking it",
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			stop := Progress(cmd, "sampling the sandbox")
			u, err := service.LeaseUsage(cmd.Context(), sandbox.LeaseRef{ID: args[0]})
			stop()
			if err != nil {
				return err
			}
			return a.print(cmd, u, func(t *table) {
				t.row("STATE", "CPU TIME", "MEMORY", "OF", "PIDS", "OF", "DISK", "FILES")
				t.row(string(u.State), u.CPUTime.D().Round(time.Millisecond).String(),
					mebibytes(u.MemoryBytes), fmt.Sprintf("%d MiB", u.Limits.MemoryMB),
					strconv.FormatInt(u.PIDs, 10), strconv.FormatInt(u.Limits.PIDs, 10), diskOf(u.Disk), filesOf(u.Disk))
			})
		},
	}
}

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

func (a *app) health() *cobra.Command {
	return &cobra.Command{
		Use:   "health <lease>",
		Short: "Check whether a lease's sandbox can be used, without waking it; exit with 1 if not",
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			stop := Progress(cmd, "looking at the sandbox")
			h, err := service.LeaseHealth(cmd.Context(), sandbox.LeaseRef{ID: args[0]})
			stop()
			if err != nil {
				return err
			}
			err = a.print(cmd, h, func(t *table) {
				t.row("HEALTHY", "STATUS", "PHASE", "ON ITS BACKEND", "PROBLEM")
				t.row(strconv.FormatBool(h.Healthy), string(h.Status), string(h.Phase), string(h.State), h.Problem)
			})
			if err == nil && !h.Healthy {
				return &exitError{code: ExitFailed}
			}
			return err
		},
	}
}
