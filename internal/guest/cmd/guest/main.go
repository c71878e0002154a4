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
// All but init answer in the protocol of package wire on their standard output.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

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
	name, flags := os.Args[1], flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	var (
		deadline = flags.Int64("deadline", 0, "when the sandbox ends, in microseconds of Unix time by the ledger's clock")
		ends     = flags.String("ends", "", "when that is by the clocks here, as wire.Ends; empty means that the deadline is of the clock here")
		disk     = flags.Int64("disk", 0, "how many bytes /workspace and /data may take together; 0 is any number")
		config   = flags.String("config", "", "content of /workspace/config.json")
		egress   = flags.String("egress", "", "how the sandbox gets out, as wire.Egress; empty means that it does not")
		pooled   = flags.Bool("pooled", false, "wait for the file that says whose the sandbox is")
		id       = flags.String("id", "", "id of the command")
		stdout   = flags.Int64("stdout", 0, "how much of its standard output is known")
		stderr   = flags.Int64("stderr", 0, "how much of its standard error is known")
		now      = flags.Bool("now", false, "send what is there, and no more")
		quiet    = flags.Bool("quiet", false, "send how it ended, and nothing of what it wrote")
		process  = flags.Bool("process", false, "run it as long as the sandbox does, and keep the latest of its output")
		port     = flags.Int("port", 0, "port of 127.0.0.1 to wait for")
		timeout  = flags.Duration("timeout", 2*time.Minute, "how long the command may run")
		cwd      = flags.String("cwd", "/workspace", "directory that the command runs in")
		dir      = flags.String("dir", "/workspace", "directory to unpack in")
		path     = flags.String("path", "/workspace", "file or directory to pack")
		encoded  = flags.Bool("base64", false, "dir and path are in base64")
		shell    = flags.Bool("shell", false, "the command is one line for the image's shell")
		toFile   = flags.Int("descriptor", -1, "where to write the state of a shell")
		pipe     = flags.Uint64("pipe", 0, "the inode that this must be")
		unless   = flags.String("unless", "", "do not pack what has this fingerprint")
		limit    = flags.Int64("limit", 0, "do not pack files of more bytes; 0 packs any")
		end      = flags.Bool("end", false, "end all other processes first")
		data     = flags.Bool("data", false, "report the fingerprint of /data")
		request  = flags.String("request", "", "what to do with one path, as wire.FileRequest")
	)
	if err := flags.Parse(os.Args[2:]); err != nil {
		fatal("%v", err)
	}
	if name == "init" {
		runInit(parseEnds(*ends, time.UnixMicro(*deadline)), *config, *egress, *pooled, *disk)
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
		r = problem(onPath(*dir, *encoded, func(dir string) error { return unpack(dir, os.Stdin) }))
	case "secrets":
		r = problem(storeSecrets(os.Stdin))
	case "tar-out":
		r = problem(onPath(*path, *encoded, func(path string) error { return pack(path, out.Stdout()) }))
	case "save":
		r = runSave(*path, *unless, *limit, *end, out.Stdout())
	case "usage":
		r = problem(sample(out.Stdout()))
	case "file":
		r = problem(runFile(*request, os.Stdin, out.Stdout()))
	default:
		fatal("no command %q", name)
	}
	if *data {
		r.Data = fingerprint(sandbox.StateDir)
	}
	if *data || name == "save" || name == "usage" {
		r.CPUTime, _ = cpuTime() // a kernel that does not count leaves it out
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

// spareThreads makes the runtime keep n idle threads, so that a sandbox whose processes have used
// up the PID limit cannot make the guest fail for want of one.
func spareThreads(n int) {
	ready, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			ready <- struct{}{}
			<-release
			runtime.UnlockOSThread()
			done <- struct{}{}
		}()
		<-ready
	}
	close(release)
	for range n {
		<-done
	}
}
