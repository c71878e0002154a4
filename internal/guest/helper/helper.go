// Package helper asks the guests in sandboxes for work. It is what the backends have in common. They differ in how a
// channel reaches the guest.
package helper

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Call is one operation of a guest.
type Call struct {
	Request channel.Request
	// Ends: the command ends with the call when its caller leaves.
	Ends bool
	// Detached: what it runs goes on when its caller leaves, and the sandbox is in use until it has ended.
	Detached bool
	// Quiet: it does not count as use of the sandbox, which may fall asleep.
	Quiet bool
	// Limit is the time after which it has ended, 0 where that is not known.
	Limit          time.Duration
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Begins         func(offset int64) error // as sandbox.Replay has it
}

// Guests works inside of sandboxes that are awake. It implements driver.Runner, driver.ProcessRunner,
// driver.Filer and driver.SecretBearer.
type Guests struct {
	backend sandbox.Backend // begins each error
	run     Run
	// verifies: the guests know channel.OpVerify.
	verifies bool
}

// Run makes one call and returns what the guest reports. It may return before a Read of the input does. When
// ctx ends first, or the connection breaks, it ends the command that the call names. Errors: as driver.Runner's
// Exec; Timeout when ctx ends first.
type Run func(ctx context.Context, h driver.Handle, c Call) (wire.Result, error)

// New returns the guests of a backend's sandboxes.
func New(backend sandbox.Backend, run Run) Guests { return Guests{backend: backend, run: run} }

// WithVerifiers returns guests that run verifiers.
func (g Guests) WithVerifiers() Guests {
	g.verifies = true
	return g
}

// Capture keeps the first bytes of a stream and lets the rest go by.
type Capture struct {
	bytes.Buffer
	// Limit is in bytes.
	Limit     int
	Truncated bool
}

// Write implements io.Writer. It does not fail.
func (c *Capture) Write(p []byte) (int, error) {
	room := max(c.Limit-c.Len(), 0)
	if len(p) > room {
		c.Truncated = true
	}
	_, _ = c.Buffer.Write(p[:min(room, len(p))]) // memory does not fail
	return len(p), nil
}

// newID returns the id of an operation that its caller does not name.
func newID() string { return sandbox.RandomIDs(sandbox.SandboxIDLength) }

// withGroup names the group of a user: an engine would take group 0.
func withGroup(user string) string {
	if user == "" || strings.Contains(user, ":") {
		return user
	}
	return user + ":" + user
}

// resultOf is how a command ended that a guest ran.
func resultOf(res wire.Result) sandbox.ExecResult {
	return sandbox.ExecResult{
		ExitCode: res.ExitCode, Duration: sandbox.Duration(res.Duration), TimedOut: res.TimedOut, OOMKilled: res.OOMKilled,
		StdoutBytes: res.StdoutBytes, StderrBytes: res.StderrBytes, Shell: (*sandbox.ShellState)(res.Shell),
		CPUTime: res.CPUTime,
	}
}

// onCommand makes a call about a command, and an error of the report that it could not do its work.
func (g Guests) onCommand(ctx context.Context, h driver.Handle, command string, c Call) (wire.Result, error) {
	if c.Request.ID == "" {
		c.Request.ID = newID()
	}
	res, err := g.run(ctx, h, c)
	if err != nil {
		return wire.Result{}, err
	}
	code, reason := sandbox.Failed, sandbox.ReasonExecFailed
	switch res.Problem {
	case "":
		return res, nil
	case wire.ProblemNotFound:
		code, reason = sandbox.NotFound, sandbox.ReasonExecNotFound
	case wire.ProblemConflict:
		code, reason = sandbox.Conflict, sandbox.ReasonOtherSettings
	case wire.ProblemBusy:
		code, reason = sandbox.Conflict, sandbox.ReasonVerifierRuns
	case wire.ProblemUnknown:
		code = sandbox.UnknownOutcome
	}
	return wire.Result{}, sandbox.Errorf(code, "%s: sandbox %s: command %s: %s", g.backend, h.SandboxID, command, res.Message).WithReason(reason)
}

// transfer makes a call about files, and an error of the report that it could not do its work.
func (g Guests) transfer(ctx context.Context, h driver.Handle, what string, failed sandbox.Reason, c Call) error {
	c.Request.ID = newID()
	res, err := g.run(ctx, h, c)
	if err != nil {
		return err
	}
	code, reason := sandbox.Failed, failed
	switch res.Problem {
	case "":
		return nil
	case wire.ProblemNotFound:
		code, reason = sandbox.NotFound, sandbox.ReasonFileNotFound
	case wire.ProblemInvalid:
		code = sandbox.Invalid
	case wire.ProblemConflict:
		code = sandbox.Conflict
	case wire.ProblemUnknown:
		code = sandbox.UnknownOutcome
	}
	return sandbox.Errorf(code, "%s: sandbox %s: %s: %s", g.backend, h.SandboxID, what, res.Message).WithReason(reason)
}
