package inside

import (
	"errors"
	"io"
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

func processes(c *console.Console) *cobra.Command {
	list := listProcesses(c)
	c.Watchable(list)
	return console.Group("process", "Manage the background processes of a lease's sandbox",
		list, startProcess(c), waitProcess(c), processLogs(c), killProcess(c))
}

func fillProcesses(t *table.Table, processes []sandbox.Process) {
	t.Head(table.Col("PROCESS"), table.Col("STATE"), table.Num("STARTS"), table.Num("EXIT"), table.Col("STARTED"),
		table.Col("EXITED"), table.Wide("DECLARED"), table.Flex("PROGRAM"))
	for _, p := range processes {
		exit := ""
		if p.ExitCode != nil {
			exit = strconv.Itoa(*p.ExitCode)
		}
		t.Row(p.Name, string(p.State), strconv.FormatInt(p.Starts, 10), exit, t.When(p.StartedAt), t.When(p.ExitedAt),
			format.Yes(p.Declared), strings.Join(p.Command, " "))
	}
}

func listProcesses(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "list <lease>",
		Short: "List the processes of a lease's current generation",
		Args:  console.Exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			list, err := service.ListProcesses(cmd.Context(), id)
			if err != nil {
				return err
			}
			page := wire.ProcessPage{Processes: append([]sandbox.Process{}, list...)}
			return c.Print(cmd, page, func(t *table.Table) { fillProcesses(t, list) })
		},
	}
}

func startProcess(c *console.Console) *cobra.Command {
	var (
		p        sandbox.ProcessSpec
		endpoint sandbox.Endpoint
		env      []string
		always   bool
	)
	cmd := &cobra.Command{
		Use:     "start <lease> <name> -- <program> [argument]...",
		Short:   "Start a background process in a lease's sandbox",
		Example: `  sandbox process start ada@catan-7 relay -- python3 watch.py`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 3 {
				return exit.Usagef("process start takes a lease, a name and, after --, a command")
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
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			started, err := service.StartProcess(cmd.Context(), sandbox.LeaseRef{ID: id}, p)
			return printProcess(c, cmd, started, err)
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
func printProcess(c *console.Console, cmd *cobra.Command, p sandbox.Process, err error) error {
	if err != nil {
		return err
	}
	return c.Print(cmd, p, func(t *table.Table) { fillProcesses(t, []sandbox.Process{p}) })
}

func processRef(lease, name string) sandbox.ProcessRef {
	return sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: lease}, Name: name}
}

func waitProcess(c *console.Console) *cobra.Command {
	w := sandbox.ProcessWait{}
	timeout := sandbox.DefaultProcessWait.D()
	cmd := &cobra.Command{
		Use:   "wait <lease> <name> (--log <expression> | --port <port> | --exit)",
		Short: "Wait for a log line, an open port or the exit of a process",
		Long: `Wait for a log line, an open port or the exit of a process. --log prints the line that matched. The exit
code is 124 if --timeout passes first.`,
		Example: `  sandbox process wait ada@catan-7 relay --log '^subscribed'`,
		Args:    console.Exactly("lease", "name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			w.ProcessRef, w.Timeout = processRef(id, args[1]), sandbox.Duration(timeout)
			got, err := service.WaitProcess(cmd.Context(), w)
			if sandbox.CodeOf(err) == sandbox.Timeout {
				return exit.With(exit.TimedOut, err)
			}
			if err != nil {
				return err
			}
			return c.Print(cmd, got, func(t *table.Table) {
				if w.Log != "" {
					t.Head(table.Col("LINE"))
					t.Row(got.Line)
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

func processLogs(c *console.Console) *cobra.Command {
	var l sandbox.LogRequest
	cmd := &cobra.Command{
		Use:     "logs <lease> <name>",
		Short:   "Print the log of a process: the last 8 MiB since its latest start",
		Example: `  sandbox process logs ada@catan-7 relay --follow`,
		Args:    console.Exactly("lease", "name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			l.ProcessRef = processRef(id, args[1])
			return copyProcessLog(cmd, service, l)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&l.Offset, "offset", 0, "start at this byte")
	f.BoolVarP(&l.Follow, "follow", "f", false, "keep reading until the process exits")
	return cmd
}

// copyProcessLog prints the log of a process.
func copyProcessLog(cmd *cobra.Command, service *client.Client, l sandbox.LogRequest) error {
	log, err := service.ReadProcess(cmd.Context(), l)
	if err != nil {
		return err
	}
	if log.Offset != l.Offset {
		cmd.PrintErrf("The log begins at byte %d.\n", log.Offset)
	}
	n, err := io.Copy(cmd.OutOrStdout(), log)
	if err = errors.Join(err, log.Close()); err != nil && cmd.Context().Err() == nil {
		return sandbox.Errorf(sandbox.Unavailable, "reading the log of process %s: %w; process logs --offset %d continues",
			l.Name, err, log.Offset+n)
	}
	return nil
}

func killProcess(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "kill <lease> <name>",
		Short: "Kill a process and every process it started, without a restart",
		Args:  console.Exactly("lease", "name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			p, err := service.KillProcess(cmd.Context(), processRef(id, args[1]))
			return printProcess(c, cmd, p, err)
		},
	}
}
