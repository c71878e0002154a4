package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Exit codes. exec and run exit with the code of the command, and with ExitNotRun when there is none.
const (
	ExitDone   = 0
	ExitFailed = 1   // rejected or failed; also a certificate that is not trusted
	ExitUsage  = 2   // the command line or the request is wrong
	ExitRetry  = 75  // EX_TEMPFAIL of sysexits.h: out of reach, too busy, or of unknown outcome
	ExitNotRun = 125 // as in docker run
)

// Config says how the command line is made. Its zero value is the real one.
type Config struct {
	// Name is what the program was called by; "" means sandbox.
	Name    string
	Version string
	// Local are the commands that need no running reconciler, each with one of the group ids below.
	Local []*cobra.Command
	// Now is the clock that ages are counted by; nil means time.Now.
	Now func() time.Time
	// Width returns the number of columns of an output, 0 for no limit; nil asks the terminal.
	Width func(io.Writer) int
	// Getenv reads the environment; nil means os.Getenv.
	Getenv func(string) string
}

// Columns returns the number of columns of an output, 0 for no limit.
func (c Config) Columns(w io.Writer) int {
	if c.Width == nil {
		return terminalWidth(w)
	}
	return c.Width(w)
}

// IsTerminal reports whether an output goes to a terminal.
func (c Config) IsTerminal(w io.Writer) bool { return c.Columns(w) > 0 || isTerminal(w) }

// The groups of the first screen of help. Local commands name theirs in GroupID.
const (
	GroupDaily      = "daily"
	GroupInside     = "inside"
	GroupOperate    = "operate"
	GroupReconciler = "reconciler"
	GroupProgram    = "program"
)

// NameOf returns the name that the program was called by, from the first of its arguments.
func NameOf(arg0 string) string {
	return cmp.Or(strings.TrimSuffix(filepath.Base(arg0), ".exe"), "sandbox")
}

// New returns the command line.
func New(c Config) *cobra.Command {
	a := newApp(c)
	root := group(a.name, "Lease sandboxes to AI agents, and run the reconciler that keeps them.")
	root.Version = cmp.Or(c.Version, "dev")
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: GroupDaily, Title: "Daily:"}, &cobra.Group{ID: GroupInside, Title: "Inside a sandbox:"},
		&cobra.Group{ID: GroupOperate, Title: "Operate:"}, &cobra.Group{ID: GroupReconciler, Title: "The reconciler:"},
		&cobra.Group{ID: GroupProgram, Title: "This program:"})
	root.SetHelpCommandGroupID(GroupProgram)
	root.SetCompletionCommandGroupID(GroupProgram)
	add := func(id string, commands ...*cobra.Command) {
		for _, command := range commands {
			command.GroupID = id
			root.AddCommand(command)
		}
	}
	add(GroupDaily, a.remote(a.leases(), a.environments(), a.exec(), a.run(), a.cp(), a.logs(), a.costs(), a.drift(),
		a.events())...)
	add(GroupInside, a.remote(a.commands(), a.processes(), a.sessions(), a.agents(), a.files(), a.workspaces(),
		a.states())...)
	add(GroupOperate, a.remote(a.send(), a.tokens(), a.llmCalls(), a.sweep(), a.adopt(), a.audit())...)
	add(GroupProgram, a.login(), a.logout(), a.contexts(), newVersionCommand(root.Version))
	root.AddCommand(c.Local...)
	a.setHelp(root)
	return root
}

func newVersionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}

// group returns a command that only has commands below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  noCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(below...)
	return cmd
}

// Run runs the command line, prints its error and returns its exit code.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	args, hint := modern(args)
	if hint != "" {
		root.PrintErrf("%s is the old form: use %s %s\n", hint, root.Name(), strings.Join(leading(args), " "))
	}
	root.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitDone
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		if exit.err != nil {
			root.PrintErrln("Error:", printable.Text(exit.err.Error()))
		}
		return exit.code
	}
	root.PrintErrln("Error:", printable.Text(err.Error()))
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

// noCommand refuses the arguments of a command that only has commands below it: they name none of those.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usage("%s has no command %q; did you mean %s?", cmd.CommandPath(), args[0], strings.Join(near, " or "))
	}
	return usage("%s has no command %q; see %[1]s --help", cmd.CommandPath(), args[0])
}

// exactly accepts the named arguments and no others.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := "no arguments"
		if len(names) > 0 {
			want = printable.Count(len(names), "argument", "arguments") + " (" + strings.Join(names, ", ") + ")"
		}
		return usage("%s takes %s, not %d; see --help", cmd.CommandPath(), want, len(args))
	}
}

// showPages shows a list, which read returns page by page. show moves on what read begins after. A page shorter than
// size is the last one.
func showPages[T any](size int, read func() ([]T, error), show func(T) error) error {
	for {
		page, err := read()
		if err != nil {
			return err
		}
		for _, entry := range page {
			if err := show(entry); err != nil {
				return err
			}
		}
		if len(page) < size {
			return nil
		}
	}
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
