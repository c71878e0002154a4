// Package operate has the commands of operators: to watch events and costs, to repair, and to manage tokens.
package operate

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
)

// Commands returns the commands adopt, audit, cost, drift, events, llm-call, send, sweep and token.
func Commands(c *console.Console) []*cobra.Command {
	return []*cobra.Command{
		adopt(c), audit(c), costs(c), drift(c), events(c), llmCalls(c), send(c), sweep(c), tokens(c),
	}
}
