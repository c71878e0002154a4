package inside

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func commands(c *console.Console) *cobra.Command {
	list := listCommands(c)
	c.Watchable(list)
	return console.Group("command", "List, cancel and read the commands of a lease", list, cancelExec(c), execLogs(c))
}

func listCommands(c *console.Console) *cobra.Command {
	var f sandbox.ExecFilter
	cmd := &cobra.Command{
		Use:   "list <lease>",
		Short: "List the commands of a lease, latest first",
		Args:  console.Exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			f.LeaseID = id
			all, err := console.EveryPage(func(before string) ([]sandbox.Exec, error) {
				f.Before, f.Limit = before, sandbox.MaxPage
				return service.ListExecs(cmd.Context(), f)
			}, func(x sandbox.Exec) string { return x.ID })
			if err != nil {
				return err
			}
			return c.Print(cmd, wire.ExecPage{Execs: all}, func(t *table.Table) { fillExecs(t, all) })
		},
	}
	cmd.Flags().StringVar((*string)(&f.State), "state", "",
		"only commands in this state: running, finished, failed or cancelled")
	return cmd
}

func fillExecs(t *table.Table, execs []sandbox.Exec) {
	t.Head(table.Flex("COMMAND"), table.WideNum("GENERATION"), table.Col("STATE"), table.Num("EXIT"), table.Col("STARTED"),
		table.Col("FINISHED"), table.WideNum("STDOUT"), table.WideNum("STDERR"), table.Flex("PROGRAM"))
	for _, x := range execs {
		exit := ""
		if x.ExitCode != nil {
			exit = strconv.Itoa(*x.ExitCode)
		}
		t.Row(x.ID, strconv.FormatInt(x.Generation, 10), string(x.State), exit, t.When(x.StartedAt), t.When(x.FinishedAt),
			strconv.FormatInt(x.StdoutBytes, 10), strconv.FormatInt(x.StderrBytes, 10), strings.Join(x.Command, " "))
	}
}

func cancelExec(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel <lease> <command>",
		Short: "Kill a command and every process it started",
		Args:  console.Exactly("lease", "command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			x, err := service.CancelExec(cmd.Context(), sandbox.ExecRef{LeaseID: id, ID: args[1]})
			if err != nil {
				return err
			}
			return c.Print(cmd, x, func(t *table.Table) { fillExecs(t, []sandbox.Exec{x}) })
		},
	}
}

func execLogs(c *console.Console) *cobra.Command {
	o := sandbox.OutputRequest{Stream: sandbox.Stdout}
	cmd := &cobra.Command{
		Use:     "logs <lease> <command>",
		Short:   "Print the output of a command",
		Example: `  sandbox command logs ada@catan-7 build-1 --follow`,
		Args:    console.Exactly("lease", "command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			o.LeaseID, o.ID = id, args[1]
			return copyOutput(cmd.Context(), service, o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar((*string)(&o.Stream), "stream", string(sandbox.Stdout), "stdout or stderr")
	f.Int64Var(&o.Offset, "offset", 0, "start at this byte")
	f.BoolVarP(&o.Follow, "follow", "f", false, "keep reading until the command ends")
	return cmd
}

// copyOutput prints one stream of a command.
func copyOutput(ctx context.Context, service *client.Client, o sandbox.OutputRequest, to io.Writer) error {
	r, err := service.ReadExec(ctx, o)
	if err != nil {
		return err
	}
	n, err := io.Copy(to, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "reading %s of command %s: %w; command logs --offset %d continues",
			o.Stream, o.ID, err, o.Offset+n)
	}
	return nil
}
