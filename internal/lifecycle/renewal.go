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

// MarkRenewalPending records that the backend of a sandbox has not seen a use or changed limits. It returns false if
// the backend needs no renewal.
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

// renewWait is how long a caller waits for the backend to accept a renewal. The renewal is valid once the ledger has
// it.
const renewWait = time.Second

// RenewNow sends a pending renewal to a backend, even if no loop runs. It waits at most for renewWait. A renewal that
// takes longer continues; one that fails is recorded and retried.
func (c *Core) RenewNow(ctx context.Context, leaseID, sandboxID string) {
	ctx, cancel := context.WithTimeout(ctx, renewWait)
	defer cancel()
	if err := c.Work(ctx, sandboxID); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "lifecycle: reporting a use to the sandbox", AboutLease(leaseID, sandboxID), "error", err)
	}
}

// mayRest reports whether the backend may have put an awake sandbox to sleep, or be about to. A renewal that the
// backend has received rules this out.
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

// settleRenewed records that the backend has what was pending when the step began.
func (c *Core) settleRenewed(tx *ledger.Tx, s *ledger.Sandbox, t *Task, rest *driver.Observation) error {
	s.Pending.GotRenewal(t.Row.Pending, t.Began)
	if rest == nil || s.Phase != sandbox.PhaseAwake {
		return nil
	}
	return c.followRest(tx, s, *rest)
}

// rests reports whether a sandbox that was awake was put to sleep, either by its backend or by a request that could not
// record it. Pure.
func rests(s *ledger.Sandbox, o driver.Observation) bool {
	return s.Phase == sandbox.PhaseAwake && o.State == sandbox.StateStopped && o.Rest != ""
}

// followRest records that a sandbox was put to sleep as expected.
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
