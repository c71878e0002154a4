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

func (a *app) processes() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "processes",
		Short: "Manage the background processes of a lease's sandbox",
	}
	cmd.AddCommand(a.listProcesses(), a.startProcess(), a.waitProcess(), a.processLogs(), a.killProcess())
	return cmd
}

func fillProcesses(t *table, processes []sandbox.Process) {
	t.row("PROCESS", "STATE", "STARTS", "EXIT", "STARTED AT", "EXITED AT", "DECLARED", "COMMAND")
	for _, p := range processes {
		exit, declared := "", ""
		if !p.ExitedAt.IsZero() && p.Error == "" {
			exit = strconv.Itoa(p.ExitCode)
		}
		if p.Declared {
			declared = "yes"
		}
		t.row(p.Name, string(p.State), strconv.FormatInt(p.Starts, 10), exit, moment(p.StartedAt), moment(p.ExitedAt),
			declared, strings.Join(p.Command, " "))
	}
}

func (a *app) listProcesses() *cobra.Command {
	return &cobra.Command{
		Use:   "list <lease>",
		Short: "List the processes of a lease's current generation",
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			list, err := service.ListProcesses(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			page := wire.ProcessPage{Processes: append([]sandbox.Process{}, list...)}
			return a.print(cmd, page, func(t *table) { fillProcesses(t, list) })
		},
	}
}

func (a *app) startProcess() *cobra.Command {
	var (
		p        sandbox.ProcessSpec
		endpoint sandbox.Endpoint
		env      []string
		always   bool
	)
	cmd := &cobra.Command{
		Use:     "start <lease> <name> -- <program> [argument]...",
		Short:   "Start a background process in a lease's sandbox",
		Example: `  reconciler processes start did:plc:abc::catan-7 relay -- python3 watch.py`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 3 {
				return usage("processes start takes a lease, a name and, after --, a command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			p.Name, p.Command = args[1], args[2:]
			if p.Env, err = variables(env); err != nil {
				return err
			}
			if always {
				p.Restart = sandbox.RestartAlways
			}
			if endpoint != (sandbox.Endpoint{}) {
				p.Endpoint = &endpoint
			}
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			started, err := service.StartProcess(cmd.Context(), sandbox.LeaseRef{ID: args[0]}, p)
			return a.printProcess(cmd, started, err)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&env, "env", "e", nil, "set a variable, `NAME=value`, which must not be a secret; may be repeated")
	f.StringVar(&p.Cwd, "cwd", "", "working `directory`, in /workspace or /data (default /workspace)")
	f.StringVar(&p.User, "user", "", "`uid[:gid]` (default: the sandbox's user)")
	f.BoolVar(&always, "restart", false, "restart the process whenever it exits")
	f.IntVar(&endpoint.Port, "port", 0, "TCP `port` where the process serves HTTP: it is then an agent")
	f.StringVar(&endpoint.Description, "description", "", "what the agent does")
	return cmd
}

// printProcess prints a process, or returns err.
func (a *app) printProcess(cmd *cobra.Command, p sandbox.Process, err error) error {
	if err != nil {
		return err
	}
	return a.print(cmd, p, func(t *table) { fillProcesses(t, []sandbox.Process{p}) })
}

func processRef(args []string) sandbox.ProcessRef {
	return sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: args[0]}, Name: args[1]}
}

func (a *app) waitProcess() *cobra.Command {
	w := sandbox.ProcessWait{}
	timeout := sandbox.DefaultProcessWait.D()
	cmd := &cobra.Command{
		Use:     "wait <lease> <name> (--log <expression> | --port <port> | --exit)",
		Short:   "Wait for a log line, an open port or the exit of a process",
		Long:    "Wait for a log line, an open port or the exit of a process. --log prints the line that matched.",
		Example: `  reconciler processes wait did:plc:abc::catan-7 relay --log '^subscribed'`,
		Args:    exactly("lease", "name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			w.ProcessRef, w.Timeout = processRef(args), sandbox.Duration(timeout)
			got, err := service.WaitProcess(cmd.Context(), w)
			if err != nil {
				return err
			}
			return a.print(cmd, got, func(t *table) {
				if w.Log != "" {
					t.row(got.Line)
					return
				}
				fillProcesses(t, []sandbox.Process{got.Process})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.Log, "log", "",
		"wait for a log line that matches this regular `expression` (RE2); earlier lines count")
	f.IntVar(&w.Port, "port", 0, "wait until this TCP `port` of the sandbox's 127.0.0.1 accepts connections")
	f.BoolVar(&w.Exit, "exit", false, "wait until the process exits")
	f.DurationVar(&timeout, "timeout", timeout, "give up after this time, at most 1h")
	return cmd
}

func (a *app) processLogs() *cobra.Command {
	var l sandbox.LogRequest
	cmd := &cobra.Command{
		Use:     "logs <lease> <name>",
		Short:   "Print the log of a process: the last 8 MiB since its latest start",
		Example: `  reconciler processes logs did:plc:abc::catan-7 relay --follow`,
		Args:    exactly("lease", "name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			l.ProcessRef = processRef(args)
			log, err := service.ReadProcess(cmd.Context(), l)
			if err != nil {
				return err
			}
			if log.Offset != l.Offset {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "the log begins at byte %d\n", log.Offset) // a note that may be lost
			}
			n, err := io.Copy(cmd.OutOrStdout(), log)
			if err = errors.Join(err, log.Close()); err != nil {
				return sandbox.Errorf(sandbox.Unavailable, "reading the log of process %s: %w; continue with --offset %d",
					l.Name, err, log.Offset+n)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.Int64Var(&l.Offset, "offset", 0, "start at this byte")
	f.BoolVarP(&l.Follow, "follow", "f", false, "keep reading until the process exits")
	return cmd
}

func (a *app) killProcess() *cobra.Command {
	return &cobra.Command{
		Use:   "kill <lease> <name>",
		Short: "Kill a process and every process it started, without a restart",
		Args:  exactly("lease", "name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			p, err := service.KillProcess(cmd.Context(), processRef(args))
			return a.printProcess(cmd, p, err)
		},
	}
}
