package leasing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// use is a hold on a sandbox that is awake: while it lasts, the lease is active.
type use struct {
	engine *Engine
	row    ledger.Sandbox
	holder string
	// ttl is how long it lasts beyond the death of its process.
	ttl ledger.Span
	// changes: it may change /data.
	changes bool
	// unseen: its backend does not see it.
	unseen bool
	once   sync.Once
}

// note records more about a use within the update of the sandbox with which the use begins or ends.
type note func(tx *ledger.Tx, s *ledger.Sandbox, holder string) error

// enter waits until a lease's sandbox is awake, waking it as needed, and holds it.
func (e *Engine) enter(ctx context.Context, r sandbox.LeaseRef) (*use, error) {
	return e.enterFor(ctx, r, claimTTL, nil)
}

// enterFor is enter for a use that lasts for ttl beyond the death of its process. begin may be nil.
func (e *Engine) enterFor(ctx context.Context, r sandbox.LeaseRef, ttl time.Duration, begin note) (*use, error) {
	for {
		u := &use{engine: e, holder: e.ids(sandbox.LedgerIDLength), ttl: ledger.SpanOf(ttl)}
		var ready bool
		err := e.reaching(ctx, func() error {
			return e.store.Write(ctx, func(tx *ledger.Tx) (err error) {
				ready, err = u.hold(tx, r, begin)
				return err
			})
		})
		if err != nil {
			return nil, err
		}
		if ready {
			u.keep()
			return u, nil
		}
		if err := e.toward(ctx, u.row.ID, actWake); err != nil {
			return nil, err
		}
	}
}

// keep has the heartbeat extend the use until drop.
func (u *use) keep() {
	u.engine.mu.Lock()
	defer u.engine.mu.Unlock()
	u.engine.holds[u.holder] = u.ttl
}

// drop leaves the use to the reconciler that takes it over, or to run out.
func (u *use) drop() {
	u.engine.mu.Lock()
	defer u.engine.mu.Unlock()
	delete(u.engine.holds, u.holder)
}

// hold records the use if the sandbox can be used now, and reports whether it can.
func (u *use) hold(tx *ledger.Tx, r sandbox.LeaseRef, begin note) (bool, error) {
	s, held, err := currentOf(tx, r.ID)
	if err != nil {
		return false, err
	}
	if err := checkRef(s, r); err != nil {
		return false, err
	}
	if !live(s, held, tx.Now) {
		return false, errEnded(s, held, tx.Now)
	}
	if err := u.engine.answers(s.Backend, s.Instance); err != nil {
		return false, err
	}
	u.row = *s
	if !usable(s, tx.Now) {
		return false, nil
	}
	if u.engine.mayRest(s, held, tx.Now) {
		return false, tx.UpdateRow(s, func(s *ledger.Sandbox) error {
			u.engine.oweRenewal(tx, s)
			return nil
		})
	}
	if begin != nil {
		if err := tx.UpdateRow(s, func(s *ledger.Sandbox) error { return begin(tx, s, u.holder) }); err != nil {
			return false, err
		}
	}
	return true, tx.AddHold(&ledger.Hold{SandboxID: s.ID, Holder: u.holder, Until: tx.Now.Add(u.ttl)})
}

// toward takes a sandbox one step toward a wanted action, once no other caller works on it. Its caller
// looks again: the step may have been another's, or the lease may have ended meanwhile.
func (e *Engine) toward(ctx context.Context, sandboxID string, want action) error {
	if err := e.awaitTurn(ctx, sandboxID, want); err != nil {
		return err
	}
	t, err := e.claim(ctx, sandboxID, want)
	if err != nil || t == nil {
		return dropClaimed(err)
	}
	if err := e.run(ctx, t); t.action != actSave || ctx.Err() != nil {
		return asError(err)
	}
	return nil // no request fails because a state cannot be saved: the lease says so
}

// awaitTurn waits until a step toward a wanted action could be taken, or is not needed any more. It
// only reads: who waits by writing wakes all who wait, and they wake him.
func (e *Engine) awaitTurn(ctx context.Context, sandboxID string, want action) error {
	for {
		changed := e.store.Changed()
		var (
			s, holder *ledger.Sandbox
			until     ledger.Time
		)
		err := e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
			var held ledger.Time
			if s, held, err = sandboxAndHold(tx, sandboxID); err != nil {
				return err
			}
			until = turn(s, held, tx.Now, want)
			holder, err = holderAwaited(tx, s)
			return err
		})
		if err != nil || until == 0 {
			return err
		}
		if holder != nil {
			err = e.awaitState(ctx, s, holder, changed)
		} else {
			err = e.pause(ctx, changed, until)
		}
		if err != nil {
			return err
		}
	}
}

// turn returns until when to wait before a step toward a wanted action: for the caller that works on the
// sandbox, or for a retry. 0 is not at all. Pure.
func turn(s *ledger.Sandbox, held, now ledger.Time, want action) ledger.Time {
	if !live(s, held, now) || want == actWake && usable(s, now) {
		return 0
	}
	if s.Claim.Holds(now) {
		return s.Claim.Until
	}
	next, _, _ := decide(s, held, now)
	if next != actNone && insteadOf(next, want, s, held, now) == next && s.Schedule.DueAt > now {
		return s.Schedule.DueAt
	}
	return 0
}

// leave ends a use. A successful one counts as activity at its end. It is safe to call twice.
// end may be nil.
func (u *use) leave(ctx context.Context, succeeded bool, end note) (err error) {
	u.once.Do(func() {
		e := u.engine
		u.drop()
		owed := false
		err = e.store.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
			owed = false
			if err := tx.RemoveHold(u.row.ID, u.holder); err != nil {
				return err
			}
			return tx.Update(u.row.ID, func(s *ledger.Sandbox) (err error) {
				owed, err = u.end(tx, s, succeeded, end)
				return err
			})
		})
		if err == nil && owed {
			e.renewNow(ctx, u.row.Lease(), u.row.ID)
		}
	})
	return err
}

// end records the end of a use, and reports whether the backend has to be told.
func (u *use) end(tx *ledger.Tx, s *ledger.Sandbox, succeeded bool, end note) (owed bool, err error) {
	if s.Phase == sandbox.PhaseGone { // what is gone changes no more
		return false, nil
	}
	if end != nil {
		if err := end(tx, s, u.holder); err != nil {
			return false, err
		}
	}
	if succeeded {
		s.ObservedAt = tx.Now
	}
	if u.changes {
		s.Snapshot.Change(tx.Now, s.Claim.Holds(tx.Now))
	}
	if succeeded && s.Desired == ledger.Present {
		owed = u.unseen && u.engine.oweRenewal(tx, s)
		return owed, touch(tx, s)
	}
	if s.Schedule.Attempts == 0 && !s.Claim.Holds(tx.Now) {
		s.Schedule.DueAt = min(s.Schedule.DueAt, tx.Now) // without the hold it may be due
	}
	return false, nil
}

// explain looks at a sandbox in which a use failed, and says so when its lease has ended.
func (e *Engine) explain(ctx context.Context, u *use, cause error) error {
	if cause == nil || sandbox.CodeOf(cause) == sandbox.Invalid || sandbox.ReasonOf(cause) == sandbox.ReasonFileNotFound {
		return cause
	}
	ctx = context.WithoutCancel(ctx)
	if err := e.Look(ctx, u.row.ID); err != nil {
		e.log.WarnContext(ctx, "leasing: looking at a sandbox after a failure in it", about(&u.row), "error", err)
		return asError(cause)
	}
	explained := cause
	err := e.store.Read(ctx, func(tx *ledger.Tx) error {
		s, held, err := sandboxAndHold(tx, u.row.ID)
		switch {
		case err != nil:
		case !live(s, held, tx.Now):
			explained = errEnded(s, held, tx.Now)
		case isDown(s):
			explained = fmt.Errorf("lease %s: %w; its sandbox has stopped (%s) and is started again: its files are kept, its processes are not", s.Lease(), cause, s.Standing.ErrorMessage)
		}
		return err
	})
	if err == nil {
		return asError(explained)
	}
	return asError(cause) // also where the ledger cannot be asked: what failed is no better known then
}

// Sleep implements service.Leases.
func (e *Engine) Sleep(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	return e.rest(ctx, r, actSleep, sandbox.PhaseAsleep)
}

// Wake implements service.Leases. It counts as activity: a sandbox that is woken is to be used.
func (e *Engine) Wake(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	u, err := e.enter(ctx, r)
	if err != nil {
		return sandbox.Lease{}, err
	}
	u.unseen = true
	if err := u.leave(ctx, true, nil); err != nil {
		return sandbox.Lease{}, err
	}
	return e.readView(ctx, u.row.ID)
}

// rest brings an unused sandbox into a phase.
func (e *Engine) rest(ctx context.Context, r sandbox.LeaseRef, want action, phase sandbox.Phase) (sandbox.Lease, error) {
	for {
		var id string
		var reached bool
		err := e.store.Read(ctx, func(tx *ledger.Tx) error {
			s, held, err := currentOf(tx, r.ID)
			if err != nil {
				return err
			}
			if err := checkRef(s, r); err != nil {
				return err
			}
			id, reached = s.ID, s.Phase == phase
			switch {
			case !live(s, held, tx.Now):
				return errEnded(s, held, tx.Now)
			case held > tx.Now && !reached:
				return sandbox.Errorf(sandbox.Conflict, "lease %s: a command or stream is running in its sandbox: end it first", r.ID).WithReason(sandbox.ReasonInvalidState)
			}
			return nil
		})
		if err != nil {
			return sandbox.Lease{}, err
		}
		if reached {
			return e.readView(ctx, id)
		}
		if err := e.toward(ctx, id, want); err != nil {
			return sandbox.Lease{}, err
		}
	}
}
