package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/inside"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/login"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/operate"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/terminal"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config configures the command line. Its zero value is for production.
type Config struct {
	// Name is the name by which the program was called; "" means sandbox.
	Name    string
	Version string
	// Local are the commands that need no running reconciler, each with one of the group ids below.
	Local []*cobra.Command
	// Now is the clock for ages; nil means time.Now.
	Now func() time.Time
	// Width returns the number of columns of an output, 0 for no limit; nil asks the terminal.
	Width func(io.Writer) int
	// Getenv reads the environment; nil means os.Getenv.
	Getenv func(string) string
}

// Columns returns the number of columns of an output, 0 for no limit.
func (c Config) Columns(w io.Writer) int {
	if c.Width == nil {
		return terminal.Width(w)
	}
	return c.Width(w)
}

// IsTerminal reports whether an output goes to a terminal.
func (c Config) IsTerminal(w io.Writer) bool { return c.Columns(w) > 0 || terminal.Is(w) }

// The groups of the first screen of help. Local commands name theirs in GroupID.
const (
	GroupDaily      = "daily"
	GroupInside     = "inside"
	GroupOperate    = "operate"
	GroupReconciler = "reconciler"
	GroupProgram    = "program"
)

// NameOf returns the name by which the program was called, from the first of its arguments.
func NameOf(arg0 string) string {
	return cmp.Or(strings.TrimSuffix(filepath.Base(arg0), ".exe"), "sandbox")
}

// New returns the command line.
func New(c Config) *cobra.Command {
	con := &console.Console{Name: cmp.Or(c.Name, "sandbox"), Now: c.Now, Columns: c.Columns, Getenv: c.Getenv}
	if con.Now == nil {
		con.Now = time.Now
	}
	if con.Getenv == nil {
		con.Getenv = os.Getenv
	}
	root := console.Group(con.Name, "Lease sandboxes to AI agents, and run the reconciler that keeps them.")
	root.Version = cmp.Or(c.Version, "dev")
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: GroupDaily, Title: "Daily:"}, &cobra.Group{ID: GroupInside, Title: "Inside a sandbox:"},
		&cobra.Group{ID: GroupOperate, Title: "Operate:"}, &cobra.Group{ID: GroupReconciler, Title: "The reconciler:"},
		&cobra.Group{ID: GroupProgram, Title: "This program:"})
	root.SetHelpCommandGroupID(GroupProgram)
	root.SetCompletionCommandGroupID(GroupProgram)
	add := func(id string, commands []*cobra.Command) {
		for _, command := range commands {
			command.GroupID = id
			if slices.Contains(dailyOrder, command.Name()) {
				command.GroupID = GroupDaily
			}
			root.AddCommand(command)
		}
	}
	add(GroupDaily, con.Remote(leasing.Commands(con)...))
	add(GroupInside, con.Remote(inside.Commands(con)...))
	add(GroupOperate, con.Remote(operate.Commands(con)...))
	add(GroupProgram, append(login.Commands(con), newVersionCommand(root.Version)))
	root.AddCommand(c.Local...)
	setHelp(con, root)
	return root
}

// checkOwnCommands makes cobra's own commands reject unknown arguments, as all others do. The root must have its output
// already, because completion keeps it.
func checkOwnCommands(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				topic, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 && topic.HasSubCommands() {
					err = console.NoCommand(topic, rest)
				}
				return err
			}
		case "completion":
			cmd.Args = console.NoCommand
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

func newVersionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}

// Run runs the command line, prints its error and returns its exit code.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	args, hint := modern(args)
	if hint != "" {
		root.PrintErrf("%s is the old form: use %s %s\n", hint, root.Name(), strings.Join(leading(args), " "))
	}
	checkOwnCommands(root)
	root.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	cmd, err := root.ExecuteContextC(ctx)
	code, err := exit.Of(err)
	if err != nil {
		root.PrintErrln("Error:", printable.Text(inFlags(cmd, err)))
	}
	return code
}

// inFlags returns the text of a command's error. It replaces a field of the request by the command's flag for it,
// unless a file may have set the field.
func inFlags(cmd *cobra.Command, err error) string {
	text := err.Error()
	e, ok := errors.AsType[*sandbox.Error](err)
	if file := cmd.Flag("file"); !ok || file != nil && file.Changed {
		return text
	}
	for _, f := range e.Fields {
		name := strings.ReplaceAll(f.Name[strings.LastIndexByte(f.Name, '.')+1:], "_", "-")
		for _, suffix := range []string{"", "-id", "-did", "s"} {
			flag, has := strings.CutSuffix(name, suffix)
			if has && flag != "" && cmd.Flag(flag) != nil {
				text = strings.Replace(text, "; "+f.Name+": ", "; --"+flag+": ", 1)
				break
			}
		}
	}
	return text
}
