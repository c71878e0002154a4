package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) sessions() *cobra.Command {
	list := a.listSessions()
	a.watchable(list)
	return group("session", "Run commands one after another in a recorded session with its own variables and directory",
		a.createSession(), list, a.execInSession(), a.sessionEvents(), a.closeSession())
}

func (a *app) createSession() *cobra.Command {
	var (
		ref sandbox.LeaseRef
		c   sandbox.CreateSession
		env []string
	)
	cmd := &cobra.Command{
		Use:     "create <lease>",
		Short:   "Open a session in a lease's sandbox",
		Example: `  sandbox session create ada@catan-7 --id turn-1 --env TURN=1`,
		Args:    exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := a.connectTo(cmd, args[0])
			if err != nil {
				return err
			}
			if c.Env, err = variables(env); err != nil {
				return err
			}
			ref.ID = id
			s, err := service.CreateSession(cmd.Context(), ref, c)
			if err != nil {
				return err
			}
			return a.print(cmd, s, func(t *table) { fillSessions(t, []sandbox.Session{s}) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.ID, "id", "",
		"`id` of the session, for idempotent retries: an id opens only one session (default: generated)")
	f.StringArrayVarP(&env, "env", "e", nil, "set a variable for the session's commands, `NAME=value`; may be repeated")
	f.StringVar(&c.Cwd, "cwd", "", "initial `directory`, in /workspace or /data (default /workspace)")
	f.StringVar(&c.User, "user", "", "`uid[:gid]` (default: the sandbox's user)")
	f.Int64Var(&ref.Generation, "generation", 0, "fail unless the lease has this generation")
	return cmd
}

func (a *app) listSessions() *cobra.Command {
	var f sandbox.SessionFilter
	cmd := &cobra.Command{
		Use:   "list <lease>",
		Short: "List the sessions of a lease, latest first",
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := a.connectTo(cmd, args[0])
			if err != nil {
				return err
			}
			f.LeaseID = id
			sessions, err := service.ListSessions(cmd.Context(), f)
			if err != nil {
				return err
			}
			page := wire.SessionPage{Sessions: append([]sandbox.Session{}, sessions...)}
			return a.print(cmd, page, func(t *table) { fillSessions(t, sessions) })
		},
	}
	cmd.Flags().StringVar((*string)(&f.State), "state", "", "only sessions in this state: open or closed")
	return cmd
}

func fillSessions(t *table, sessions []sandbox.Session) {
	t.head(flex("SESSION"), wideNum("GENERATION"), col("STATE"), col("CREATED"), flex("CWD"), flex("VARIABLES"),
		flex("RUNNING"), num("EVENTS"))
	for _, s := range sessions {
		t.row(s.ID, strconv.FormatInt(s.Generation, 10), string(s.State), t.when(s.CreatedAt), s.Cwd,
			strings.Join(s.EnvNames, " "), s.ExecID, strconv.FormatInt(s.LastSequence, 10))
	}
}

func (a *app) execInSession() *cobra.Command {
	var (
		req     sandbox.ExecRequest
		env     []string
		timeout time.Duration
		stdin   bool
		detach  bool
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
				return &exitError{
					ExitNotRun, usage("session exec takes a lease, a session and, after -- or with --shell, a command"),
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Session, req.Command = args[1], args[2:]
			req.Timeout = sandbox.Duration(timeout)
			var err error
			if req.Env, err = variables(env); err != nil {
				return &exitError{ExitNotRun, err}
			}
			service, id, err := a.connectTo(cmd, args[0])
			if err != nil {
				return &exitError{ExitNotRun, err}
			}
			ref := sandbox.LeaseRef{ID: id}
			if detach {
				return a.startExec(cmd, service, ref, req)
			}
			req.Stdout, req.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if stdin {
				req.Stdin = cmd.InOrStdin()
			}
			return exitOf(service.Exec(cmd.Context(), ref, req))
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Shell, "shell", "", "run this `line` in the sandbox's shell instead of a program")
	f.StringVar((*string)(&req.Source), "source", "", "author of the command: user, agent or system (default agent)")
	f.DurationVar(&timeout, "timeout", 0, "kill the command after this time, at most 24h (default: the environment's)")
	f.StringArrayVarP(&env, "env", "e", nil, "set a variable for this command only, `NAME=value`; may be repeated")
	f.StringVar(&req.Cwd, "cwd", "", "working `directory`, in /workspace or /data (default: the session's)")
	f.StringVar(&req.ID, "id", "",
		"`id` of the command, for idempotent retries: an id runs only once (default: generated)")
	f.BoolVar(&detach, "detach", false, "print the command's id and return while the command runs; see command list")
	f.BoolVarP(&stdin, "stdin", "i", false, "pass standard input to the command and record it")
	return cmd
}

func (a *app) sessionEvents() *cobra.Command {
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
		Args:    exactly("lease", "session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := a.connectTo(cmd, args[0])
			if err != nil {
				return err
			}
			filter.LeaseID, filter.ID = id, args[1]
			if !follow {
				show := a.showSessionEvent(cmd)
				filter.Limit = sandbox.MaxSessionPage
				return showPages(filter.Limit, func() ([]sandbox.SessionEvent, error) {
					return service.ListSessionEvents(cmd.Context(), filter)
				}, func(e sandbox.SessionEvent) error {
					filter.After = e.Sequence
					return show(e)
				})
			}
			err = service.FollowSessionEvents(cmd.Context(), filter, a.showSessionEvent(cmd))
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
func (a *app) showSessionEvent(cmd *cobra.Command) func(sandbox.SessionEvent) error {
	out := cmd.OutOrStdout()
	if a.output == "json" {
		lines := printable.NewEncoder(out)
		return func(e sandbox.SessionEvent) error { return lines.Encode(wire.SessionEventOf(e)) }
	}
	return func(e sandbox.SessionEvent) error {
		for line := range strings.Lines(string(e.Data)) {
			_, err := fmt.Fprintf(out, "%6d  %s  %-6s  %-6s  %s\n", e.Sequence, moment(e.At), e.Type, e.Source,
				printable.Text(strings.TrimSuffix(line, "\n")))
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func (a *app) closeSession() *cobra.Command {
	var ref sandbox.SessionRef
	cmd := &cobra.Command{
		Use:   "close <lease> <session>",
		Short: "Close a session and cancel its running command; the recording stays",
		Args:  exactly("lease", "session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := a.connectTo(cmd, args[0])
			if err != nil {
				return err
			}
			ref.LeaseID, ref.ID = id, args[1]
			s, err := service.CloseSession(cmd.Context(), ref)
			if err != nil {
				return err
			}
			return a.print(cmd, s, func(t *table) { fillSessions(t, []sandbox.Session{s}) })
		},
	}
	cmd.Flags().Int64Var(&ref.Generation, "generation", 0,
		"generation of the lease (default: the latest one with a session of this id)")
	return cmd
}
