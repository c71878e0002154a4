package inside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// runFlags are the flags of run that are not fields of the request.
type runFlags struct {
	env             []string
	timeout, margin time.Duration
	stdin           bool
	files, collect  string // paths of archives, "" for none
	report          bool
}

func run(c *console.Console) *cobra.Command {
	var (
		req   sandbox.RunRequest
		flags runFlags
	)
	cmd := &cobra.Command{
		Use:   "run <environment> -- <program> [argument]...",
		Short: "Run a command in a new sandbox, and destroy the sandbox afterwards",
		Long: `Run a command in a new sandbox, and destroy the sandbox afterwards in any case. Standard output and
error are the command's. The exit code is the command's own, 124 after a timeout, 125 if the command did
not run or its outcome is unknown, and 2 if the command line is wrong.`,
		Example: `  tar -c maps | tee maps.tar &&
    sandbox run catan-7 --files maps.tar --collect results --to results.tar -- /player`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exit.WrongLinef("run takes an environment and, after --, a command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := ownOutput(cmd, "; --report prints the result on standard error"); err != nil {
				return err
			}
			req.EnvironmentID, req.Command = args[0], args[1:]
			result, err := runOnce(c, cmd, req, flags)
			if err == nil && flags.report {
				cmd.PrintErrln(reportOf(result))
			}
			return exitOf(result.ExecResult, err)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.AgentDID, "agent", "", "`DID` of the agent that the run belongs to (default: a new one)")
	f.DurationVar(&flags.timeout, "timeout", 0,
		"kill the command after this time, at most 24h (default: the environment's)")
	f.DurationVar(&flags.margin, "margin", sandbox.DefaultRunMargin.D(),
		"time allowed for creating the sandbox and copying files, 5s to 1h")
	f.StringArrayVarP(&flags.env, "env", "e", nil, "set a variable, `NAME=value`; may be repeated")
	f.StringVar(&req.Cwd, "cwd", "", "working `directory`, in /workspace or /data (default /workspace)")
	f.StringVar(&req.User, "user", "", "`uid[:gid]` (default: the sandbox's user)")
	f.BoolVarP(&flags.stdin, "stdin", "i", false, "pass standard input to the command")
	f.StringVar(&flags.files, "files", "", "tar `file` to unpack into /workspace before the command")
	f.StringArrayVar(&req.Collect, "collect", nil,
		"`path` or pattern, such as 'results/**/*.json', to add to --to after the command; may be repeated")
	f.StringVar(&req.Choice.Image, "image", "", "image of this run (default: the environment's)")
	f.Int64Var(&req.Choice.Resources.MemoryMB, "memory-mb", 0, "memory of this run in MiB (default: the environment's)")
	f.Int64Var(&req.Choice.Resources.CPUMillis, "cpu-millis", 0,
		"CPU of this run in thousandths of a core (default: the environment's)")
	f.StringVar((*string)(&req.Choice.Network), "network", "", "`mode` of this run: none, or the environment's (default)")
	f.StringVar(&flags.collect, "to", "", "tar `file` that receives the collected paths")
	f.BoolVar(&flags.report, "report", false, "print the duration and cost of the run on standard error")
	return cmd
}

// runOnce opens the files of a run, runs it and closes them.
func runOnce(c *console.Console, cmd *cobra.Command, req sandbox.RunRequest,
	flags runFlags) (result sandbox.RunResult, err error) {
	req.Timeout, req.Margin = sandbox.Duration(flags.timeout), sandbox.Duration(flags.margin)
	if req.Env, err = variables(flags.env); err != nil {
		return result, err
	}
	if (flags.collect == "") != (len(req.Collect) == 0) {
		return result, exit.WrongLinef("--collect and --to must be used together")
	}
	service, err := c.Connect(cmd)
	if err != nil {
		return result, err
	}
	req.Stdout, req.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if flags.stdin {
		req.Stdin = cmd.InOrStdin()
	}
	if flags.files != "" {
		files, err := os.Open(flags.files)
		if err != nil {
			return result, exit.WrongLinef("--files: %w", err)
		}
		defer func() { _ = files.Close() }() // only read
		req.Files = files
	}
	return collectTo(cmd.Context(), service, req, flags.collect)
}

// collectTo runs a request and writes the collected paths to an archive, unless file is "".
func collectTo(ctx context.Context, service service.Service, req sandbox.RunRequest,
	file string) (sandbox.RunResult, error) {
	if file == "" {
		return service.Run(ctx, req)
	}
	to, err := os.Create(file)
	if err != nil {
		return sandbox.RunResult{}, exit.WrongLinef("--to: %w", err)
	}
	req.Collected = to
	result, err := service.Run(ctx, req)
	return result, errors.Join(err, to.Close())
}

func reportOf(r sandbox.RunResult) string {
	report := fmt.Sprintf("%s: exit code %d after %s, %s, %s",
		r.Lease.ID, r.ExitCode, r.Duration.D().Round(time.Millisecond), format.Dollars(r.Lease.Cost), r.Lease.Status)
	if len(r.Missing) > 0 {
		report += "; missing: " + strings.Join(r.Missing, ", ")
	}
	return report
}
