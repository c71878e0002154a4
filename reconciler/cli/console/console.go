// Package console has what all commands share: the client of the reconciler, arguments and shared flags, and the output
// of results.
package console

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/terminal"
)

// Console holds what commands share: the clock, the terminal and the environment, how to reach the reconciler, and how
// to print. Its exported functions are never nil.
type Console struct {
	// Name is the name by which the program was called.
	Name string
	// Now is the clock for ages.
	Now func() time.Time
	// Columns returns the number of columns of an output, 0 for no limit.
	Columns func(io.Writer) int
	// Getenv reads the environment.
	Getenv func(string) string
	// Output is the form of --output, such as Table.
	Output string

	url, tokenFile, caFile, context string
	quiet                           bool
	// watched receives the output that --watch compares; nil without --watch.
	watched io.Writer
}

// Remote adds the shared flags to commands that ask a reconciler, and shows how long they wait for it.
func (c *Console) Remote(commands ...*cobra.Command) []*cobra.Command {
	for _, command := range commands {
		c.connectionFlags(command.PersistentFlags())
		c.OutputFlags(command)
		c.completeShared(command)
		Each(command, func(cmd *cobra.Command) { terminal.ShowWaiting(cmd, c.Name) })
	}
	return commands
}

// Each calls do with a command and with all commands below it.
func Each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, below := range cmd.Commands() {
		Each(below, do)
	}
}
