package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// daemon is a program that outlives its parent.
type daemon struct {
	// name is the name in errors.
	name string
	// line is a text that only its command line contains: the system may have reused its process id.
	line             string
	pidFile, logFile string
}

// newDaemon returns a daemon with its process id and log in a state directory.
func newDaemon(state, name, line string) daemon {
	return daemon{
		name:    name,
		line:    line,
		pidFile: filepath.Join(state, name+".pid"),
		logFile: filepath.Join(state, name+".log"),
	}
}

// start runs the program in its own session, and returns once it is ready. After a timeout, the error says why it is
// not ready.
func (d daemon) start(ctx context.Context, cmd *exec.Cmd, ready func(context.Context) error) error {
	log, err := os.OpenFile(d.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the daemon has its own copy
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }() // ends with the daemon or this program
	if err := os.WriteFile(d.pidFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return err
	}
	var unready error
	_, err = Until(ctx, 30*time.Second, d.name+" is ready", func(ctx context.Context) (bool, error) {
		select {
		case err := <-exited:
			text, _ := os.ReadFile(d.logFile) // best effort: it only explains the error
			return false, fmt.Errorf("%s ended (%w); its log ends with\n%s",
				d.name, err, tail(strings.TrimSpace(string(text)), 10))
		default:
			unready = ready(ctx)
			return unready == nil, nil
		}
	})
	if err != nil {
		return errors.Join(err, unready)
	}
	return nil
}

// pid returns the daemon's process id. Errors: fs.ErrNotExist if none was started.
func (d daemon) pid() (int, error) {
	text, err := os.ReadFile(d.pidFile)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", d.pidFile, err)
	}
	return pid, nil
}

// end sends the daemon a signal, if it runs, and waits for its exit.
func (d daemon) end(ctx context.Context, signal syscall.Signal) error {
	pid, err := d.pid()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if !d.runs(ctx, pid) {
		return nil
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("end %s, process %d: %w", d.name, pid, err)
	}
	_, err = Until(ctx, 30*time.Second, d.name+" ends", func(ctx context.Context) (bool, error) {
		return !d.runs(ctx, pid), nil
	})
	return err
}

// alive reports whether the daemon runs.
func (d daemon) alive(ctx context.Context) bool {
	pid, err := d.pid()
	return err == nil && d.runs(ctx, pid)
}

// runs reports whether a process is the daemon.
func (d daemon) runs(ctx context.Context, pid int) bool {
	args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	line := strings.ReplaceAll(string(args), "\x00", " ")
	if _, noProc := os.Stat("/proc/self"); err != nil && noProc != nil { // not Linux
		line, _ = Output(ctx, "ps", "-o", "args=", "-p", strconv.Itoa(pid)) // fails if there is no such process
	}
	return strings.Contains(line, d.line)
}
