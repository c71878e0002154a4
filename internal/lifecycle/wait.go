package lifecycle

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Await works on a sandbox, or waits while others do, until done returns true. done may read more in its transaction.
func (c *Core) Await(ctx context.Context, sandboxID string,
	done func(tx *ledger.Tx, s *ledger.Sandbox) (bool, error)) error {
	for {
		changed := c.store.Changed()
		var s, holder *ledger.Sandbox
		var now micro.Time
		var isDone bool
		err := c.store.Read(ctx, func(tx *ledger.Tx) (err error) {
			now = tx.Now
			if s, err = MustSandbox(tx, sandboxID); err != nil {
				return err
			}
			if isDone, err = done(tx, s); err == nil && !isDone {
				holder, err = c.hooks.Awaited(tx, s)
			}
			return err
		})
		if err != nil || isDone {
			return err
		}
		if !s.Claim.Holds(now) && s.Schedule.DueAt <= now {
			if err := c.Work(ctx, sandboxID); err != nil {
				return err
			}
			continue
		}
		if holder != nil {
			if err := c.awaitOther(ctx, s, holder, changed); err != nil {
				return err
			}
			continue
		}
		if !s.Claim.Holds(now) && s.Schedule.Attempts > 0 {
			return sandbox.Errorf(sandbox.Unavailable, "lease %s: %s; it is tried again at %s",
				s.Lease(), s.Schedule.LastError, s.Schedule.DueAt.Time().Format(time.RFC3339))
		}
		if err := c.Pause(ctx, changed, max(s.Claim.Until, s.Schedule.DueAt)); err != nil {
			return err
		}
	}
}

// AwaitGone works and waits until a sandbox is confirmed gone. Errors: as Await, with a code.
func (c *Core) AwaitGone(ctx context.Context, sandboxID string) error {
	return AsError(c.Await(ctx, sandboxID,
		func(_ *ledger.Tx, s *ledger.Sandbox) (bool, error) { return s.Phase == sandbox.PhaseGone, nil }))
}

// awaitTurn waits until the sandbox can take a step of a wanted action, or no longer needs one. It only reads: waiters
// that write would wake each other.
func (c *Core) awaitTurn(ctx context.Context, sandboxID string, want Action) error {
	for {
		changed := c.store.Changed()
		var (
			s, holder *ledger.Sandbox
			until     micro.Time
		)
		err := c.store.Read(ctx, func(tx *ledger.Tx) (err error) {
			var held micro.Time
			if s, held, err = sandboxAndHold(tx, sandboxID); err != nil {
				return err
			}
			until = c.turn(s, held, tx.Now, want)
			holder, err = c.hooks.Awaited(tx, s)
			return err
		})
		if err != nil || until == 0 {
			return err
		}
		if holder != nil {
			err = c.awaitOther(ctx, s, holder, changed)
		} else {
			err = c.Pause(ctx, changed, until)
		}
		if err != nil {
			return err
		}
	}
}

// turn returns until when to wait before a step of a wanted action, for the caller that works on the sandbox or for a
// retry. 0 means no wait. It only reads the row.
func (c *Core) turn(s *ledger.Sandbox, held, now micro.Time, want Action) micro.Time {
	if !s.Live(held, now) || want == Wake && c.hooks.Usable(s, now) {
		return 0
	}
	if s.Claim.Holds(now) {
		return s.Claim.Until
	}
	next, _, _ := c.hooks.Decide(s, held, now)
	if next != None && c.hooks.InsteadOf(next, want, s, held, now) == next && s.Schedule.DueAt > now {
		return s.Schedule.DueAt
	}
	return 0
}

// awaitOther waits for the sandbox whose snapshot another sandbox begins with. It takes the holder's steps if no other
// caller does. Errors: Unavailable once a step of the holder has failed.
func (c *Core) awaitOther(ctx context.Context, s, holder *ledger.Sandbox, changed <-chan struct{}) error {
	now := micro.At(c.now())
	isFree := !holder.Claim.Holds(now)
	switch {
	case isFree && holder.Schedule.DueAt <= now:
		if err := c.Work(ctx, holder.ID); ctx.Err() != nil {
			return err
		}
		return nil // the holder's row has its failure
	case isFree && holder.Schedule.Attempts > 0:
		return sandbox.Errorf(sandbox.Unavailable, "lease %s: it waits for the snapshot of generation %d, in sandbox %s, "+
			"which could not be saved: %s; next try at %s", s.Lease(), holder.Generation, holder.ID,
			holder.Schedule.LastError, holder.Schedule.DueAt.Time().Format(time.RFC3339))
	default:
		return c.Pause(ctx, changed, max(holder.Claim.Until, holder.Schedule.DueAt))
	}
}

// Pause waits for a commit or until a time, at most for ClaimTTL.
func (c *Core) Pause(ctx context.Context, changed <-chan struct{}, until micro.Time) error {
	timer := time.NewTimer(min(max(until.Time().Sub(c.now()), time.Millisecond), ClaimTTL))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-c.life.Done():
		return ErrClosing
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Timeout, "waiting for the sandbox: %w", ctx.Err())
	}
	return nil
}
