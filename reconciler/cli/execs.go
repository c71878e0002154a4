package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) execs() *cobra.Command {
	var f sandbox.ExecFilter
	cmd := &cobra.Command{
		Use:   "execs <lease>",
		Short: "List the commands of a lease, latest first",
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			f.LeaseID = args[0]
			page := wire.ExecPage{Execs: []sandbox.Exec{}}
			for f.Limit = sandbox.MaxPage; ; {
				some, err := service.ListExecs(cmd.Context(), f)
				if err != nil {
					return err
				}
				page.Execs = append(page.Execs, some...)
				if len(some) < f.Limit {
					return a.print(cmd, page, func(t *table) { fillExecs(t, page.Execs) })
				}
				f.Before = some[len(some)-1].ID
			}
		},
	}
	cmd.Flags().StringVar((*string)(&f.State), "state", "",
		"only commands in this state: running, finished, failed or cancelled")
	cmd.AddCommand(a.cancelExec(), a.execLogs())
	return cmd
}

func fillExecs(t *table, execs []sandbox.Exec) {
	t.row("EXEC", "GENERATION", "STATE", "EXIT", "STARTED AT", "FINISHED AT", "STDOUT", "STDERR", "COMMAND")
	for _, x := range execs {
		exit := ""
		if x.State == sandbox.ExecFinished {
			exit = strconv.Itoa(x.ExitCode)
		}
		t.row(x.ID, strconv.FormatInt(x.Generation, 10), string(x.State), exit, moment(x.StartedAt), moment(x.FinishedAt),
			strconv.FormatInt(x.StdoutBytes, 10), strconv.FormatInt(x.StderrBytes, 10), strings.Join(x.Command, " "))
	}
}

func (a *app) cancelExec() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel <lease> <exec>",
		Short: "Kill a command and every process it started",
		Args:  exactly("lease", "exec"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			x, err := service.CancelExec(cmd.Context(), sandbox.ExecRef{LeaseID: args[0], ID: args[1]})
			if err != nil {
				return err
			}
			return a.print(cmd, x, func(t *table) { fillExecs(t, []sandbox.Exec{x}) })
		},
	}
}

func (a *app) execLogs() *cobra.Command {
	o := sandbox.OutputRequest{Stream: sandbox.Stdout}
	cmd := &cobra.Command{
		Use:     "logs <lease> <exec>",
		Short:   "Print the output of a command",
		Example: `  reconciler execs logs did:plc:abc::catan-7 build-1 --follow`,
		Args:    exactly("lease", "exec"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			o.LeaseID, o.ID = args[0], args[1]
			r, err := service.ReadExec(cmd.Context(), o)
			if err != nil {
				return err
			}
			n, err := io.Copy(cmd.OutOrStdout(), r)
			if err = errors.Join(err, r.Close()); err != nil {
				return sandbox.Errorf(sandbox.Unavailable, "reading %s of command %s: %w; continue with %s",
					o.Stream, o.ID, err, fmt.Sprintf("--offset %d", o.Offset+n))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar((*string)(&o.Stream), "stream", string(sandbox.Stdout), "stdout or stderr")
	f.Int64Var(&o.Offset, "offset", 0, "start at this byte")
	f.BoolVarP(&o.Follow, "follow", "f", false, "keep reading until the command ends")
	return cmd
}
