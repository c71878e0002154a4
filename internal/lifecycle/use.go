package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Use is a hold on a sandbox that is awake: while it lasts, the lease is active.
type Use struct {
	core   *Core
	Row    ledger.Sandbox
	Holder string
	// ttl is how long the use lasts beyond the death of its process.
	ttl micro.Span
	// Changes: the use may change /data.
	Changes bool
	// unseen: the backend does not see the use.
	Unseen bool
	once   sync.Once
}

// Note records more about a use, in the update of the sandbox that begins or ends the use.
type Note func(tx *ledger.Tx, s *ledger.Sandbox, holder string) error

// NewUse returns a use that does not hold anything yet.
func (c *Core) NewUse(ttl time.Duration) *Use {
	return &Use{core: c, Holder: c.ids(sandbox.LedgerIDLength), ttl: micro.SpanOf(ttl)}
}

// BeginUse waits until a lease's sandbox is awake, waking it as needed, and holds it for a use that lasts for ttl
// beyond the death of its process. begin may be nil.
func (c *Core) BeginUse(ctx context.Context, r sandbox.LeaseRef, ttl time.Duration, begin Note) (*Use, error) {
	for {
		u := c.NewUse(ttl)
		var ready bool
		err := c.Reaching(ctx, func() error {
			return c.store.Write(ctx, func(tx *ledger.Tx) (err error) {
				ready, err = u.enter(tx, r, begin)
				return err
			})
		})
		if err != nil {
			return nil, err
		}
		if ready {
			u.StartHeartbeat()
			return u, nil
		}
		if err := c.Drive(ctx, u.Row.ID, Wake); err != nil {
			return nil, err
		}
	}
}

// StartHeartbeat makes the heartbeat extend the use until StopHeartbeat.
func (u *Use) StartHeartbeat() {
	u.core.mu.Lock()
	defer u.core.mu.Unlock()
	u.core.holds[u.Holder] = u.ttl
}

// StopHeartbeat lets the use expire, unless another reconciler takes it over.
func (u *Use) StopHeartbeat() {
	u.core.mu.Lock()
	defer u.core.mu.Unlock()
	delete(u.core.holds, u.Holder)
}

// HoldsFor reports whether this process has a use of a sandbox.
func (c *Core) HoldsFor(holder string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, own := c.holds[holder]
	return own
}

// enter records the use if the sandbox can be used now, and reports whether it can.
func (u *Use) enter(tx *ledger.Tx, r sandbox.LeaseRef, begin Note) (bool, error) {
	s, held, err := CurrentOf(tx, r.ID)
	if err != nil {
		return false, err
	}
	if err := CheckRef(s, r); err != nil {
		return false, err
	}
	if !s.Live(held, tx.Now) {
		return false, ErrEnded(s, held, tx.Now)
	}
	if err := u.core.Answers(s.Backend, s.Instance); err != nil {
		return false, err
	}
	u.Row = *s
	if !u.core.hooks.Usable(s, tx.Now) {
		return false, nil
	}
	if u.core.mayRest(s, held, tx.Now) {
		return false, tx.UpdateRow(s, func(s *ledger.Sandbox) error {
			u.core.MarkRenewalPending(tx, s)
			return nil
		})
	}
	if begin != nil {
		if err := tx.UpdateRow(s, func(s *ledger.Sandbox) error { return begin(tx, s, u.Holder) }); err != nil {
			return false, err
		}
	}
	tx.KeepSchedule()
	return true, u.Record(tx)
}

// Record records the use, inside a transaction.
func (u *Use) Record(tx *ledger.Tx) error {
	return tx.Holds().Add(&ledger.Hold{SandboxID: u.Row.ID, Holder: u.Holder, Until: tx.Now.Add(u.ttl)})
}

// On returns the backend of the sandbox, and the sandbox's handle there.
func (u *Use) On() (driver.Executor, driver.Handle) {
	return u.core.backends[u.Row.Backend].Executor, u.core.handle(&u.Row)
}

// Leave ends a use. A successful one counts as activity at its end, and so does another one without which the lease
// would have ended before. It is safe to call twice. end may be nil.
func (u *Use) Leave(ctx context.Context, succeeded bool, end Note) (err error) {
	u.once.Do(func() {
		u.StopHeartbeat()
		owed := false
		err = u.core.store.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
			owed = false
			before, err := tx.Holds().Until(u.Row.ID)
			if err != nil {
				return err
			}
			if err := tx.Holds().Remove(u.Row.ID, u.Holder); err != nil {
				return err
			}
			return tx.Update(u.Row.ID, func(s *ledger.Sandbox) (err error) {
				due := s.Schedule.DueAt
				owed, err = u.end(tx, s, before, succeeded, end)
				if s.Schedule.DueAt >= due {
					tx.KeepSchedule()
				}
				return err
			})
		})
		if err == nil && owed {
			u.core.RenewNow(ctx, u.Row.Lease(), u.Row.ID)
		}
	})
	return err
}

// end records the end of a use, and reports whether a renewal is pending. held is when the sandbox's last hold would
// have ended.
func (u *Use) end(tx *ledger.Tx, s *ledger.Sandbox, held micro.Time, succeeded bool, end Note) (owed bool, err error) {
	if s.Phase == sandbox.PhaseGone { // a sandbox that is gone does not change any more
		return false, nil
	}
	if end != nil {
		if err := end(tx, s, u.Holder); err != nil {
			return false, err
		}
	}
	if succeeded {
		s.ObservedAt = tx.Now
	}
	if u.Changes {
		s.Snapshot.Change(tx.Now, s.Claim.Holds(tx.Now))
	}
	if succeeded && s.Desired == ledger.Present {
		owed = u.Unseen && u.core.MarkRenewalPending(tx, s)
		return owed, u.core.Touch(tx, s)
	}
	left, err := tx.Holds().Until(s.ID)
	if err != nil {
		return false, err
	}
	if s.Live(held, tx.Now) && !s.Live(left, tx.Now) {
		s.LastActivity = tx.Now // otherwise the lease would have ended during the use
	}
	return false, u.core.reschedule(tx, s)
}

// Explain inspects a sandbox in which a use failed. If its lease has ended or it has stopped, the error says so.
func (u *Use) Explain(ctx context.Context, cause error) error {
	if cause == nil || sandbox.CodeOf(cause) == sandbox.Invalid || sandbox.ReasonOf(cause) == sandbox.ReasonFileNotFound {
		return cause
	}
	ctx = context.WithoutCancel(ctx)
	if err := u.core.Look(ctx, u.Row.ID); err != nil {
		u.core.log.WarnContext(ctx, "lifecycle: looking at a sandbox after a failure in it", About(&u.Row), "error", err)
		return AsError(cause)
	}
	explained := cause
	err := u.core.store.Read(ctx, func(tx *ledger.Tx) error {
		s, held, err := sandboxAndHold(tx, u.Row.ID)
		switch {
		case err != nil:
		case !s.Live(held, tx.Now):
			explained = ErrEnded(s, held, tx.Now)
		case s.Down():
			explained = fmt.Errorf("lease %s: %w; its sandbox has stopped (%s) and is started again: its files are kept, "+
				"its processes are not", s.Lease(), cause, s.Status.ErrorMessage)
		}
		return err
	})
	if err == nil {
		return AsError(explained)
	}
	return AsError(cause) // the ledger could not be read, so the cause is all that is known
}

// Touch records activity.
func (c *Core) Touch(tx *ledger.Tx, s *ledger.Sandbox) error {
	s.LastActivity = tx.Now
	return c.reschedule(tx, s)
}

// reschedule decides when a sandbox is due next, after a use or its activity has changed.
func (c *Core) reschedule(tx *ledger.Tx, s *ledger.Sandbox) error {
	if s.Claim.Holds(tx.Now) || s.Schedule.Attempts > 0 {
		return nil // the step under way, or the retry, decides when it is due
	}
	held, err := tx.Holds().Until(s.ID)
	_, s.Schedule.DueAt, _ = c.hooks.Decide(s, held, tx.Now)
	return err
}
