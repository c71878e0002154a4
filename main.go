// Command terraform-provider-sandbox is two programs in one binary: started by Terraform it is the
// provider; as `terraform-provider-sandbox reconciler …` it is the reconciler and its command line.
// `terraform-provider-sandbox plan-summary` tells reviewers what a plan means.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/plansummary"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/daemon"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// version is set by the build.
var version = "dev"

func main() {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") { // Terraform gives no arguments
		os.Exit(cli.Run(context.Background(), newCommand(), os.Args[1:]))
	}
	if err := serveProvider(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newCommand returns the program as a command line.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "terraform-provider-sandbox",
		Short:         "Lease sandboxes to agents",
		Long:          "Lease sandboxes to agents. Without a command this is a provider, which Terraform starts.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return sandbox.Errorf(sandbox.Invalid, "unknown command %q; see %s help", args[0], cmd.CommandPath())
		},
	}
	root.AddCommand(cli.New(version, daemon.Commands(version)...), plansummary.NewCommand())
	return root
}

func serveProvider() error {
	debug := flag.Bool("debug", false, "let a debugger attach to the provider")
	flag.Parse()
	return provider.Serve(context.Background(), version, *debug)
}
