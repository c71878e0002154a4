// Package helper calls the guests in sandboxes. The backends share it; they differ in how a channel reaches
// the guest.
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
	// Ends means that the command ends with the call if its caller leaves.
	Ends bool
	// Detached means that the work continues if its caller leaves. The sandbox is in use until it ends.
	Detached bool
	// Quiet means that the call does not count as use, so the sandbox may fall asleep.
	Quiet bool
	// Limit is the longest time that the work takes, 0 if unknown.
	Limit          time.Duration
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Begins         func(offset int64) error // see sandbox.Replay
}

// Guests works in awake sandboxes. It implements driver.Runner, driver.ProcessRunner, driver.FileAccess and
// driver.SecretWriter.
type Guests struct {
	backend sandbox.Backend // the prefix of each error
	run     Run
	// verifies means that the guests support channel.OpVerify.
	verifies bool
}

// Run makes one call and returns the guest's result. It may return before a Read of the input does. If ctx
// ends first or the connection breaks, it ends the call's command. Errors: as driver.Runner's Exec; Timeout
// if ctx ends first.
type Run func(ctx context.Context, h driver.Handle, c Call) (wire.Result, error)

// New returns the guests of a backend's sandboxes.
func New(backend sandbox.Backend, run Run) Guests { return Guests{backend: backend, run: run} }

// WithVerifiers returns guests that support verifiers.
func (g Guests) WithVerifiers() Guests {
	g.verifies = true
	return g
}

// Capture keeps the first bytes of a stream and discards the rest.
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
	_, _ = c.Buffer.Write(p[:min(room, len(p))]) // writing to memory never fails
	return len(p), nil
}

// newID returns the id of an operation whose caller sets none.
func newID() string { return sandbox.RandomIDs(sandbox.SandboxIDLength) }

// withGroup adds the default group to a user: an engine would use group 0.
func withGroup(user string) string {
	if user == "" || strings.Contains(user, ":") {
		return user
	}
	return user + ":" + user
}

// resultOf converts the result of a guest's command.
func resultOf(res wire.Result) sandbox.ExecResult {
	return sandbox.ExecResult{
		ExitCode: res.ExitCode, Duration: sandbox.Duration(res.Duration), TimedOut: res.TimedOut, OOMKilled: res.OOMKilled,
		StdoutBytes: res.StdoutBytes, StderrBytes: res.StderrBytes, Shell: (*sandbox.ShellState)(res.Shell),
		CPUTime: res.CPUTime,
	}
}

// onCommand makes a call about a command, and returns an error if the guest could not carry it out.
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
	return wire.Result{}, sandbox.Errorf(code, "%s: sandbox %s: command %s: %s",
		g.backend, h.SandboxID, command, res.Message).WithReason(reason)
}

// transfer makes a call about files, and returns an error if the guest could not carry it out.
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
