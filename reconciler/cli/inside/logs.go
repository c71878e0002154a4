package inside

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func logs(c *console.Console) *cobra.Command {
	var follow bool
	var companion string
	cmd := &cobra.Command{
		Use:   "logs <lease> [command or process]",
		Short: "Print the output of the latest command or process, or of a named one",
		Long: `Print the output of the latest command or process of a lease, or of the one that the second argument names.
Standard output of a command goes to standard output, its standard error to standard error. --follow waits for more,
until the command or process ends. command logs and process logs read one stream, from an offset. --companion prints
the log of a companion instead.`,
		Example: `  sandbox logs ada@catan-7 --follow
  sandbox logs ada@catan-7 relay
  sandbox logs ada@catan-7 --companion db`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return exit.Usagef("%s takes a lease and, if not the latest, a command or process; see --help", cmd.CommandPath())
			}
			if len(args) == 2 && companion != "" {
				return exit.Usagef("%s takes either a command or process, or --companion", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			if companion != "" {
				return copyCompanionLog(cmd, service, sandbox.CompanionLogRequest{
					LeaseRef: sandbox.LeaseRef{ID: id}, Name: companion, Follow: follow})
			}
			var name string
			var isProcess bool
			if len(args) == 2 {
				name = args[1]
				isProcess, err = namesProcess(cmd.Context(), service, id, name)
			} else {
				name, isProcess, err = latestOutput(cmd.Context(), service, id)
			}
			if err != nil {
				return err
			}
			if isProcess {
				return copyProcessLog(cmd, service, sandbox.LogRequest{ProcessRef: processRef(id, name), Follow: follow})
			}
			return copyOutputs(cmd, service, sandbox.ExecRef{LeaseID: id, ID: name}, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more, until it ends")
	cmd.Flags().StringVar(&companion, "companion", "", "print the log of the companion of this `name`")
	return cmd
}

// copyCompanionLog prints the log of a companion.
func copyCompanionLog(cmd *cobra.Command, service *client.Client, l sandbox.CompanionLogRequest) error {
	log, err := service.ReadCompanion(cmd.Context(), l)
	if err != nil {
		return err
	}
	if log.Offset > 0 {
		cmd.PrintErrf("The log begins at byte %d.\n", log.Offset)
	}
	_, err = io.Copy(cmd.OutOrStdout(), log)
	if err = errors.Join(err, log.Close()); err != nil && cmd.Context().Err() == nil {
		return sandbox.Errorf(sandbox.Unavailable, "reading the log of companion %s: %w; try again", l.Name, err)
	}
	return nil
}

// namesProcess reports whether a name is that of a process rather than of a command.
func namesProcess(ctx context.Context, service *client.Client, lease, name string) (bool, error) {
	_, err := service.GetProcess(ctx, processRef(lease, name))
	if sandbox.ReasonOf(err) != sandbox.ReasonProcessNotFound {
		return true, err
	}
	_, err = service.GetExec(ctx, sandbox.ExecRef{LeaseID: lease, ID: name})
	if sandbox.ReasonOf(err) == sandbox.ReasonExecNotFound {
		return false, sandbox.Errorf(sandbox.NotFound, "lease %s has no command and no process %s, or it is no longer kept: "+
			"list them with command list and process list", lease, name).WithReason(sandbox.ReasonExecNotFound)
	}
	return false, err
}

// latestOutput returns the command or process of a lease that started last. Errors: NotFound if there is none.
func latestOutput(ctx context.Context, service *client.Client, lease string) (name string, isProcess bool, err error) {
	execs, err := service.ListExecs(ctx, sandbox.ExecFilter{LeaseID: lease, Limit: 1})
	if err != nil {
		return "", false, err
	}
	processes, err := service.ListProcesses(ctx, lease)
	if err != nil {
		return "", false, err
	}
	processes = slices.DeleteFunc(processes, func(p sandbox.Process) bool { return p.StartedAt.IsZero() })
	if len(execs) == 0 && len(processes) == 0 {
		return "", false, sandbox.Errorf(sandbox.NotFound, "lease %s has run no commands and no processes yet", lease)
	}
	var last sandbox.Process
	for _, p := range processes {
		if p.StartedAt.After(last.StartedAt) {
			last = p
		}
	}
	if len(execs) > 0 && !execs[0].StartedAt.Before(last.StartedAt) {
		return execs[0].ID, false, nil
	}
	return last.Name, true, nil
}

// copyOutputs prints both streams of a command, at the same time if they are followed.
func copyOutputs(cmd *cobra.Command, service *client.Client, ref sandbox.ExecRef, follow bool) error {
	streams, ctx := errgroup.WithContext(cmd.Context())
	if !follow {
		streams.SetLimit(1)
	}
	for _, s := range []struct {
		name sandbox.ExecStream
		to   io.Writer
	}{{sandbox.Stdout, cmd.OutOrStdout()}, {sandbox.Stderr, cmd.ErrOrStderr()}} {
		streams.Go(func() error {
			return copyOutput(ctx, service, sandbox.OutputRequest{ExecRef: ref, Stream: s.name, Follow: follow}, s.to)
		})
	}
	err := streams.Wait()
	if errors.Is(err, context.Canceled) {
		return console.Stopped(cmd.Context())
	}
	return err
}
