package lifecycle

import (
	"context"
	"fmt"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/witnesses"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// settle records a step's outcome if its claim still holds. A late answer changes nothing. It returns the step's error.
func (c *Core) settle(ctx context.Context, t *Task, out outcome) error {
	err := c.store.Write(ctx, func(tx *ledger.Tx) error {
		isOurs := false
		err := tx.Update(t.Row.ID, func(s *ledger.Sandbox) error {
			if isOurs = s.Claim.Token == t.Claim; !isOurs {
				return nil
			}
			return c.settleStep(tx, s, t, out)
		})
		if err != nil || !isOurs || out.err == nil {
			return err
		}
		return c.hooks.StepFailed(tx, &t.Step, out.err)
	})
	if err != nil {
		// The backend has acted and the ledger does not know. The claim expires, and the same idempotent step is repeated.
		c.log.Error("lifecycle: settling", About(&t.Row), "action", t.Action, "error", err)
		return err
	}
	if out.err != nil {
		return fmt.Errorf("%s: %s: %w", t.Row.Subject(), t.Action, out.err)
	}
	return nil
}

// settleStep records a step's outcome on its sandbox.
func (c *Core) settleStep(tx *ledger.Tx, s *ledger.Sandbox, t *Task, out outcome) error {
	s.Claim.End()
	if out.attested > 0 {
		if err := witnesses.In(tx).Witnessed(s.Instance, out.attested); err != nil {
			return err
		}
	}
	if out.stuck {
		s.Claim.For = string(Save) // as if its process had died
	}
	if err := AddSample(tx, s, &t.Step, out.Used); err != nil {
		return err
	}
	if out.started {
		s.Meter.Restart()
		if t.Action != Assign && t.Row.Status.State != sandbox.SandboxStopped { // it was expected to be paused
			if err := c.restartedUnseen(tx, s); err != nil {
				return err
			}
		}
	}
	if err := c.followHistory(tx, s, out.ran); err != nil {
		return err
	}
	if out.frozen {
		s.Status.StopReason = sandbox.StopLastSave
		if s.Phase == sandbox.PhaseAwake {
			if err := c.EnterPhase(tx, s, sandbox.PhaseAsleep, tx.Now, sandbox.EventAsleep,
				map[string]any{"mode": "frozen", "reason": s.Status.StopReason}); err != nil {
				return err
			}
		}
	}
	settle := c.settleSuccess
	if out.err != nil {
		settle = c.settleFailure
	}
	if err := settle(tx, s, t, out); err != nil {
		return err
	}
	return c.ScheduleNext(tx, s)
}

// AddSample adds what a sandbox had used when a step read it. While the backend carried the step out, a resync may have
// recorded a later reading.
func AddSample(tx *ledger.Tx, s *ledger.Sandbox, t *Step, u Used) error {
	if !u.sampled {
		return nil
	}
	r := readingOf(s, driver.Reading{Usage: u.reading}, nil)
	r.mark = t.Row.Meter.CPUMark
	late, err := isLate(tx, s, r)
	if err == nil && !late {
		err = accounting.In(tx).AddCPU(s, r.CPU, tx.Now)
	}
	if err != nil {
		return err
	}
	return accounting.In(tx).AddCompanionCPU(s, u.companions, tx.Now)
}

// ScheduleNext plans the next step of a sandbox whose last step succeeded. After a failure it keeps the claim's token,
// which tells the next try that an attempt was made.
func (c *Core) ScheduleNext(tx *ledger.Tx, s *ledger.Sandbox) error {
	if s.Schedule.Attempts > 0 {
		return nil
	}
	held, err := tx.Holds().Until(s.ID)
	s.Claim.Token = ""
	_, s.Schedule.DueAt, _ = c.hooks.Decide(s, held, tx.Now)
	return err
}

func (c *Core) settleSuccess(tx *ledger.Tx, s *ledger.Sandbox, t *Task, out outcome) error {
	s.Schedule.Succeed()
	for _, settle := range out.settles {
		if err := settle(tx, s); err != nil {
			return err
		}
	}
	if err := c.hooks.Settled(tx, s, &t.Step); err != nil {
		return err
	}
	if t.Action != Kill { // a sandbox that is gone is not seen
		s.ObservedAt = tx.Now
	}
	switch t.Action {
	case Spawn:
		s.ReadyAt = tx.Now
		return c.EnterPhase(tx, s, sandbox.PhaseAwake, out.runsSince(s, tx.Now), sandbox.EventReady, nil)
	case Sleep:
		if s.SleepMode == sandbox.SleepStop {
			if err := c.hooks.Stopped(tx, s, "its sandbox was put to sleep by stopping it"); err != nil {
				return err
			}
		}
		return c.EnterPhase(tx, s, sandbox.PhaseAsleep, tx.Now, restEvent(s.SleepMode),
			withDisk(map[string]any{"mode": s.SleepMode, "reason": s.Status.StopReason}, out.disk))
	case Assign:
		s.ReadyAt = tx.Now
		if t.mayRestart(s) && !c.hooks.Initializes(s) { // otherwise its usage has begun, and is read
			s.Meter.Restart()
		}
		return c.EnterPhase(tx, s, sandbox.PhaseAwake, out.runsSince(s, tx.Now), sandbox.EventReady,
			map[string]any{"from_pool": true})
	case Wake:
		return c.woke(tx, s, t, out)
	case Renew:
		return c.settleRenewed(tx, s, t, out.rest)
	case Halt:
		s.Status.StopReason = sandbox.StopPostMortem
		return nil
	case Kill:
		s.Ending.DestroyedAt = tx.Now
		if err := tx.Holds().RemoveAll(s.ID); err != nil {
			return err
		}
		if err := drift.In(tx).ResolveAll(s.ID, "the sandbox was destroyed"); err != nil {
			return err
		}
		return c.EnterPhase(tx, s, sandbox.PhaseGone, out.until(s, tx.Now), sandbox.EventDeleted, nil)
	default: // other actions do not change the phase
		return nil
	}
}

// runsSince returns when the usage of a sandbox that is ready now began.
func (out *outcome) runsSince(s *ledger.Sandbox, now micro.Time) micro.Time {
	if out.since.IsZero() {
		return now
	}
	return min(now, max(micro.At(out.since), s.LeasedAt))
}

// EnterPhase changes the observed phase, with its usage period and its event.
func (c *Core) EnterPhase(tx *ledger.Tx, s *ledger.Sandbox, p sandbox.Phase, at micro.Time,
	t sandbox.EventType, data any) error {
	s.Phase = p
	if p != sandbox.PhaseAsleep {
		s.Status.StopReason = ""
	}
	if err := c.count(tx, s, p, at); err != nil {
		return err
	}
	return tx.AppendSandboxEvent(s, t, data)
}

func (c *Core) settleFailure(tx *ledger.Tx, s *ledger.Sandbox, t *Task, out outcome) error {
	cause := out.err
	code := sandbox.CodeOf(cause)
	switch {
	case !sandbox.IsRetryable(cause) && (t.Action == Spawn || t.Action == Assign && code != sandbox.NotFound):
		// It will never come up. Its lease ends, and its remains are killed.
		s.Schedule.LastError = cause.Error()
		if err := c.hooks.Failed(tx, s, cause); err != nil {
			return err
		}
		return c.End(tx, s, FailedToBegin(cause, tx.Now))
	case t.Action == Halt && !sandbox.IsRetryable(cause):
		s.Schedule.LastError = cause.Error()
		return EndRetention(tx, s, cannotBeKept)
	case code == sandbox.NotFound && t.Action != Spawn && t.Action != Kill && !t.Last():
		return c.vanish(tx, s, cause, out.runtimeHistory)
	case out.failed != nil:
		return out.failed(tx, s)
	case t.Action == Renew && !sandbox.IsRetryable(cause):
		// No use waits for limits that will never arrive: the backend continues with those that it has.
		c.log.Warn("lifecycle: reporting a use to the sandbox", About(s), "error", cause)
		return c.settleRenewed(tx, s, t, nil)
	}
	if s.Desired == ledger.Gone && !t.Last() && !out.stuck {
		// The lease has ended meanwhile, and its kill does not wait for a retry of the failed step.
		s.Schedule.Reset(tx.Now)
		c.log.Info("lifecycle: step failed, and its lease has ended", About(s), "action", t.Action, "error", cause)
		return nil
	}
	if t.Action == Kill && out.absent { // its remains no longer run
		if err := c.count(tx, s, sandbox.PhaseGone, out.until(s, tx.Now)); err != nil {
			return err
		}
	}
	s.Schedule.Fail(cause)
	s.Schedule.DueAt = tx.Now.Add(micro.SpanOf(Backoff(s.Schedule.Attempts)))
	restartFailed(s, tx.Now, code)
	c.log.Warn("lifecycle: step failed and will be tried again", About(s),
		"action", t.Action, "attempt", s.Schedule.Attempts, "error", cause)
	if t.Action == Kill && s.Schedule.Attempts == 1 {
		return tx.AppendSandboxEvent(s, sandbox.EventDeleteFailed, map[string]any{"code": code, "error": cause.Error()})
	}
	return nil
}

// End records why a lease ends and makes its sandbox due for destruction. The first reason stands.
func (c *Core) End(tx *ledger.Tx, s *ledger.Sandbox, end Ending) error {
	if s.Desired == ledger.Gone {
		return nil
	}
	kept, err := keptUntil(tx, s, end)
	if err != nil {
		return err
	}
	s.End(ledger.Ending{At: end.At, By: end.By, Reason: end.Reason, KeptUntil: kept}, tx.Now)
	if x := c.backends[s.Backend]; x != nil && end.By != sandbox.EndedByVanished &&
		(s.Phase != sandbox.PhasePending || c.hooks.runsEarly(s)) {
		s.ObservedAt = x.lastThere(s, tx.Now) // no resync looks at it any more
	}
	if err := c.hooks.Ended(tx, s, end); err != nil {
		return err
	}
	return emitEnd(tx, s, end)
}

// vanish records that the sandbox's own backend instance no longer has the sandbox, or lacks a part of it, as cause
// says. Usage ends when the sandbox was last there. Its remains must still be removed before it is gone.
func (c *Core) vanish(tx *ledger.Tx, s *ledger.Sandbox, cause error, l runtimeHistory) error {
	end, observed := Ending{
		By:     sandbox.EndedByVanished,
		Code:   sandbox.ReasonVanished,
		At:     tx.Now,
		Reason: fmt.Sprintf("%s no longer has the sandbox", s.Backend),
	}, "absent"
	if sandbox.ReasonOf(cause) == sandbox.ReasonPartMissing {
		end.Code, end.Reason, observed = sandbox.ReasonPartMissing, cause.Error(), "without a part of it"
	}
	_, isNew, err := drift.In(tx).See(drift.Finding{
		Kind: sandbox.DriftVanished, SandboxID: s.ID, LeaseID: s.Lease(), EnvironmentID: s.EnvironmentID,
		Instance: s.Instance, Expected: string(s.Phase), Observed: observed,
	})
	if err != nil || !isNew {
		return err
	}
	if err := tx.AppendSandboxEvent(s, sandbox.EventDrift, map[string]any{"kind": sandbox.DriftVanished}); err != nil {
		return err
	}
	if err := c.hooks.Vanished(tx, s); err != nil {
		return err
	}
	s.ObservedAt = c.backends[s.Backend].lastThere(s, tx.Now)
	if !l.removedAt.IsZero() {
		s.ObservedAt = l.until(s, tx.Now)
	}
	if err := accounting.In(tx).EnterState(s, sandbox.PhaseGone, s.ObservedAt, nil); err != nil {
		return err
	}
	return c.End(tx, s, end)
}

// withDisk adds what happened to the disk to the data of an event.
func withDisk(data map[string]any, disk *sandbox.KeptDisk) map[string]any {
	if disk != nil {
		data["disk"] = disk
	}
	return data
}

// woke records that a wake has started the sandbox. The loss of the sandbox's disk is an event of its own.
func (c *Core) woke(tx *ledger.Tx, s *ledger.Sandbox, t *Task, out outcome) error {
	if t.Row.Status.State == sandbox.SandboxStopped { // an earlier attempt may have started it
		s.Meter.Restart()
	}
	if s.Status.ErrorCode != "" && !s.Down() { // it was asleep after it stopped, or stopped in its sleep
		s.Crash = ledger.Crash{Since: tx.Now}
	}
	if out.disk != nil && out.disk.Lost != "" {
		if err := tx.AppendSandboxEvent(s, sandbox.EventDiskLost, sandbox.DiskLost{Reason: out.disk.Lost}); err != nil {
			return err
		}
	}
	var data any // without a disk the event has no data
	if out.disk != nil {
		data = map[string]any{"disk": out.disk}
	}
	return c.EnterPhase(tx, s, sandbox.PhaseAwake, tx.Now, sandbox.EventAwake, data)
}
