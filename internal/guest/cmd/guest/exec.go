//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/cgroup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/disk"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/files"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/lease"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/shellstate"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/threads"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Exit codes as shells and timeout(1) have them.
const (
	exitTimeout     = 124
	exitCannotStart = 126
	exitNotFound    = 127
)

const (
	// drainTime is how long output of processes that the command left behind is still taken.
	drainTime = 200 * time.Millisecond
	// killTime bounds the killing of a command's tree.
	killTime = 5 * time.Second
)

type command struct {
	id      string
	args    []string
	shell   bool // args is one line, for a shell that tells what it leaves behind
	cwd     string
	timeout time.Duration
	// process: it runs as long as the sandbox, and its output is a log.
	process bool
}

// runExec runs a command in its own session and reports how it ended. All that descends from the
// command stays below this process, a subreaper, until the command ends; what then still runs is
// left to process 1.
func runExec(c command, out *wire.Writer) wire.Result {
	if !awaitReady() {
		return wire.Result{Problem: wire.ProblemFailed, Message: "process 1 of the sandbox is not ready"} // as worker/src/container.ts knows it
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return wire.Result{Problem: wire.ProblemFailed, Message: "become subreaper: " + err.Error()}
	}
	// When the sandbox stops, process 1 signals the command itself; this process stays to report its
	// end. When nobody reads any more, it stays to end the command in time.
	// What is kept of its output may meet the limit of files; that is no reason to end.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE, unix.SIGXFSZ)
	threads.Spare(2)
	if c.process {
		return runProcess(c)
	}
	kept, err := openSpool(c.id)
	if errors.Is(err, errTaken) {
		return wire.Result{Problem: wire.ProblemConflict, Message: err.Error()}
	}
	if err != nil { // it is read as it comes, and not twice
		return runCommand(c, out.Stdout(), out.Stderr())
	}
	r := runCommand(c, &tee{kept: kept.stdout, live: out.Stdout()}, &tee{kept: kept.stderr, live: out.Stderr()})
	var dropped [2]bool
	r.StdoutBytes, dropped[0] = kept.stdout.Counts()
	r.StderrBytes, dropped[1] = kept.stderr.Counts()
	r.Dropped = dropped[0] || dropped[1]
	kept.end(r)
	return r
}

// runCommand runs the command to its end. Without a writer for stderr, it writes both to the first.
func runCommand(c command, stdout, stderr io.Writer) wire.Result {
	clocks, err := deadline.ReadClocks()
	if err != nil {
		return failure(err)
	}
	began, oomKills := time.Now(), cgroup.OOMKills()
	diagnostics := stderr
	if diagnostics == nil {
		diagnostics = stdout
	}
	var left shellstate.Collector
	pumps, pid, err := start(c, stdout, stderr, &left)
	if err != nil {
		code := exitCannotStart
		if !errors.Is(err, errDirectory) && (errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist)) {
			code = exitNotFound
		}
		_, _ = fmt.Fprintf(diagnostics, "guest: %v\n", err) // a broken stream shows in the result, written next
		return wire.Result{ExitCode: code, Duration: time.Since(began)}
	}
	var timedOut atomic.Bool
	killed := make(chan struct{})
	timer := time.AfterFunc(c.timeout, func() {
		defer close(killed)
		timedOut.Store(true)
		proc.KillTree(os.Getpid(), time.Now().Add(killTime))
	})
	status := reapUntil(pid)
	if !timer.Stop() {
		<-killed
	}
	if c.process { // what it started ends with it: the next start shall find its ports free
		proc.KillTree(os.Getpid(), time.Now().Add(killTime))
	}
	r := wire.Result{ExitCode: exitCode(status), TimedOut: timedOut.Load(), Duration: time.Since(began)}
	if r.TimedOut {
		r.ExitCode = exitTimeout
	}
	pumps.drain()
	if c.shell && !r.TimedOut {
		r.Shell = left.State(workingDirectory)
	}
	if status.Signal() == unix.SIGKILL && endedForDisk(clocks.SinceBoot) {
		_, _ = io.WriteString(diagnostics, disk.Exceeded) // as above
	}
	r.OOMKilled = cgroup.OOMKills() > oomKills
	return r
}

// start runs the command and returns the pumps of its output, and of what a shell tells.
func start(c command, toStdout, toStderr io.Writer, left *shellstate.Collector) (*pumps, int, error) {
	if len(c.args) == 0 {
		return nil, 0, errors.New("no command was given")
	}
	env, err := lease.Environ()
	if err != nil {
		return nil, 0, err
	}
	cwd, err := workingDirectory(c.cwd)
	if err != nil {
		return nil, 0, err
	}
	p := &pumps{}
	program := c.args[0]
	if c.shell {
		pipe, err := p.add(left)
		if err != nil {
			return nil, 0, err
		}
		defer pipe.Close()
		descriptor, err := shellstate.Inherited(pipe)
		if err != nil {
			return nil, 0, err
		}
		defer unix.Close(descriptor)
		left.Began, program = env, shellstate.Path
		if c.args, err = shellstate.Command(c.args[0], descriptor, pipe); err != nil {
			return nil, 0, err
		}
	}
	if !strings.Contains(program, "/") {
		if program, err = exec.LookPath(program); err != nil {
			return nil, 0, err
		}
	}
	stdout, err := p.add(toStdout)
	if err != nil {
		return nil, 0, err
	}
	defer stdout.Close()
	stderr := stdout // a log is one stream: so what is written to both stays in its order
	if toStderr != nil {
		if stderr, err = p.add(toStderr); err != nil {
			return nil, 0, err
		}
		defer stderr.Close()
	}
	pid, err := startAsVictim(program, c.args, syscall.ProcAttr{
		Dir:   cwd,
		Env:   env,
		Files: []uintptr{0, stdout.Fd(), stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, 0, fmt.Errorf("cannot start %s: %w", program, err)
	}
	return p, pid, nil
}

// errDirectory marks that the command was not even looked for.
var errDirectory = errors.New("working directory")

// workingDirectory resolves symbolic links and refuses what lies outside of the roots.
func workingDirectory(cwd string) (string, error) {
	dir, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errDirectory, err)
	}
	if err := files.CheckPath(dir); err != nil {
		return "", fmt.Errorf("%w: %w", errDirectory, err)
	}
	return dir, nil
}

// reapUntil reaps every child until the given one has ended.
func reapUntil(pid int) unix.WaitStatus {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		if got == pid {
			return status
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			fatal("wait for the command: %v", err)
		}
	}
}

func exitCode(s unix.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// pumps move a command's output. The command gets pipes of its own, so that processes it leaves
// behind do not hold the engine's stream open.
type pumps struct {
	running sync.WaitGroup
	readers []*os.File
}

func (p *pumps) add(to io.Writer) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.readers = append(p.readers, r)
	p.running.Go(func() {
		_, err := io.CopyBuffer(to, struct{ io.Reader }{r}, make([]byte, 32<<10))
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			_, _ = io.Copy(io.Discard, r) // nobody listens; the command must not block on that
		}
	})
	return w, nil
}

// drain takes what the ended command has written.
func (p *pumps) drain() {
	for _, r := range p.readers {
		_ = r.SetReadDeadline(time.Now().Add(drainTime)) // pipes have deadlines
	}
	p.running.Wait()
}
