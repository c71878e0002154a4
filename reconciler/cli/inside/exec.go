package inside

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func exec(c *console.Console) *cobra.Command {
	var (
		ref            sandbox.LeaseRef
		x              execFlags
		stdin, noStdin bool
		tty            bool
	)
	cmd := &cobra.Command{
		Use:   "exec <lease> -- <program> [argument]...",
		Short: "Run a command in a lease's sandbox",
		Long: `Run a command in a lease's sandbox. Standard input, output and error are connected to
the command. The exit code is the command's own, 124 after a timeout, 125 if the command did not run or
its outcome is unknown, and 2 if the command line is wrong. --output is only for --detach, because
without it the output is the command's.`,
		Example: `  sandbox exec ada@catan-7 -- /player <state.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exit.WrongLinef("exec takes a lease and, after --, a command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if tty {
				return exit.WrongLinef("-t: a sandbox has no terminals: leave -t out for a command that needs none, "+
					"or use %s session for commands that share variables and a directory", c.Name)
			}
			x.req.Command = args[1:]
			return x.run(c, cmd, args[0], ref, stdin && !noStdin)
		},
	}
	f := cmd.Flags()
	x.add(f, "set a variable, `NAME=value`; may be repeated", "default /workspace", "logs")
	f.StringVar(&x.req.User, "user", "", "`uid[:gid]` (default: the sandbox's user)")
	f.StringVar((*string)(&x.req.As), "as", "", "verifier: run as the sandbox's verifier, with all other processes frozen")
	f.Int64Var(&ref.Generation, "generation", 0, "fail unless the lease has this generation")
	f.BoolVarP(&noStdin, "no-stdin", "n", false, "do not pass standard input to the command")
	f.BoolVarP(&stdin, "stdin", "i", true, "pass standard input to the command")
	f.BoolVarP(&tty, "tty", "t", false, "not supported: a sandbox has no terminals")
	return cmd
}

// execFlags are the flags that exec and session exec share.
type execFlags struct {
	req     sandbox.ExecRequest
	env     []string
	timeout time.Duration
	detach  bool
}

// add adds the flags. env and cwd are parts of their help that differ. list is the command that shows detached
// commands.
func (x *execFlags) add(f *pflag.FlagSet, env, cwd, list string) {
	f.DurationVar(&x.timeout, "timeout", 0, "kill the command after this time, at most 24h (default: the environment's)")
	f.StringArrayVarP(&x.env, "env", "e", nil, env)
	f.StringVar(&x.req.Cwd, "cwd", "", "working `directory`, in /workspace or /data ("+cwd+")")
	f.StringVar(&x.req.ID, "id", "",
		"`id` of the command, for idempotent retries: an id runs only once (default: generated)")
	f.BoolVar(&x.detach, "detach", false, "print the command's id and return while the command runs; see "+list)
}

// run runs the command in a lease's sandbox, or starts it detached.
func (x *execFlags) run(c *console.Console, cmd *cobra.Command, lease string, ref sandbox.LeaseRef, stdin bool) error {
	if !x.detach {
		if err := ownOutput(cmd, "; use --detach to print the command's id in this form"); err != nil {
			return err
		}
	}
	req := x.req
	req.Timeout = sandbox.Duration(x.timeout)
	var err error
	if req.Env, err = variables(x.env); err != nil {
		return err
	}
	service, id, err := c.ConnectTo(cmd, lease)
	if err != nil {
		return exit.DidNotRun(err)
	}
	ref.ID = id
	if x.detach {
		return startExec(c, cmd, service, ref, req)
	}
	req.Stdout, req.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if stdin {
		req.Stdin = cmd.InOrStdin()
	}
	return exitOf(service.Exec(cmd.Context(), ref, req))
}

// ownOutput rejects --output and --quiet for a command whose output is printed unchanged.
func ownOutput(cmd *cobra.Command, instead string) error {
	for _, name := range []string{"output", "quiet"} {
		if f := cmd.Flag(name); f != nil && f.Changed {
			given := "--quiet"
			if name == "output" {
				given = "-o " + f.Value.String()
			}
			return exit.WrongLinef("%s: %s prints the command's own output, as it is%s", given, cmd.CommandPath(), instead)
		}
	}
	return nil
}

// variables parses the values of --env.
func variables(pairs []string) (map[string]string, error) {
	env := map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, exit.WrongLinef("--env %s: must be NAME=value", pair)
		}
		env[name] = value
	}
	return env, nil
}

// exitOf returns the error that ends the program with the exit code of a command.
func exitOf(result sandbox.ExecResult, err error) error {
	switch {
	case err != nil:
		return exit.DidNotRun(err)
	case result.OOMKilled:
		return exit.With(result.ExitCode, sandbox.Errorf(sandbox.Failed, "the sandbox ran out of memory during the command"))
	case result.ExitCode != 0:
		return exit.With(result.ExitCode, nil)
	default:
		return nil
	}
}

// startExec starts a detached command.
func startExec(c *console.Console, cmd *cobra.Command, service service.Service, ref sandbox.LeaseRef,
	req sandbox.ExecRequest) error {
	x, err := service.StartExec(cmd.Context(), ref, req)
	if err != nil {
		return exit.DidNotRun(err)
	}
	return c.Print(cmd, x, func(t *table.Table) { fillExecs(t, []sandbox.Exec{x}) })
}
