package fake

import (
	"context"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The programs that a container can run as processes, besides its commands:
//
//	say <duration> <words>          writes the words as a line, runs for the duration, and exits with 0
//	crash <duration> <code> <words> does the same, and exits with the code
//	listen <port> <duration>        listens on the port after the duration, until it is ended, and serves HTTP

// RunProcess implements driver.ProcessRunner.
func (x *runner) RunProcess(ctx context.Context, h driver.Handle, p driver.ProcessRun) (sandbox.ExecResult, error) {
	c := newCommand(x.now())
	c.log = true
	r := sandbox.ExecRequest{ID: p.ID, Command: p.Command, Timeout: sandbox.Duration(100 * 365 * 24 * time.Hour)}
	if err := x.beginAs(ctx, OpRunProcess, h, r, c); err != nil {
		return sandbox.ExecResult{}, err
	}
	select {
	case <-c.over:
		return c.result, c.err
	case <-ctx.Done():
		return sandbox.ExecResult{}, sandbox.Errorf(sandbox.UnknownOutcome, "run process: %w", ctx.Err())
	}
}

// AwaitPort implements driver.ProcessRunner.
func (x *runner) AwaitPort(ctx context.Context, h driver.Handle, port int) error {
	_, err := x.listener(ctx, OpAwaitPort, h, port)
	return err
}

// listener waits until a command listens on a port.
func (x *runner) listener(ctx context.Context, op Op, h driver.Handle, port int) (*command, error) {
	for {
		b, err := x.running(ctx, op, h)
		if err != nil {
			return nil, err
		}
		changed := b.changed
		for _, c := range b.commands {
			if c.port == port {
				x.mu.Unlock()
				return c, nil
			}
		}
		x.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, sandbox.Errorf(sandbox.Timeout, "await port %d: %w", port, ctx.Err())
		}
	}
}

// startProcess starts a program that only processes have, and reports whether it did.
func (x *runner) startProcess(b *container, c *command, command []string) (bool, error) {
	args := command[1:]
	switch {
	case command[0] == "say" && len(args) == 2:
		return true, x.live(b, c, args[0], args[1], 0)
	case command[0] == "crash" && len(args) == 3:
		code, err := strconv.Atoi(args[1])
		if err != nil {
			return true, err
		}
		return true, x.live(b, c, args[0], args[2], code)
	case command[0] == "listen" && len(args) == 2:
		port, err := strconv.Atoi(args[0])
		if err != nil {
			return true, err
		}
		after, err := time.ParseDuration(args[1])
		if err != nil {
			return true, err
		}
		c.timer = time.AfterFunc(after, func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			if !c.hasEnded() {
				c.port = port
				b.tell()
			}
		})
		return true, nil
	default:
		return false, nil
	}
}

// live writes a line and ends the command after a while.
func (x *runner) live(b *container, c *command, duration, line string, code int) error {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	c.out = []byte(line + "\n")
	b.tell()
	c.timer = time.AfterFunc(d, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		c.end(x.now(), c.out, code, nil)
	})
	return nil
}
