// Command terraform-provider-sandbox is two programs in one binary. Started by Terraform, it is the provider. Called by
// a user, as `sandbox` or by any other name, it is the command line, which also runs the reconciler. Package cli
// explains its name.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/plansummary"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/daemon"
)

// version is set by the build.
var version = "dev"

// pluginCookie is set by Terraform for every plugin that it starts (terraform-plugin-go, tfprotov6/tf6server).
const pluginCookie = "TF_PLUGIN_MAGIC_COOKIE"

func main() {
	name := cli.NameOf(os.Args[0])
	if isProvider, debug := providerOf(name, os.Args[1:], os.Getenv(pluginCookie)); isProvider {
		if err := provider.Serve(context.Background(), version, debug); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(name, os.Args[1:]))
}

// providerOf reports whether the arguments select the provider, and whether a debugger attaches to it. Terraform passes
// no arguments, but sets a cookie.
func providerOf(name string, args []string, cookie string) (isProvider, debug bool) {
	if !strings.HasPrefix(name, "terraform-provider-") {
		return false, false
	}
	if len(args) == 1 && (args[0] == "-debug" || args[0] == "--debug") {
		return true, true
	}
	return len(args) == 0 && cookie != "", false
}

// run runs the command line until it ends or is interrupted, and returns its exit code.
func run(name string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	defer stop()
	summary := plansummary.NewCommand()
	summary.GroupID = cli.GroupProgram
	return cli.Run(ctx, cli.New(cli.Config{
		Name: name, Version: version, Local: append(daemon.Commands(cli.Config{Version: version}), summary),
	}), args)
}
