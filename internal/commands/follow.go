package commands

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// overdue is how long after a command's timeout the backend may take to report its end.
	overdue = 5 * time.Minute
	// startTries limits how often a sandbox is asked for a command after the answer to its start was lost.
	startTries = 5
	// takeOverBatch bounds the commands without a follower that one pass reads.
	takeOverBatch = 100
)

// run starts a detached command, or follows one that another process has started, and settles it. ctx is part of the
// service's life. If the service closes first, the claim runs out and another process continues.
func (c *command) run(ctx context.Context, start bool) {
	v := c.commands
	defer c.discard()
	x, h := c.use.On()
	lost := false
	ended := ctx.Done()
	for tries := int64(1); ; tries++ {
		var res sandbox.ExecResult
		var err error
		bounded, cancel := c.bounded(ctx)
		begun := !start
		if start {
			res, err = x.Exec(bounded, h, c.request())
			begun = hasBegun(err)
			lost, start = err != nil && !begun, false
		}
		if begun {
			res, err = x.Follow(bounded, h, c.rec.Replay(c.row.ID))
		}
		cancel()
		if v.Core.Life().Err() != nil {
			c.use.StopHeartbeat()
			return
		}
		if err == nil || !c.goesOn(err, lost && tries <= startTries) {
			c.rec.Fill(&res)
			if err := c.end(v.Core.Life(), res, err, false); err != nil {
				v.Log.Error("commands: settling a command", lifecycle.AboutLease(c.row.LeaseID, c.row.SandboxID),
					"exec", c.row.ID, "error", err)
			}
			return
		}
		v.Log.Warn("commands: a command is followed again", lifecycle.AboutLease(c.row.LeaseID, c.row.SandboxID),
			"exec", c.row.ID, "attempt", tries, "error", err)
		select {
		case <-time.After(lifecycle.Backoff(tries)):
		case <-v.Core.Life().Done():
		case <-ended:
			ended = nil // look immediately, but only once: the ledger may be unreachable
		}
	}
}

// goOn runs or follows a detached command in the background. It returns false if the service is closing.
func (c *command) goOn(start bool) bool {
	core := c.commands.Core
	if core.Background(func() { c.run(core.Life(), start) }) {
		return true
	}
	c.use.StopHeartbeat()
	c.discard()
	return false
}

// hasBegun reports whether a command was not started because its sandbox knows its id: ids are issued
// once, so an earlier try has started it.
func hasBegun(err error) bool {
	return sandbox.CodeOf(err) == sandbox.Conflict && sandbox.ReasonOf(err) == sandbox.ReasonOtherSettings
}

// bounded limits a call that lasts as long as the command, because a backend may hang.
func (c *command) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.row.Timeout.Duration().D()+overdue)
}

// goesOn reports whether a command may still run although following it failed. It wakes a sleeping sandbox. unheard
// means that the answer to the start was lost.
func (c *command) goesOn(cause error, unheard bool) bool {
	v := c.commands
	asleep := !c.making && sandbox.CodeOf(cause) == sandbox.Conflict &&
		sandbox.ReasonOf(cause) == sandbox.ReasonInvalidState
	unknown := sandbox.CodeOf(cause) == sandbox.NotFound && sandbox.ReasonOf(cause) == sandbox.ReasonExecNotFound
	if !sandbox.IsRetryable(cause) && !asleep && (!unknown || !unheard) {
		return false
	}
	var gone bool
	err := v.Store.Read(v.Core.Life(), func(tx *ledger.Tx) error {
		s, err := lifecycle.MustSandbox(tx, c.row.SandboxID)
		gone = err == nil && s.Desired == ledger.Gone || tx.Now > c.row.StartedAt.Add(c.row.Timeout+micro.SpanOf(overdue))
		return err
	})
	if err == nil && !gone && asleep {
		err = v.Core.Drive(v.Core.Life(), c.row.SandboxID, lifecycle.Wake)
	}
	if err != nil {
		v.Log.Warn("commands: looking at the sandbox of a command", lifecycle.AboutLease(c.row.LeaseID, c.row.SandboxID),
			"exec", c.row.ID, "error", err)
	}
	return !gone
}

// TakeOver follows commands whose process has died, and ends those that were cancelled. It returns when to look again.
// The zero time means after the next change. A command that it cannot take over does not keep it from the others.
func (v *Service) TakeOver(ctx context.Context) (next time.Time, err error) {
	var orphans, cancelled []execs.Exec
	err = v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		at, err := execs.In(tx).NextOrphan()
		if err != nil || at == micro.Never {
			return err
		}
		if cancelled, err = execs.In(tx).CancelledExecs(v.Core.InReach(), takeOverBatch); err != nil {
			return err
		}
		if at > tx.Now {
			next = at.Time()
			return nil
		}
		orphans, err = execs.In(tx).OrphanedExecs(v.Core.InReach(), takeOverBatch)
		return err
	})
	if err != nil {
		return next, err
	}
	for i := range orphans {
		if ctx.Err() == nil {
			err = errors.Join(err, v.takeOver(ctx, orphans[i].ID))
		}
	}
	for i := range cancelled {
		v.Core.EndRunSoon(runOf(&cancelled[i]))
	}
	return next, err
}

// takeOver claims a command without a follower, and follows it. If its sandbox is being removed, it
// settles it.
func (v *Service) takeOver(ctx context.Context, id string) error {
	c := &command{
		commands: v,
		use:      v.Core.NewUse(useTTL),
	}
	c.use.Changes = true
	follows := false
	err := v.Store.Write(ctx, func(tx *ledger.Tx) error {
		follows = false
		x, err := execs.In(tx).Exec(id)
		if err != nil || x == nil || x.State != sandbox.ExecRunning || x.HeldUntil > tx.Now {
			return err
		}
		s, err := lifecycle.MustSandbox(tx, x.SandboxID)
		if err != nil {
			return err
		}
		if s.Desired == ledger.Gone {
			return tx.UpdateRow(s, func(s *ledger.Sandbox) error {
				return v.settleExec(tx, s, x, sandbox.ExecResult{}, errEndedWithSandbox, false)
			})
		}
		if c.recorded, err = v.Sessions.RecordedOf(tx, x); err != nil {
			return err
		}
		c.row, c.use.Row, follows = *x, *s, true
		return c.takeFrom(tx, x.Holder)
	})
	if err != nil || !follows {
		return err
	}
	c.rec = output.NewRecording(sandbox.ExecRequest{Detach: true}, v.Outputs.KeepsMore())
	c.tapSession()
	c.use.StartHeartbeat()
	_ = c.goOn(false) // if it fails, another process takes over
	return nil
}

// takeFrom makes this process the holder of a command that another one followed.
func (c *command) takeFrom(tx *ledger.Tx, holder string) error {
	if err := tx.Holds().Remove(c.row.SandboxID, holder); err != nil {
		return err
	}
	c.row.Holder, c.row.HeldUntil = c.use.Holder, tx.Now.Add(micro.SpanOf(lifecycle.ClaimTTL))
	if err := execs.In(tx).SaveExec(&c.row); err != nil {
		return err
	}
	return c.use.Record(tx)
}
