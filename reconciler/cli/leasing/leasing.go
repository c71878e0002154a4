// Package leasing has the commands for environments and leases.
package leasing

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
)

// Commands returns the commands env and lease.
func Commands(c *console.Console) []*cobra.Command {
	return []*cobra.Command{environments(c), leases(c)}
}
