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

// The step that creates a sandbox, or assigns one from a pool, runs the post-start commands last. Then everything else
// is in place, and no request uses the sandbox before the step ends. Each is an ordinary detached command. Its id
// contains the sandbox's id and its index. So a repeated step skips a command that has ended, and follows one that
// runs. If a process dies, another one follows.

const (
	// toldOutput limits the output that an error repeats, in bytes.
	toldOutput = 1 << 10
	// tellTimeout limits how long an error waits for that output.
	tellTimeout = 10 * time.Second
)

// Initializes implements lifecycle.Initializer.
func (v *Service) Initializes(s *ledger.Sandbox) bool { return !s.Pooled() && len(s.PostStart) > 0 }

// isBeingMade reports whether a sandbox is not ready yet, so that its commands are post-start commands.
func isBeingMade(s *ledger.Sandbox) bool {
	return s.Phase == sandbox.PhasePending && s.Desired == ledger.Present
}

// HasBegun implements lifecycle.Initializer: it reports whether an earlier try began the first command.
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

// runPostStart runs the commands that have not run yet, one after the other, until one fails. Errors: Failed with
// ReasonPostStartFailed, which names the command and repeats the end of its stderr; Unavailable if the service closes
// first, or if another process now creates the sandbox.
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

// beginPostStart records the nth command as running and held by this process, unless it has ended. If the command runs,
// it takes it over: the process that creates a sandbox follows its commands.
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
		c.row.Named = false // the caller did not choose the id
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

// first records a new command and its use.
func (c *command) first(tx *ledger.Tx, s *ledger.Sandbox) error {
	c.row.Holder = c.use.Holder
	if err := tx.UpdateRow(s, func(s *ledger.Sandbox) error { return record(tx, s, &c.row) }); err != nil {
		return err
	}
	return c.use.Record(tx)
}

// postStartProblem returns why a post-start command was not successful, nil if it was. It leaves out the arguments,
// which may be sensitive: Terraform prints the error.
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
		n, x.Command[0], how, v.lastWords(ctx, x), x.LeaseID, x.ID).WithReason(sandbox.ReasonPostStartFailed)
}

// lastWords returns the end of the kept stderr, for an error.
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
