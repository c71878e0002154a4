package cli

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
)

// helpWidth is the maximum width of help, and the width for an output without one.
const helpWidth = 100

// setHelp sets the help of all commands. It replaces cobra's, which breaks no lines, repeats the shared flags on every
// page, and cannot show groups of commands in a few lines.
func setHelp(c *console.Console, root *cobra.Command) {
	named := func(pattern *regexp.Regexp, text string) string {
		return pattern.ReplaceAllString(text, "${1}"+c.Name+" ")
	}
	inExample, inText := regexp.MustCompile(`((?m:^ *)|\| )sandbox `), regexp.MustCompile(`(["(])sandbox `)
	console.Each(root, func(cmd *cobra.Command) {
		cmd.Example = named(inExample, cmd.Example)
		cmd.Long = named(inText, cmd.Long)
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		text := help(cmd, c.Columns(cmd.OutOrStdout()))
		if !cmd.HasParent() {
			text = firstScreen(cmd)
		}
		_, _ = io.WriteString(cmd.OutOrStdout(), text) // a failed write of help cannot be reported either
	})
}

// help returns the help of a command for an output with this many columns, 0 for no limit.
func help(cmd *cobra.Command, columns int) string {
	width := helpWidth
	if columns > 0 {
		width = min(columns, helpWidth)
	}
	var b strings.Builder
	for _, paragraph := range strings.Split(textOf(cmd), "\n\n") {
		b.WriteString(paragraphIn(paragraph, width) + "\n\n")
	}
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " <command> [flags]"
	}
	fmt.Fprintf(&b, "Usage:\n  %s\n", use)
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, below := range cmd.Commands() {
			if below.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s  %s\n", cmd.NamePadding(), below.Name(), below.Short)
			}
		}
	}
	flags(&b, "Flags", cmd.LocalFlags(), width)
	flags(&b, "Shared flags", cmd.InheritedFlags(), width)
	return b.String()
}

func flags(b *strings.Builder, title string, f *pflag.FlagSet, width int) {
	if f.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s:\n%s\n", title, strings.TrimRight(f.FlagUsagesWrapped(width), "\n"))
	}
}

func textOf(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short
}

// paragraphIn breaks a paragraph into lines. A list keeps its lines.
func paragraphIn(text string, width int) string {
	lines := strings.Split(text, "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "  ") {
			return text
		}
	}
	return printable.Wrap(text, width)
}

// dailyOrder is the order of the daily commands on the first screen: the order in which a new user needs them.
var dailyOrder = []string{"env", "lease", "exec", "run", "cp", "logs", "cost", "drift", "events"}

// firstScreen returns the help of the program, in at most 24 lines of 80 columns: the daily commands with descriptions,
// and the names of the others.
func firstScreen(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage: %s <command> [flags]\n\nDaily:\n", root.Short, root.Name())
	names := map[string][]string{}
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() || cmd.Name() == "help" {
			names[cmd.GroupID] = append(names[cmd.GroupID], cmd.Name())
		}
	}
	slices.SortStableFunc(names[GroupDaily], func(a, b string) int {
		return cmp.Compare(slices.Index(dailyOrder, a), slices.Index(dailyOrder, b))
	})
	for _, name := range names[GroupDaily] {
		cmd, _, _ := root.Find([]string{name}) // it exists
		fmt.Fprintf(&b, "  %-8s %s\n", name, cmd.Short)
	}
	delete(names, GroupDaily)
	b.WriteString("\n")
	for _, g := range root.Groups() {
		if len(names[g.ID]) > 0 {
			fmt.Fprintf(&b, "%-17s %s\n", g.Title, strings.Join(names[g.ID], " "))
		}
	}
	fmt.Fprintf(&b, "\n%s <command> --help describes a command, its flags and its commands.\n", root.Name())
	b.WriteString("Exit codes: 0 done; 1 rejected or failed; 2 wrong usage; 75 unreachable or busy,\n" +
		"retry; 124 timed out. exec and run: the command's own; 125 did not run.\n")
	return b.String()
}
