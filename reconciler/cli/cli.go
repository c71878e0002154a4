// Package cli is the command line of the reconciler. It holds the commands that ask a running reconciler, and takes
// the others, such as serve, as arguments of New.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Environment variables that replace --url and --token-file.
const (
	envURL   = "SANDBOX_RECONCILER_URL"
	envToken = "SANDBOX_RECONCILER_TOKEN" // #nosec G101 -- the name of a variable
)

// Exit codes. exec and run exit with the code of the command, and with ExitNotRun when there is none.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2   // the command line or the request is wrong
	ExitRetry  = 75  // EX_TEMPFAIL of sysexits.h: out of reach, too busy, or of unknown outcome
	ExitNotRun = 125 // as in docker run
)

const long = `Run a reconciler, or send commands to a running one.

serve, doctor, secret, migrate, backup, restore and version run locally. All other commands call the
reconciler at --url (or SANDBOX_RECONCILER_URL) with the token in --token-file (or
SANDBOX_RECONCILER_TOKEN).

Exit codes: 0 success; 1 rejected or failed; 2 wrong usage or an invalid request; 75 unreachable, busy
or unknown outcome: retry. exec and run exit with the command's own code, and with 125 if the command
did not run or its outcome is unknown.`

// New returns the command `reconciler`. local are the commands that need no running reconciler.
func New(version string, local ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:           "reconciler",
		Short:         "Run a reconciler, or send commands to a running one",
		Long:          long,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err) })
	a := &app{}
	for _, command := range []*cobra.Command{
		a.send(), a.environments(), a.leases(), a.exec(), a.execs(), a.sessions(), a.processes(), a.agents(), a.run(),
		a.files(), a.workspaces(), a.events(), a.costs(), a.llmCalls(), a.drift(), a.states(), a.sweep(), a.adopt(),
		a.audit(), a.tokens(),
	} {
		command.PersistentFlags().AddFlagSet(a.flags())
		complete(command, "output", "table", "json")
		root.AddCommand(command)
	}
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	})
	root.AddCommand(local...)
	return root
}

// Run runs a command returned by New, prints its error and returns its exit code.
func Run(ctx context.Context, command *cobra.Command, args []string) int {
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	if err == nil {
		return ExitDone
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		if exit.err != nil {
			command.PrintErrln("Error:", printable.Text(exit.err.Error()))
		}
		return exit.code
	}
	command.PrintErrln("Error:", printable.Text(err.Error()))
	switch {
	case sandbox.CodeOf(err) == sandbox.Invalid:
		return ExitUsage
	case sandbox.IsRetryable(err):
		return ExitRetry
	default:
		return ExitFailed
	}
}

// exitError ends the program with a code; err, unless nil, is printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }
func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return sandbox.Errorf(sandbox.Invalid, format, args...) }

// complete registers the values of a flag for shell completion.
func complete[T ~string](cmd *cobra.Command, flag string, values ...T) {
	offered := make([]string, len(values))
	for i, v := range values {
		offered[i] = string(v)
	}
	// It fails only for a flag that the command does not have.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(offered, cobra.ShellCompDirectiveNoFileComp))
}

// noCommand refuses the arguments of a command that only has commands below it: they name none of those.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("unknown command %q; see %s --help", args[0], cmd.CommandPath())
	}
	return nil
}

// exactly accepts the named arguments and no others.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usage("%s takes %s, not %d; see --help",
				cmd.CommandPath(), printable.Count(len(names), "argument", "arguments"), len(args))
		}
		return nil
	}
}

// app holds the flags that the commands share: how to reach the reconciler, and how to print.
type app struct {
	url, tokenFile string
	output         string
}

func (a *app) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.StringVar(&a.url, "url", "", "URL of the reconciler (default: $"+envURL+")")
	f.StringVar(&a.tokenFile, "token-file", "",
		"`file` with the bearer token, alone or in the format of serve (default: the token in $"+envToken+")")
	f.StringVarP(&a.output, "output", "o", "table", "table or json")
	return f
}

// connect returns a client of the reconciler.
func (a *app) connect(cmd *cobra.Command) (*client.Client, error) {
	token := os.Getenv(envToken)
	if a.tokenFile != "" {
		var err error
		if token, err = access.ReadToken(a.tokenFile); err != nil {
			return nil, err
		}
	}
	if token == "" {
		return nil, usage("no token: set --token-file or %s", envToken)
	}
	return a.newClient(cmd, client.Config{Token: token})
}

func (a *app) checkOutput() error {
	if !slices.Contains([]string{"table", "json"}, a.output) {
		return usage("--output must be table or json, not %q", a.output)
	}
	return nil
}

func (a *app) newClient(cmd *cobra.Command, c client.Config) (*client.Client, error) {
	if err := a.checkOutput(); err != nil {
		return nil, err
	}
	if c.URL = cmp.Or(a.url, os.Getenv(envURL)); c.URL == "" {
		return nil, usage("no reconciler URL: set --url or %s", envURL)
	}
	c.UserAgent = "terraform-provider-sandbox reconciler " + cmd.Name()
	return client.New(c)
}

// everyPage reads a list page by page, each after the id of the last entry before. It is never nil.
func everyPage[T any](read func(after string) ([]T, error), id func(T) string) ([]T, error) {
	all := []T{}
	for after := ""; ; {
		page, err := read(after)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < sandbox.MaxPage {
			return all, nil
		}
		after = id(page[len(page)-1])
	}
}
