//go:build linux

// Command guest is process 1 of every sandbox, and its helpers:
//
//	guest keep    -uid S -gid G -deadline <unix µs> …      process 1, see package keeper
//	guest keep    … -ends <json>                           … with the deadline by local clocks, as wire.Ends
//	guest keep    … -channel <socket>                      … with the channel on a socket
//	guest keep    … -port <n>                              … with the channel on a port
//	guest keep    … -config <json>                         … with the content of /workspace/config.json
//	guest keep    … -main <id>                             … of a companion, which ends with that command
//	guest keep    … -pooled                                … of a pool, waiting for its lease
//	guest keep    … -disk <bytes>                          … with a disk limit for /workspace and /data
//	guest keep    … -egress <json>                         … with forwarding to the gateway
//	guest broker  …                                        its child that speaks the channel protocol, see package broker
//	guest kernel  [-needs -socket <path>]                  reports the kernel, and what process 1 lacks there
//	guest state   -descriptor <n> -pipe <inode>            reports the state of a shell, as its last child
//	guest verifier -home <dir> -cwd <dir> -- command …     becomes a verifier, see package verifier
//	guest verifier -home <dir> -clean                      removes a verifier's directory
//	guest lookup  <program or files> …                     reports what the sandbox lacks, see package lookup
//	guest relay   …                                        connects reconcilers and sandboxes, see package relay
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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/lookup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/verifier"
)

func main() {
	// Use one processor and a small heap: the guest counts against the sandbox's limits.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	if len(os.Args) < 2 {
		fatal("usage: guest keep | broker | kernel | state | verifier | lookup | relay")
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
	case lookup.Command:
		if err := lookup.Main(args, os.Stdout); err != nil {
			fatal("%v", err)
		}
	case "state":
		flags := flag.NewFlagSet(name, flag.ExitOnError)
		toFile := flags.Int("descriptor", -1, "descriptor for the state of a shell")
		pipe := flags.Uint64("pipe", 0, "inode that the descriptor must have")
		parse(flags, args)
		runState(*toFile, *pipe)
	default:
		fatal("unknown command %q", name)
	}
}

// parseKeeper parses the flags of process 1 or its broker, and runs it.
func parseKeeper(name string, args []string) {
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	var cfg keeper.Config
	ending := flags.Int64("deadline", 0, "when the sandbox ends: Unix time in microseconds by the ledger's clock")
	ends := flags.String("ends", "",
		"the deadline by local clocks, as wire.Ends; default: -deadline is by the local clock")
	flags.Int64Var(&cfg.Disk, "disk", 0, "limit of /workspace and /data together in bytes; 0 means no limit")
	flags.StringVar(&cfg.Config, "config", "", "content of /workspace/config.json")
	flags.StringVar(&cfg.Egress, "egress", "", "egress configuration, as wire.Egress; empty means no egress")
	flags.BoolVar(&cfg.Pooled, "pooled", false, "the sandbox waits for its lease in a warm pool")
	flags.IntVar(&cfg.UID, "uid", 0, "user of the sandbox")
	flags.IntVar(&cfg.GID, "gid", 0, "group of the sandbox")
	flags.IntVar(&cfg.PIDs, "pids", 0, "process limit of the sandbox; 0 means unknown")
	flags.BoolVar(&cfg.AllowRoot, "allow-root", false, "commands may run as user 0")
	flags.BoolVar(&cfg.OwnUID, "own-uid", false, "the sandbox has a separate user")
	flags.StringVar(&cfg.Channel, "channel", "", "socket of the channel")
	flags.StringVar(&cfg.Life, "life", "", "life id that the broker's keeper chose")
	flags.IntVar(&cfg.Port, "port", 0, "port to listen on instead of a socket; 0 means none")
	flags.StringVar(&cfg.Main, "main", "", "id of the command whose end ends the container; empty means none")
	parse(flags, args)
	runKeeper(name, cfg, *ends, time.UnixMicro(*ending))
}

func parse(flags *flag.FlagSet, args []string) {
	if err := flags.Parse(args); err != nil {
		fatal("%v", err)
	}
}

func fatal(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, "guest: "+format+"\n", args...) // there is no place to report it
	os.Exit(1)
}
