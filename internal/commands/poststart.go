package commands

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Post-start commands are run by the step that makes a sandbox, or gives one of a pool to its lease, as its
// last part: all else is in place then, and no request uses the sandbox before it has ended. Each is a
// command like all others, detached, whose id contains the sandbox's id and its index: however often the
// step is tried, one that has ended is not run again, and one that runs is followed. So a process that
// dies changes nothing but which process follows.

const (
	// toldOutput bounds what an error repeats of what a command wrote, in bytes.
	toldOutput = 1 << 10
	// tellTimeout bounds the reading of it.
	tellTimeout = 10 * time.Second
)

// Initializes implements lifecycle.Initializer.
func (v *Service) Initializes(s *ledger.Sandbox) bool { return !s.Pooled() && len(s.PostStart) > 0 }

// isBeingMade reports whether the commands of a sandbox are those that make it ready.
func isBeingMade(s *ledger.Sandbox) bool {
	return s.Phase == sandbox.PhasePending && s.Desired == ledger.Present
}

// HasBegun implements lifecycle.Initializer: an earlier try began its first command.
func (v *Service) HasBegun(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
	if !v.Initializes(s) {
		return false, nil
	}
	x, err := execs.In(tx).Exec(sandbox.PostStartID(s.ID, 0))
	return x != nil, err
}

// Prepare implements lifecycle.Preparer.
func (v *Service) Prepare(_ *ledger.Tx, s *ledger.Sandbox, b lifecycle.Beginning) (lifecycle.Fill, error) {
	if b.Action != lifecycle.Spawn && b.Action != lifecycle.Assign || !v.Initializes(s) {
		return nil, nil
	}
	return func(ctx context.Context, t *lifecycle.Step) (lifecycle.Settle, error) {
		return nil, v.runPostStart(ctx, t)
	}, nil
}

// runPostStart runs what was not run yet, one after the other, until one fails. Errors: Failed with
// ReasonPostStartFailed, which names the command and repeats the end of what it wrote to stderr;
// Unavailable when the service closes first, or another caller makes the sandbox by now.
func (v *Service) runPostStart(ctx context.Context, t *lifecycle.Step) error {
	for n := range t.Row.PostStart {
		c, err := v.beginPostStart(ctx, t, n)
		if err != nil {
			return err
		}
		if c.row.State == sandbox.ExecRunning {
			c.use.StartHeartbeat()
			wanted, stop := v.Core.WhileWanted(v.Core.Life(), t.Row.ID, nil)
			c.run(wanted, true)
			stop()
		}
		x, err := v.readExecRow(ctx, sandbox.ExecRef{LeaseID: t.Row.Lease(), ID: c.row.ID})
		if err != nil {
			return err
		}
		if err := v.postStartProblem(ctx, x, n); err != nil {
			return err
		}
	}
	return nil
}

// beginPostStart records the nth command as running and followed by this process, unless it has ended. It
// takes it over where it runs: the process that makes the sandbox follows its commands.
func (v *Service) beginPostStart(ctx context.Context, t *lifecycle.Step, n int) (*command, error) {
	req, err := t.Row.PostStart[n].Request(t.Row.ID, n).Normalize()
	if err != nil {
		return nil, err
	}
	c := &command{commands: v, req: req, rec: output.NewRecording(req, v.Outputs.KeepsMore()), making: true,
		use: v.Core.NewUse(useTTL)}
	c.use.Row, c.use.Changes = t.Row, true
	err = v.Store.Write(ctx, func(tx *ledger.Tx) error {
		c.row = newExec(t.Row.Lease(), req)
		c.row.Named = false // the id is ours
		s, err := lifecycle.MustSandbox(tx, t.Row.ID)
		switch {
		case err != nil:
			return err
		case s.Claim.Token != t.Claim:
			return sandbox.Errorf(sandbox.Unavailable, "sandbox %s: another process has taken over its creation", s.ID)
		case s.Desired == ledger.Gone:
			return sandbox.Errorf(sandbox.Failed, "sandbox %s: its lease ended before post_start[%d] was run", s.ID, n)
		}
		known, err := execs.In(tx).Exec(req.ID)
		switch {
		case err != nil:
			return err
		case known == nil:
			return c.first(tx, s)
		case known.State != sandbox.ExecRunning:
			c.row = *known
			return nil
		default:
			c.row = *known
			return c.takeFrom(tx, known.Holder)
		}
	})
	return c, err
}

// first records a command that was never begun, with its use.
func (c *command) first(tx *ledger.Tx, s *ledger.Sandbox) error {
	c.row.Holder = c.use.Holder
	if err := tx.UpdateRow(s, func(s *ledger.Sandbox) error { return record(tx, s, &c.row) }); err != nil {
		return err
	}
	return c.use.Record(tx)
}

// postStartProblem says what is wrong with how a post-start command ended, nil if nothing is.
func (v *Service) postStartProblem(ctx context.Context, x *execs.Exec, n int) error {
	how := ""
	switch {
	case x.State == sandbox.ExecRunning:
		return sandbox.Errorf(sandbox.Unavailable, "the lease service is closing while post_start[%d] runs", n)
	case x.State != sandbox.ExecFinished:
		how = fmt.Sprintf("%s: %s", x.State, x.Error)
	case bool(x.TimedOut):
		how = fmt.Sprintf("ran out of its timeout of %s", x.Timeout.Duration())
	case x.ExitCode != 0 && bool(x.OOMKilled):
		how = fmt.Sprintf("ran out of memory (exit code %d)", x.ExitCode)
	case x.ExitCode != 0:
		how = fmt.Sprintf("ended with exit code %d", x.ExitCode)
	default:
		return nil
	}
	return sandbox.Errorf(sandbox.Failed,
		"post_start[%d] %q %s; %s: to read all of its output, run \"sandbox command logs %s %s\", which needs a reconciler "+
			"on this ledger; then fix post_start or the image",
		n, x.Command, how, v.lastWords(ctx, x), x.LeaseID, x.ID).WithReason(sandbox.ReasonPostStartFailed)
}

// lastWords repeats the end of what is kept of a command's stderr.
func (v *Service) lastWords(ctx context.Context, x *execs.Exec) string {
	if x.Stderr.Bytes == 0 {
		return "it wrote nothing to stderr"
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	r, err := v.Outputs.Open(ctx, x, sandbox.Stderr, max(x.Stderr.Kept-toldOutput, 0))
	if err != nil {
		return "its stderr cannot be read: " + err.Error()
	}
	text, err := io.ReadAll(io.LimitReader(r, toldOutput))
	_ = r.Close() // only read
	if err != nil {
		return "its stderr cannot be read: " + err.Error()
	}
	return fmt.Sprintf("its stderr ends with %q", strings.TrimSpace(strings.ToValidUTF8(string(text), "")))
}
