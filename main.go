// Command terraform-provider-sandbox is two programs in one binary: started by Terraform it is the
// provider; as `terraform-provider-sandbox reconciler …` it is the reconciler and its command line.
// `terraform-provider-sandbox plan-summary` tells reviewers what a plan means.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/plansummary"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
)

// version is set by the build.
var version = "dev"

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "reconciler":
			os.Exit(cli.Run(context.Background(), cli.New(version, reconciler.Commands(version)...), os.Args[2:]))
		case "plan-summary":
			os.Exit(cli.Run(context.Background(), plansummary.NewCommand(), os.Args[2:]))
		}
	}
	if err := serveProvider(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveProvider() error {
	debug := flag.Bool("debug", false, "let a debugger attach to the provider")
	flag.Parse()
	return provider.Serve(context.Background(), version, *debug)
}
