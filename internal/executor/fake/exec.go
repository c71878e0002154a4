package fake

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Lacks is the only program that images lack.
const Lacks = "opencode"

// runner runs commands and processes in sandboxes.
type runner struct{ *machine }

// command is a command of a container. The container keeps it until it is stopped.
type command struct {
	stdin []byte
	began time.Time
	timer *time.Timer   // of a sleeping command
	over  chan struct{} // closed at its end
	log   bool          // its output is a log

	left *sandbox.ShellState // what a shell line leaves behind

	once sync.Once
	// The executor's lock guards out and port.
	out  []byte
	port int // that it listens on, 0 for none
	// The following fields are set before over is closed.
	errOut []byte
	result sandbox.ExecResult
	err    error
}

func newCommand(now time.Time) *command { return &command{began: now, over: make(chan struct{})} }

func (c *command) hasEnded() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// end ends a command once.
func (c *command) end(now time.Time, out []byte, code int, err error) {
	c.once.Do(func() {
		if c.timer != nil {
			c.timer.Stop()
		}
		c.out, c.err, c.port = out, err, 0
		c.result = sandbox.ExecResult{
			ExitCode:    code,
			Duration:    sandbox.Duration(now.Sub(c.began)),
			TimedOut:    code == sandbox.ExitTimeout,
			StdoutBytes: int64(len(out)),
			StderrBytes: int64(len(c.errOut)),
			Shell:       c.left,
		}
		close(c.over)
	})
}

// Exec implements driver.Executor.
func (x *runner) Exec(ctx context.Context, h driver.Handle, r sandbox.ExecRequest) (sandbox.ExecResult, error) {
	c := newCommand(x.now())
	if r.Stdin != nil && r.Shell == "" && r.Command[0] == "cat" {
		var err error
		if c.stdin, err = io.ReadAll(r.Stdin); err != nil {
			return sandbox.ExecResult{}, err
		}
	}
	if err := x.beginAs(ctx, OpExec, h, r, c); err != nil {
		return sandbox.ExecResult{}, err
	}
	select {
	case <-c.over:
	case <-ctx.Done():
		if !r.Detach {
			x.end(c, errEnded(r.ID))
		}
		return sandbox.ExecResult{}, sandbox.Errorf(sandbox.UnknownOutcome, "exec: %w", ctx.Err())
	}
	if c.err != nil {
		return sandbox.ExecResult{}, c.err
	}
	res, out := c.result, c.out
	res.CPUTime = x.burnt(h)
	if len(out) > r.OutputLimit && r.Stdout == nil {
		out, res.Truncated = out[:r.OutputLimit], true
	}
	if r.Stderr == nil {
		res.Stderr = c.errOut
	} else if _, err := r.Stderr.Write(c.errOut); err != nil {
		return res, err
	}
	if r.Stdout == nil {
		res.Stdout = out
		return res, nil
	}
	_, err := r.Stdout.Write(out)
	return res, err
}

// burnt returns the CPU time that a sandbox has used.
func (x *runner) burnt(h driver.Handle) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, ok := x.containers[h.SandboxID]; ok {
		return b.cpu
	}
	return 0
}

// end ends a command early.
func (x *runner) end(c *command, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.end(x.now(), c.out, 0, err)
}

// beginAs starts a command. No caller needs to wait for it.
func (x *runner) beginAs(ctx context.Context, op Op, h driver.Handle, r sandbox.ExecRequest, c *command) error {
	b, err := x.running(ctx, op, h)
	if err != nil {
		return err
	}
	defer x.mu.Unlock()
	if r.ID != "" {
		if b.commands[r.ID] != nil {
			return sandbox.Errorf(sandbox.Conflict, "sandbox %s has run command %s", h.SandboxID, r.ID).
				WithReason(sandbox.ReasonOtherSettings)
		}
		b.commands[r.ID] = c
	}
	if c.log {
		if started, err := x.startProcess(b, c, r.Command); started || err != nil {
			return err
		}
	}
	return x.start(r, c)
}

func (x *runner) start(r sandbox.ExecRequest, c *command) error {
	if r.Shell != "" {
		x.line(r, c)
		return nil
	}
	args := r.Command[1:]
	switch r.Command[0] {
	case guest.Path: // a search for programs
		c.end(x.now(), []byte(strings.Join(slices.DeleteFunc(args, func(a string) bool { return a != Lacks }), "")), 0, nil)
	case "echo":
		c.end(x.now(), []byte(strings.Join(args, " ")+"\n"), 0, nil)
	case "cat":
		c.end(x.now(), c.stdin, 0, nil)
	case "whoami":
		c.end(x.now(), []byte(cmp.Or(string(r.As), r.User)+"\n"), 0, nil)
	case "pwd":
		c.end(x.now(), []byte(r.Cwd+"\n"), 0, nil)
	case "printenv":
		value, has := r.Env[args[0]]
		if !has {
			c.end(x.now(), nil, 1, nil)
			break
		}
		c.end(x.now(), []byte(value+"\n"), 0, nil)
	case "exit":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		c.errOut = []byte(strings.Join(args[1:], " "))
		c.end(x.now(), nil, n, nil)
	case "sleep":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return err
		}
		code := 0
		if limit := r.Timeout.D(); d > limit {
			d, code = limit, sandbox.ExitTimeout
		}
		c.timer = time.AfterFunc(d, func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			c.end(x.now(), []byte(strings.Join(args[1:], " ")), code, nil)
		})
	default:
		c.end(x.now(), nil, 127, nil)
	}
	return nil
}

// Follow implements driver.Executor.
func (x *runner) Follow(ctx context.Context, h driver.Handle, r sandbox.Replay) (sandbox.ExecResult, error) {
	b, err := x.running(ctx, OpFollow, h)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	c := b.commands[r.ID]
	x.mu.Unlock()
	if c == nil {
		return sandbox.ExecResult{}, sandbox.Errorf(sandbox.NotFound, "sandbox %s knows no command %s", h.SandboxID, r.ID).
			WithReason(sandbox.ReasonExecNotFound)
	}
	at := r.StdoutOffset
	for first := true; ; first = false {
		x.mu.Lock()
		out, changed, ended := c.out, b.changed, c.hasEnded()
		x.mu.Unlock()
		if first && c.log && r.Begins != nil {
			at = min(at, int64(len(out)))
			if err := r.Begins(at); err != nil {
				return sandbox.ExecResult{}, err
			}
		}
		if n := int64(len(out)); r.Stdout != nil && n > at {
			if _, err := r.Stdout.Write(out[at:]); err != nil {
				return sandbox.ExecResult{}, err
			}
			at = n
		}
		if ended && r.Stderr != nil {
			if _, err := r.Stderr.Write(c.errOut[min(r.StderrOffset, int64(len(c.errOut))):]); err != nil {
				return sandbox.ExecResult{}, err
			}
		}
		switch {
		case r.Now:
			return sandbox.ExecResult{}, nil
		case ended:
			return c.result, c.err
		}
		select {
		case <-changed:
		case <-c.over:
		case <-ctx.Done():
			return sandbox.ExecResult{}, sandbox.Errorf(sandbox.UnknownOutcome, "follow: %w", ctx.Err())
		}
	}
}

// EndExec implements driver.Executor.
func (x *runner) EndExec(ctx context.Context, h driver.Handle, id, _ string) error {
	b, err := x.running(ctx, OpEndExec, h)
	if err != nil {
		return err
	}
	defer x.mu.Unlock()
	if c := b.commands[id]; c != nil {
		c.end(x.now(), c.out, 0, errEnded(id))
	}
	return nil
}

func errEnded(id string) error {
	return sandbox.Errorf(sandbox.Failed, "command %s was ended before it could report how", id).
		WithReason(sandbox.ReasonExecFailed)
}

// tell wakes callers that wait for a change in a container.
func (b *container) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// forget ends all commands of a stopped or removed container.
func (b *container) forget(now time.Time) {
	for id, c := range b.commands {
		c.end(now, nil, 0, sandbox.Errorf(sandbox.UnknownOutcome, "command %s: the sandbox ended meanwhile", id).
			WithReason(sandbox.ReasonExecFailed))
	}
	clear(b.commands)
	b.tell()
}

// awake returns an error unless a sandbox runs.
func (x *machine) awake(ctx context.Context, op Op, h driver.Handle) error {
	_, err := x.running(ctx, op, h)
	if err == nil {
		x.mu.Unlock()
	}
	return err
}

// running returns a running sandbox. Without an error, it has locked mu.
func (x *machine) running(ctx context.Context, op Op, h driver.Handle) (*container, error) {
	if err := x.enterBox(ctx, op, h); err != nil {
		return nil, err
	}
	b, ok := x.containers[h.SandboxID]
	switch {
	case !ok:
		defer x.mu.Unlock()
		return nil, notFound(h)
	case b.obs.State != sandbox.StateRunning:
		defer x.mu.Unlock()
		return nil, sandbox.Errorf(sandbox.Conflict, "sandbox %s is %s", h.SandboxID, b.obs.State).
			WithReason(sandbox.ReasonInvalidState)
	}
	if op == OpExec || op == OpFollow {
		b.usedAt = x.now()
	}
	return b, nil
}
