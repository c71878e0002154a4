// Package inside has the commands that work inside the sandbox of a lease: on its commands, processes, sessions, files
// and snapshots.
package inside

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
)

// Commands returns the commands agent, command, cp, exec, file, logs, process, run, session, state and workspace.
func Commands(c *console.Console) []*cobra.Command {
	return []*cobra.Command{
		agents(c), commands(c), cp(c), exec(c), files(c), logs(c), processes(c), run(c), sessions(c), states(c),
		workspaces(c),
	}
}
