package console

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
)

// Group returns a command that only has subcommands.
func Group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  NoCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(below...)
	return cmd
}

// NoCommand rejects arguments of a command that only has subcommands: they name none of them.
func NoCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return exit.Usagef("%s has no command %q; did you mean %s?", cmd.CommandPath(), args[0], strings.Join(near, " or "))
	}
	return exit.Usagef("%s has no command %q; see %[1]s --help", cmd.CommandPath(), args[0])
}

// Exactly accepts the named arguments and no others. Its errors are Invalid.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := "no arguments"
		if len(names) > 0 {
			want = printable.Count(len(names), "argument", "arguments") + " (" + strings.Join(names, ", ") + ")"
		}
		return exit.Usagef("%s takes %s, not %d; see --help", cmd.CommandPath(), want, len(args))
	}
}
