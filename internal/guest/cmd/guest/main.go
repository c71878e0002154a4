//go:build linux

// Command guest is process 1 of every sandbox, and its helpers:
//
//	guest keep    -uid S -gid G -deadline <unix µs> …      process 1, as package keeper says
//	guest keep    … -ends <json>                           … which says when that is by the clocks here, as wire.Ends
//	guest keep    … -channel <socket>                      … which is reached by a socket
//	guest keep    … -port <n>                              … which is reached by a port
//	guest keep    … -config <json>                         … which writes /workspace/config.json
//	guest keep    … -pooled                                … which waits for its lease
//	guest keep    … -disk <bytes>                          … which ends programs that keep more in /workspace and /data
//	guest keep    … -egress <json>                         … which moves what may go out to the gateway
//	guest broker  …                                        its child that speaks the channel, as package broker says
//	guest kernel  [-needs -socket <path>]                  says which kernel it runs on, and what process 1 lacks there
//	guest state   -descriptor <n> -pipe <inode>            tells what a shell leaves behind, as its last child
//	guest verifier -home <dir> -cwd <dir> -- command …     becomes a verifier, as package verifier says
//	guest verifier -home <dir> -clean                      removes what one left
//	guest relay   …                                        stands between reconcilers and sandboxes, as package relay says
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/keeper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/kernel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/verifier"
)

func main() {
	// One processor and a small heap: the guest counts against the sandbox's own limits.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	if len(os.Args) < 2 {
		fatal("usage: guest keep | broker | kernel | state | verifier | relay")
	}
	name, args := os.Args[1], os.Args[2:]
	switch name {
	case "relay":
		runRelay(args)
	case verifier.Command:
		os.Exit(verifier.Main(args))
	case "keep", "broker":
		parseKeeper(name, args)
	case kernel.Command:
		if err := kernel.Main(args, os.Stdout); err != nil {
			fatal("%v", err)
		}
	case "state":
		flags := flag.NewFlagSet(name, flag.ExitOnError)
		toFile := flags.Int("descriptor", -1, "where to write the state of a shell")
		pipe := flags.Uint64("pipe", 0, "the inode that this must be")
		parse(flags, args)
		runState(*toFile, *pipe)
	default:
		fatal("no command %q", name)
	}
}

// parseKeeper is process 1, or its broker.
func parseKeeper(name string, args []string) {
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	var cfg keeper.Config
	ending := flags.Int64("deadline", 0, "when the sandbox ends, in microseconds of Unix time by the ledger's clock")
	ends := flags.String("ends", "", "when that is by the clocks here, as wire.Ends; empty means that the deadline is of the clock here")
	flags.Int64Var(&cfg.Disk, "disk", 0, "how many bytes /workspace and /data may take together; 0 is any number")
	flags.StringVar(&cfg.Config, "config", "", "content of /workspace/config.json")
	flags.StringVar(&cfg.Egress, "egress", "", "how the sandbox gets out, as wire.Egress; empty means that it does not")
	flags.BoolVar(&cfg.Pooled, "pooled", false, "the sandbox waits in a warm pool for its lease")
	flags.IntVar(&cfg.UID, "uid", 0, "user of the sandbox")
	flags.IntVar(&cfg.GID, "gid", 0, "group of the sandbox")
	flags.IntVar(&cfg.PIDs, "pids", 0, "how many processes the sandbox may have; 0 is not known")
	flags.BoolVar(&cfg.AllowRoot, "allow-root", false, "commands may run as user 0")
	flags.BoolVar(&cfg.OwnUID, "own-uid", false, "no other sandbox has the user")
	flags.StringVar(&cfg.Channel, "channel", "", "socket of the channel")
	flags.StringVar(&cfg.Life, "life", "", "what the keeper of this broker has chosen")
	flags.IntVar(&cfg.Port, "port", 0, "port to listen to in place of a socket; 0 for none")
	parse(flags, args)
	runKeeper(name, cfg, *ends, time.UnixMicro(*ending))
}

func parse(flags *flag.FlagSet, args []string) {
	if err := flags.Parse(args); err != nil {
		fatal("%v", err)
	}
}

func fatal(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, "guest: "+format+"\n", args...) // there is no other place to report it
	os.Exit(1)
}
