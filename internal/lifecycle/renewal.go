package lifecycle

import (
	"cmp"
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A backend that keeps time (driver.Capabilities.KeepsTime) puts a sandbox to sleep, and ends it, even if no reconciler
// runs. It sees activity inside the sandbox. The reconciler reports other uses and changed limits to it (renew); until
// then the row has a pending renewal. While a reconciler works on the ledger, it acts before the backend. So a sandbox
// that its backend put to sleep had no reconciler, and stays asleep. Only the ledger ends leases: if a renewal was lost
// and the backend ended the sandbox, the reconciler repeats the renewal, and the sandbox starts again.

// keepsTime reports whether the backend of a sandbox keeps time, or is unknown here.
func (c *Core) keepsTime(s *ledger.Sandbox) bool {
	x := c.backends[s.Backend]
	return x == nil || x.Capabilities().KeepsTime
}

// MarkRenewalPending notes that the backend of a sandbox has not seen a use, or changed limits. It reports false for a
// backend that needs no renewal.
func (c *Core) MarkRenewalPending(tx *ledger.Tx, s *ledger.Sandbox) bool {
	if !c.keepsTime(s) {
		return false
	}
	s.Pending.NeedRenewal(tx.Now)
	if !s.Claim.Holds(tx.Now) && s.Schedule.Attempts == 0 {
		s.Schedule.DueAt = tx.Now
	}
	return true
}

// renewWait is how long a caller waits until a backend has a renewal, which is valid once the ledger has it.
const renewWait = time.Second

// RenewNow sends a pending renewal to a backend, also where no loop runs. It waits for renewWait at most; a renewal
// that takes longer continues, and one that fails is recorded and retried.
func (c *Core) RenewNow(ctx context.Context, leaseID, sandboxID string) {
	ctx, cancel := context.WithTimeout(ctx, renewWait)
	defer cancel()
	if err := c.Work(ctx, sandboxID); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "lifecycle: telling a sandbox that it is used", AboutLease(leaseID, sandboxID), "error", err)
	}
}

// mayRest reports whether the backend of a sandbox that is awake may have put it to rest, or be about to. Once it
// was told of a renewal, it is known.
func (c *Core) mayRest(s *ledger.Sandbox, held, now micro.Time) bool {
	if s.Phase != sandbox.PhaseAwake || held > now || !c.keepsTime(s) {
		return false
	}
	unused := s.TTL
	if s.SleepAfter > 0 {
		unused = min(unused, s.SleepAfter)
	}
	return s.Pending.Renewal != 0 || max(s.LastActivity, s.Pending.RenewedAt, s.Status.Since).Add(unused) <= now
}

// settleRenewed notes that a backend was told what it was owed when the step began.
func (c *Core) settleRenewed(tx *ledger.Tx, s *ledger.Sandbox, t *Task, rest *driver.Observation) error {
	s.Pending.GotRenewal(t.Row.Pending, t.Began)
	if rest == nil || s.Phase != sandbox.PhaseAwake {
		return nil
	}
	return c.followRest(tx, s, *rest)
}

// rests reports whether a sandbox that was awake was put to rest, by its backend itself or because a request had it
// put there and could not record that any more. Pure.
func rests(s *ledger.Sandbox, o driver.Observation) bool {
	return s.Phase == sandbox.PhaseAwake && o.State == sandbox.StateStopped && o.Rest != ""
}

// followRest records that a sandbox was put to rest, which is as it should be.
func (c *Core) followRest(tx *ledger.Tx, s *ledger.Sandbox, o driver.Observation) error {
	if err := c.hooks.Stopped(tx, s, "its sandbox was put to sleep by stopping it"); err != nil {
		return err
	}
	at := min(max(micro.At(o.StoppedAt), s.ReadyAt), tx.Now)
	s.Status.StopReason = cmp.Or(s.Status.StopReason, o.Rest)
	s.Schedule.Succeed()
	return c.EnterPhase(tx, s, sandbox.PhaseAsleep, at, restEvent(sandbox.SleepStop),
		withDisk(map[string]any{"mode": sandbox.SleepStop, "reason": s.Status.StopReason}, o.Disk))
}
