package leasing

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// overdue is how long after its timeout a command is waited for that its backend does not tell of.
	overdue = 5 * time.Minute
	// startTries is how often a sandbox is asked for a command whose start was not answered.
	startTries = 5
	// takeOverBatch bounds one look for commands without a follower.
	takeOverBatch = 100
)

// run brings a detached command to its end, on the engine's life, of which ctx is a part: it starts it, or
// only follows what another process has started, and settles it. When the engine closes first, the claim
// runs out and the next engine goes on.
func (c *command) run(ctx context.Context, start bool) {
	e := c.engine
	defer c.rec.discard()
	x, h := e.backends[c.use.row.Backend], e.handle(&c.use.row)
	lost := false
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
			res, err = x.Follow(bounded, h, c.rec.replay(c.row.ID))
		}
		cancel()
		if e.life.Err() != nil {
			c.use.drop()
			return
		}
		if err == nil || !c.goesOn(err, lost && tries <= startTries) {
			c.rec.fill(&res)
			if err := c.end(e.life, res, err, false); err != nil {
				e.log.Error("leasing: settling a command", aboutLease(c.row.LeaseID, c.row.SandboxID), "exec", c.row.ID, "error", err)
			}
			return
		}
		e.log.Warn("leasing: a command is followed again", aboutLease(c.row.LeaseID, c.row.SandboxID), "exec", c.row.ID, "attempt", tries, "error", err)
		select {
		case <-time.After(backoff(tries)):
		case <-ctx.Done():
		}
	}
}

// hasBegun reports whether a command was not started because its sandbox knows its id: ids are issued
// once, so an earlier try has started it.
func hasBegun(err error) bool {
	return sandbox.CodeOf(err) == sandbox.Conflict && sandbox.ReasonOf(err) == sandbox.ReasonOtherSettings
}

// bounded bounds a call that lasts as long as the command: a backend that hangs must not hold it for ever.
func (c *command) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.row.Timeout.Duration().D()+overdue)
}

// goesOn reports whether a command may run still although following it failed, and wakes its sandbox
// where that sleeps. unheard: it is unknown whether it was started.
func (c *command) goesOn(cause error, unheard bool) bool {
	e := c.engine
	asleep := !c.making && sandbox.CodeOf(cause) == sandbox.Conflict && sandbox.ReasonOf(cause) == sandbox.ReasonInvalidState
	unknown := sandbox.CodeOf(cause) == sandbox.NotFound && sandbox.ReasonOf(cause) == sandbox.ReasonExecNotFound
	if !sandbox.IsRetryable(cause) && !asleep && (!unknown || !unheard) {
		return false
	}
	var gone bool
	err := e.store.Read(e.life, func(tx *ledger.Tx) error {
		s, err := mustSandbox(tx, c.row.SandboxID)
		gone = err == nil && s.Desired == ledger.Gone || tx.Now > c.row.StartedAt.Add(c.row.Timeout+ledger.SpanOf(overdue))
		return err
	})
	if err == nil && !gone && asleep {
		err = e.toward(e.life, c.row.SandboxID, actWake)
	}
	if err != nil {
		e.log.Warn("leasing: looking at the sandbox of a command", aboutLease(c.row.LeaseID, c.row.SandboxID), "exec", c.row.ID, "error", err)
	}
	return !gone
}

// TakeOverExecs follows the commands whose process has died, and returns when to look again (the zero
// time: when something has changed).
func (e *Engine) TakeOverExecs(ctx context.Context) (next time.Time, err error) {
	var orphans []ledger.Exec
	err = e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		at, err := tx.Commands().NextOrphan()
		if err != nil || at == ledger.Never {
			return err
		}
		if at > tx.Now {
			next = at.Time()
			return nil
		}
		orphans, err = tx.Commands().OrphanedExecs(e.inReach(), takeOverBatch)
		return err
	})
	for i := range orphans {
		if err == nil {
			err = e.takeOver(ctx, orphans[i].ID)
		}
	}
	return next, err
}

// takeOver claims a command without a follower, and follows it; where its sandbox is to be gone, it
// settles it.
func (e *Engine) takeOver(ctx context.Context, id string) error {
	c := &command{engine: e, use: &use{engine: e, holder: e.ids(sandbox.LedgerIDLength), ttl: ledger.SpanOf(commandTTL), changes: true}}
	follows := false
	err := e.store.Write(ctx, func(tx *ledger.Tx) error {
		follows = false
		x, err := tx.Commands().Exec(id)
		if err != nil || x == nil || x.State != sandbox.ExecRunning || x.HeldUntil > tx.Now {
			return err
		}
		s, err := mustSandbox(tx, x.SandboxID)
		if err != nil {
			return err
		}
		if s.Desired == ledger.Gone {
			return tx.UpdateRow(s, func(s *ledger.Sandbox) error {
				return settleExec(tx, s, x, sandbox.ExecResult{}, errEndedWithSandbox, false)
			})
		}
		if c.recorded, err = recordedOf(tx, x); err != nil {
			return err
		}
		c.row, c.use.row, follows = *x, *s, true
		return c.takeFrom(tx, x.Holder)
	})
	if err != nil || !follows {
		return err
	}
	c.rec = newRecording(sandbox.ExecRequest{Detach: true}, e.state != nil)
	c.tapSession()
	c.use.keep()
	if !e.background(func() { c.run(e.life, false) }) {
		c.use.drop()
	}
	return nil
}

// takeFrom makes a command this process's that another one followed.
func (c *command) takeFrom(tx *ledger.Tx, holder string) error {
	if err := tx.RemoveHold(c.row.SandboxID, holder); err != nil {
		return err
	}
	c.row.Holder, c.row.HeldUntil = c.use.holder, tx.Now.Add(ledger.SpanOf(claimTTL))
	if err := tx.Commands().SaveExec(&c.row); err != nil {
		return err
	}
	return c.hold(tx)
}

// hold records the use that a command is.
func (c *command) hold(tx *ledger.Tx) error {
	return tx.AddHold(&ledger.Hold{SandboxID: c.row.SandboxID, Holder: c.use.holder, Until: tx.Now.Add(c.use.ttl)})
}
