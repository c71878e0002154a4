package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Output runs a program and returns its standard output. An error holds the end of both its outputs.
func Output(ctx context.Context, name string, args ...string) (string, error) {
	return Collect(Command(ctx, name, args...))
}

// Command prepares a program. When ctx ends, the program gets a signal to stop and is not killed. It has its own
// process group, so that Ctrl-C reaches it only once: at a second signal, Terraform stops immediately.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// Collect runs a prepared program; see Output.
func Collect(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := tail(strings.TrimSpace(stdout.String()+"\n"+stderr.String()), 40)
		return stdout.String(), &commandError{strings.Join(cmd.Args, " "), said, err}
	}
	return stdout.String(), nil
}

// commandError is the error of a failed program.
type commandError struct {
	command, said string
	err           error
}

func (e *commandError) Error() string { return fmt.Sprintf("%s: %v\n%s", e.command, e.err, e.said) }
func (e *commandError) Unwrap() error { return e.err }

// Script runs a script of this repository. If it fails, its output is the error: scripts say in one line what to do.
func Script(ctx context.Context, name string, args ...string) error {
	_, err := Output(ctx, filepath.Join("scripts", name), args...)
	if failed, ok := errors.AsType[*commandError](err); ok && failed.said != "" {
		return errors.New(failed.said)
	}
	return err
}

// ExitCode returns the exit code of a program, -1 if it did not run to its end.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Until polls ok until it returns true, and returns how long that took. It stops at an error and at the limit.
func Until(ctx context.Context, limit time.Duration, what string,
	ok func(context.Context) (bool, error)) (time.Duration, error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s: not within %s", what, limit))
	defer cancel()
	for {
		yes, err := ok(ctx)
		if err != nil || yes {
			return time.Since(begin), err
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
