package inside

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func sessions(c *console.Console) *cobra.Command {
	list := listSessions(c)
	c.Watchable(list)
	return console.Group("session",
		"Run commands one after another in a recorded session with its own variables and directory", createSession(c), list,
		execInSession(c), sessionEvents(c), closeSession(c))
}

func createSession(c *console.Console) *cobra.Command {
	var (
		ref  sandbox.LeaseRef
		want sandbox.CreateSession
		env  []string
	)
	cmd := &cobra.Command{
		Use:     "create <lease>",
		Short:   "Open a session in a lease's sandbox",
		Example: `  sandbox session create ada@catan-7 --id turn-1 --env TURN=1`,
		Args:    console.Exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			if want.Env, err = variables(env); err != nil {
				return err
			}
			ref.ID = id
			s, err := service.CreateSession(cmd.Context(), ref, want)
			if err != nil {
				return err
			}
			return c.Print(cmd, s, func(t *table.Table) { fillSessions(t, []sandbox.Session{s}) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&want.ID, "id", "",
		"`id` of the session, for idempotent retries: an id opens only one session (default: generated)")
	f.StringArrayVarP(&env, "env", "e", nil, "set a variable for the session's commands, `NAME=value`; may be repeated")
	f.StringVar(&want.Cwd, "cwd", "", "initial `directory`, in /workspace or /data (default /workspace)")
	f.StringVar(&want.User, "user", "", "`uid[:gid]` (default: the sandbox's user)")
	f.Int64Var(&ref.Generation, "generation", 0, "fail unless the lease has this generation")
	return cmd
}

func listSessions(c *console.Console) *cobra.Command {
	var f sandbox.SessionFilter
	cmd := &cobra.Command{
		Use:   "list <lease>",
		Short: "List the sessions of a lease, latest first",
		Args:  console.Exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			f.LeaseID = id
			sessions, err := service.ListSessions(cmd.Context(), f)
			if err != nil {
				return err
			}
			page := wire.SessionPage{Sessions: append([]sandbox.Session{}, sessions...)}
			return c.Print(cmd, page, func(t *table.Table) { fillSessions(t, sessions) })
		},
	}
	cmd.Flags().StringVar((*string)(&f.State), "state", "", "only sessions in this state: open or closed")
	return cmd
}

func fillSessions(t *table.Table, sessions []sandbox.Session) {
	t.Head(table.Flex("SESSION"), table.WideNum("GENERATION"), table.Col("STATE"), table.Col("CREATED"), table.Flex("CWD"),
		table.Flex("VARIABLES"), table.Flex("RUNNING"), table.Num("EVENTS"))
	for _, s := range sessions {
		t.Row(s.ID, strconv.FormatInt(s.Generation, 10), string(s.State), t.When(s.CreatedAt), s.Cwd,
			strings.Join(s.EnvNames, " "), s.ExecID, strconv.FormatInt(s.LastSequence, 10))
	}
}

func execInSession(c *console.Console) *cobra.Command {
	var (
		x     execFlags
		stdin bool
	)
	cmd := &cobra.Command{
		Use:   "exec <lease> <session> (--shell <line> | -- <program> [argument]...)",
		Short: "Run a command in a session",
		Long: `Run a command in a session, with the session's variables and in its directory. Output, error and exit
code are as with exec. The sandbox's /bin/sh runs a --shell line. The session keeps the variables that
the line exports and its final directory.`,
		Example: `  sandbox session exec ada@catan-7 turn-1 --shell 'cd maps && export SEED=7'
  sandbox session exec ada@catan-7 turn-1 -- ls`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exit.WrongLinef("session exec takes a lease, a session and, after -- or with --shell, a command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			x.req.Session, x.req.Command = args[1], args[2:]
			return x.run(c, cmd, args[0], sandbox.LeaseRef{}, stdin)
		},
	}
	f := cmd.Flags()
	f.StringVar(&x.req.Shell, "shell", "", "run this `line` in the sandbox's shell instead of a program")
	f.StringVar((*string)(&x.req.Source), "source", "", "author of the command: user, agent or system (default agent)")
	x.add(f, "set a variable for this command only, `NAME=value`; may be repeated", "default: the session's",
		"command list")
	f.BoolVarP(&stdin, "stdin", "i", false, "pass standard input to the command and record it")
	return cmd
}

func sessionEvents(c *console.Console) *cobra.Command {
	var (
		filter sandbox.SessionEventFilter
		follow bool
	)
	cmd := &cobra.Command{
		Use:   "events <lease> <session>",
		Short: "Replay the recording of a session; --follow waits for more",
		Long: `Replay the recording of a session, from its start or after a sequence. With --output json, each event is
one line. --follow ends when the session is closed.`,
		Example: `  sandbox session events ada@catan-7 turn-1 --follow`,
		Args:    console.Exactly("lease", "session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			filter.LeaseID, filter.ID = id, args[1]
			if !follow {
				show := showSessionEvent(c, cmd)
				filter.Limit = sandbox.MaxSessionPage
				return console.ShowPages(filter.Limit, func() ([]sandbox.SessionEvent, error) {
					return service.ListSessionEvents(cmd.Context(), filter)
				}, func(e sandbox.SessionEvent) error {
					filter.After = e.Sequence
					return show(e)
				})
			}
			err = service.FollowSessionEvents(cmd.Context(), filter, showSessionEvent(c, cmd))
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "wait for more")
	f.Int64Var(&filter.After, "after", 0, "only events after this sequence")
	f.Int64Var(&filter.Generation, "generation", 0,
		"generation of the lease (default: the latest one with a session of this id)")
	return cmd
}

// showSessionEvent prints each line of input or output on its own.
func showSessionEvent(c *console.Console, cmd *cobra.Command) func(sandbox.SessionEvent) error {
	out := cmd.OutOrStdout()
	if c.Output == "json" {
		lines := printable.NewEncoder(out)
		return func(e sandbox.SessionEvent) error { return lines.Encode(wire.SessionEventOf(e)) }
	}
	return func(e sandbox.SessionEvent) error {
		for line := range strings.Lines(string(e.Data)) {
			_, err := fmt.Fprintf(out, "%6d  %s  %-6s  %-6s  %s\n", e.Sequence, format.Moment(e.At), e.Type, e.Source,
				printable.Text(strings.TrimSuffix(line, "\n")))
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func closeSession(c *console.Console) *cobra.Command {
	var ref sandbox.SessionRef
	cmd := &cobra.Command{
		Use:   "close <lease> <session>",
		Short: "Close a session and cancel its running command; the recording stays",
		Args:  console.Exactly("lease", "session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			ref.LeaseID, ref.ID = id, args[1]
			s, err := service.CloseSession(cmd.Context(), ref)
			if err != nil {
				return err
			}
			return c.Print(cmd, s, func(t *table.Table) { fillSessions(t, []sandbox.Session{s}) })
		},
	}
	cmd.Flags().Int64Var(&ref.Generation, "generation", 0,
		"generation of the lease (default: the latest one with a session of this id)")
	return cmd
}
