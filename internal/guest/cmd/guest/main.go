//go:build linux

// Command guest is process 1 of every Docker sandbox, and its helper:
//
//	guest init    -deadline <unix µs> [-config <json>]     process 1
//	guest init    -deadline <unix µs> -pooled              process 1 of a sandbox that waits for its lease
//	guest init    … -ends <json>                           … which says when that is by the clocks here, as wire.Ends
//	guest init    … -disk <bytes>                          … which ends programs that keep more in /workspace and /data
//	guest init    … -egress <json>                         … which moves what may go out to the gateway
//	guest exec    -id <id> -timeout <duration> -cwd <dir> -- command args…
//	guest exec    -shell … -- <line>                       runs a line of the image's shell, and reports what it leaves behind
//	guest state   -descriptor <n> -pipe <inode>            tells that, as the shell's last child
//	guest follow  -id <id> -stdout <n> -stderr <n>          sends what exec with that id has written after n bytes, and goes on to its end
//	guest exec    -id <id> -process -cwd <dir> -- command … runs a process without a timeout, and keeps its log
//	guest port    -port <n>                                waits until somebody listens to a port
//	guest kill    -id <id>                                 ends what exec with that id runs
//	guest tar-in  -dir <dir>                               unpacks stdin
//	guest tar-out -path <path>                             packs a path
//	guest tar-in | tar-out -base64 …                       has its path in base64, for names that are not UTF-8
//	guest file    -request <json>                          works on one path, as wire.FileRequest says
//	guest save    -path <dir> -unless <fingerprint> -limit <n> packs all of a directory while nothing else runs
//	guest save    -end …                                   … which it ends before
//	guest usage                                            says what the sandbox uses
//	guest exec | tar-in | file -data …                     also reports the fingerprint of /data and the CPU time so far, as wire.Result has them
//	guest secrets                                          puts the files on stdin into /run/secrets
//
//	guest keep    -uid S -gid G -ends <json> -channel <socket> …  process 1 that starts commands itself, as package keeper says
//	guest keep    … -port <n>                               … which listens to a port in place of a socket
//	guest broker  …                                        its child that speaks the channel, as package broker says
//	guest verifier -home <dir> -cwd <dir> -- command …     becomes a verifier, as package verifier says
//	guest verifier -home <dir> -clean                      removes what one left
//
// All but these and init answer in the protocol of package wire on their standard output.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/cgroup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/files"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/keeper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/verifier"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

func main() {
	// One processor and a small heap: the guest counts against the sandbox's own limits.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	if len(os.Args) < 2 {
		fatal("usage: guest init | exec | follow | port | kill | tar-in | tar-out | save | file | usage | secrets")
	}
	if os.Args[1] == "relay" {
		runRelay(os.Args[2:])
		return
	}
	if os.Args[1] == verifier.Command {
		os.Exit(verifier.Main(os.Args[2:]))
	}
	name, flags := os.Args[1], flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	var (
		ending  = flags.Int64("deadline", 0, "when the sandbox ends, in microseconds of Unix time by the ledger's clock")
		ends    = flags.String("ends", "", "when that is by the clocks here, as wire.Ends; empty means that the deadline is of the clock here")
		disk    = flags.Int64("disk", 0, "how many bytes /workspace and /data may take together; 0 is any number")
		config  = flags.String("config", "", "content of /workspace/config.json")
		egress  = flags.String("egress", "", "how the sandbox gets out, as wire.Egress; empty means that it does not")
		pooled  = flags.Bool("pooled", false, "the sandbox waits in a warm pool for its lease")
		id      = flags.String("id", "", "id of the command")
		stdout  = flags.Int64("stdout", 0, "how much of its standard output is known")
		stderr  = flags.Int64("stderr", 0, "how much of its standard error is known")
		now     = flags.Bool("now", false, "send what is there, and no more")
		quiet   = flags.Bool("quiet", false, "send how it ended, and nothing of what it wrote")
		process = flags.Bool("process", false, "run it as long as the sandbox does, and keep the latest of its output")
		port    = flags.Int("port", 0, "port of 127.0.0.1 to wait for; of process 1, the port to listen to")
		timeout = flags.Duration("timeout", 2*time.Minute, "how long the command may run")
		cwd     = flags.String("cwd", "/workspace", "directory that the command runs in")
		dir     = flags.String("dir", "/workspace", "directory to unpack in")
		path    = flags.String("path", "/workspace", "file or directory to pack")
		encoded = flags.Bool("base64", false, "dir and path are in base64")
		shell   = flags.Bool("shell", false, "the command is one line for the image's shell")
		toFile  = flags.Int("descriptor", -1, "where to write the state of a shell")
		pipe    = flags.Uint64("pipe", 0, "the inode that this must be")
		unless  = flags.String("unless", "", "do not pack what has this fingerprint")
		limit   = flags.Int64("limit", 0, "do not pack files of more bytes; 0 packs any")
		end     = flags.Bool("end", false, "end all other processes first")
		data    = flags.Bool("data", false, "report the fingerprint of /data")
		request = flags.String("request", "", "what to do with one path, as wire.FileRequest")
		uid     = flags.Int("uid", 0, "user of the sandbox")
		gid     = flags.Int("gid", 0, "group of the sandbox")
		pids    = flags.Int("pids", 0, "how many processes the sandbox may have; 0 is not known")
		root    = flags.Bool("allow-root", false, "commands may run as user 0")
		ownUID  = flags.Bool("own-uid", false, "no other sandbox has the user")
		socket  = flags.String("channel", "", "socket of the channel")
	)
	if err := flags.Parse(os.Args[2:]); err != nil {
		fatal("%v", err)
	}
	switch name {
	case "keep", "broker":
		runKeeper(name, keeper.Config{
			UID: *uid, GID: *gid, Config: *config, Egress: *egress, Pooled: *pooled, Disk: *disk, PIDs: *pids, OwnUID: *ownUID, AllowRoot: *root, Channel: *socket, Port: *port,
		}, *ends, time.UnixMicro(*ending))
		return
	}
	if name == "init" {
		until, err := deadline.Parse(*ends, time.UnixMicro(*ending))
		if err != nil {
			fatal("%v", err)
		}
		runInit(until, *config, *egress, *pooled, *disk)
		return
	}
	if name == "state" {
		runState(*toFile, *pipe)
		return
	}
	harden()
	out := wire.NewWriter(os.Stdout)
	var r wire.Result
	switch name {
	case "exec":
		r = runExec(command{id: *id, args: flags.Args(), shell: *shell, cwd: *cwd, timeout: *timeout, process: *process}, out)
	case "follow":
		r = runFollow(follow{id: *id, offsets: [2]int64{*stdout, *stderr}, now: *now, quiet: *quiet}, out)
	case "port":
		r = problem(awaitPort(*port))
	case "kill":
		r = runKill(*id)
	case "tar-in":
		r = runOnPath(channel.OpPut, *dir, *encoded, out)
	case "secrets":
		r = runSecrets(out)
	case "tar-out":
		r = runOnPath(channel.OpGet, *path, *encoded, out)
	case "save":
		r = runSave(*path, channel.Save{Unless: *unless, Limit: *limit, End: *end}, out.Stdout())
	case "usage":
		r = problem(cgroup.Sample(len(proc.All()), out.Stdout()))
	case "file":
		r = runFile(*request, out)
	default:
		fatal("no command %q", name)
	}
	if *data {
		r.Data = files.Own().Fingerprint(context.Background(), sandbox.StateDir)
	}
	if *data || name == "save" || name == "usage" {
		r.CPUTime, _ = cgroup.CPUTime() // a kernel that does not count leaves it out
	}
	if err := out.Result(r); err != nil {
		fatal("report the result: %v", err)
	}
}

// harden forbids code of the same user to trace this process or to read its descriptors, so
// nothing in the sandbox can forge its reports or stop its clock.
func harden() {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		fatal("become non-dumpable: %v", err)
	}
}

func fatal(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, "guest: "+format+"\n", args...) // nobody is left to tell
	os.Exit(1)
}
