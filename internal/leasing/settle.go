package leasing

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// settle records a step's outcome if its claim still holds; a late answer changes nothing. It
// returns the step's error.
func (e *Engine) settle(ctx context.Context, t *task, out outcome) error {
	err := e.store.Write(ctx, func(tx *ledger.Tx) error {
		isOurs := false
		err := tx.Update(t.row.ID, func(s *ledger.Sandbox) error {
			if isOurs = s.Claim.Token == t.claim; !isOurs {
				return nil
			}
			return e.settleStep(tx, s, t, out)
		})
		if err != nil || !isOurs || out.err == nil {
			return err
		}
		return e.settleMember(tx, t, out.err)
	})
	if err != nil {
		// The backend has acted and the ledger does not know: the claim runs out and the same
		// idempotent step is taken again.
		e.log.Error("leasing: settling", about(&t.row), "action", t.action, "error", err)
		return err
	}
	if out.err != nil {
		return fmt.Errorf("%s: %s: %w", subject(&t.row), t.action, out.err)
	}
	return nil
}

// settleStep records a step's outcome on its sandbox.
func (e *Engine) settleStep(tx *ledger.Tx, s *ledger.Sandbox, t *task, out outcome) error {
	s.Claim.End()
	if out.attested > 0 {
		if err := tx.Witnesses().Witnessed(s.Instance, out.attested); err != nil {
			return err
		}
	}
	if out.stuck {
		s.Claim.For = string(actSave) // as if its process had died
	}
	if out.sampled {
		if err := tx.Accounting().AddCPU(s, ledger.SpanOf(out.reading.CPUTime)); err != nil {
			return err
		}
	}
	if err := e.followRecord(tx, s, out.ran); err != nil {
		return err
	}
	if out.frozen && s.Phase == sandbox.PhaseAwake {
		s.Standing.StopReason = sandbox.StopLastSave
		if err := e.enterPhase(tx, s, sandbox.PhaseAsleep, tx.Now, sandbox.EventAsleep, map[string]any{"mode": "frozen", "reason": s.Standing.StopReason}); err != nil {
			return err
		}
	}
	settle := e.settleSuccess
	if out.err != nil {
		settle = e.settleFailure
	}
	if err := settle(tx, s, t, out); err != nil {
		return err
	}
	return scheduleNext(tx, s)
}

// scheduleNext plans the next step of a sandbox whose last one succeeded. A claim that stays after a failure tells the
// next try that there was one.
func scheduleNext(tx *ledger.Tx, s *ledger.Sandbox) error {
	if s.Schedule.Attempts > 0 {
		return nil
	}
	held, err := tx.HeldUntil(s.ID)
	s.Claim.Token = ""
	_, s.Schedule.DueAt, _ = decide(s, held, tx.Now)
	return err
}

func (e *Engine) settleSuccess(tx *ledger.Tx, s *ledger.Sandbox, t *task, out outcome) error {
	s.Schedule.Succeed()
	settleSecrets(s, t)
	if t.action != actKill { // gone is not seen
		s.ObservedAt = tx.Now
	}
	switch t.action {
	case actSpawn:
		s.ReadyAt = tx.Now
		if pooled(s) {
			if err := poolSpawned(tx, s); err != nil {
				return err
			}
		}
		if err := settleRestored(tx, s, out.restored); err != nil {
			return err
		}
		if err := declareProcesses(tx, s, out.processes); err != nil {
			return err
		}
		return e.enterPhase(tx, s, sandbox.PhaseAwake, out.runsSince(s, tx.Now), sandbox.EventReady, nil)
	case actSleep:
		if s.SleepMode == sandbox.SleepStop {
			if err := loseProcesses(tx, s, "its sandbox was put to sleep by stopping it"); err != nil {
				return err
			}
		}
		return e.enterPhase(tx, s, sandbox.PhaseAsleep, tx.Now, restEvent(s.SleepMode), map[string]any{"mode": s.SleepMode, "reason": s.Standing.StopReason})
	case actAssign:
		s.ReadyAt = tx.Now
		if s.SleepMode == sandbox.SleepStop && !t.awake {
			s.Meter.Restart()
		}
		if err := settleRestored(tx, s, out.restored); err != nil {
			return err
		}
		if err := declareProcesses(tx, s, out.processes); err != nil {
			return err
		}
		return e.enterPhase(tx, s, sandbox.PhaseAwake, out.runsSince(s, tx.Now), sandbox.EventReady, map[string]any{"from_pool": true})
	case actWake:
		if t.row.Standing.State == sandbox.SandboxStopped {
			s.Meter.Restart()
		}
		if s.Standing.ErrorCode != "" && !isDown(s) { // it has slept since it stopped, or had stopped while it slept
			s.Crash = ledger.Crash{Since: tx.Now}
		}
		return e.enterPhase(tx, s, sandbox.PhaseAwake, tx.Now, sandbox.EventAwake, nil)
	case actSave:
		return settleSaved(tx, s, t, out.saved)
	case actRenew:
		return e.settleRenewed(tx, s, t, out.rest)
	case actThaw, actDeliver:
		return nil
	case actHalt:
		s.Standing.StopReason = sandbox.StopPostMortem
		return endExecs(tx, s)
	default:
		s.Ending.DestroyedAt = tx.Now
		if err := letStateGo(tx, s, sandbox.RoleDone); err != nil { // it never was ready
			return err
		}
		if err := endExecs(tx, s); err != nil {
			return err
		}
		if err := tx.Commands().StopProcesses(s.ID, "its sandbox was destroyed"); err != nil {
			return err
		}
		if err := tx.RemoveHolds(s.ID); err != nil {
			return err
		}
		if err := tx.Findings().ResolveDrift(s.ID, "the sandbox was destroyed"); err != nil {
			return err
		}
		return e.enterPhase(tx, s, sandbox.PhaseGone, out.until(s, tx.Now), sandbox.EventDeleted, nil)
	}
}

// runsSince is when the usage of a sandbox began that is ready now.
func (out *outcome) runsSince(s *ledger.Sandbox, now ledger.Time) ledger.Time {
	if out.since.IsZero() {
		return now
	}
	return min(now, max(ledger.At(out.since), s.LeasedAt))
}

// enterPhase changes what was seen, with its usage period and its event.
func (e *Engine) enterPhase(tx *ledger.Tx, s *ledger.Sandbox, p sandbox.Phase, at ledger.Time, t sandbox.EventType, data any) error {
	s.Phase = p
	if p != sandbox.PhaseAsleep {
		s.Standing.StopReason = ""
	}
	if err := e.count(tx, s, p, at); err != nil {
		return err
	}
	return tx.AppendSandboxEvent(s, t, data)
}

func (e *Engine) settleFailure(tx *ledger.Tx, s *ledger.Sandbox, t *task, out outcome) error {
	cause := out.err
	code := sandbox.CodeOf(cause)
	switch {
	case t.action == actSpawn && !sandbox.IsRetryable(cause):
		// It will never come up: its lease ends, and what is left of it is killed.
		s.Schedule.LastError = cause.Error()
		if pooled(s) {
			if err := poolFailed(tx, s, cause); err != nil {
				return err
			}
		}
		return e.endLease(tx, s, failedToBegin(cause, tx.Now))
	case t.action == actAssign && code != sandbox.NotFound && !sandbox.IsRetryable(cause):
		s.Schedule.LastError = cause.Error()
		return e.endLease(tx, s, failedToBegin(cause, tx.Now))
	case t.action == actHalt && !sandbox.IsRetryable(cause):
		s.Schedule.LastError = cause.Error()
		return bury(tx, s, cannotBeKept)
	case code == sandbox.NotFound && t.action != actSpawn && t.action != actKill && !t.last():
		return e.vanish(tx, s, cause, out.life)
	case t.action == actSave:
		return e.settleUnsaved(tx, s, t, out)
	case t.action == actRenew && !sandbox.IsRetryable(cause):
		// No use waits for limits that will never arrive: the backend continues with those that it has.
		e.log.Warn("leasing: telling a sandbox that it is used", about(s), "error", cause)
		return e.settleRenewed(tx, s, t, nil)
	}
	if t.action == actKill && out.absent { // what is left of it runs no more
		if err := e.count(tx, s, sandbox.PhaseGone, out.until(s, tx.Now)); err != nil {
			return err
		}
	}
	s.Schedule.Fail(cause)
	s.Schedule.DueAt = tx.Now.Add(ledger.SpanOf(backoff(s.Schedule.Attempts)))
	restartFailed(s, tx.Now, code)
	e.log.Warn("leasing: step failed and will be tried again", about(s),
		"action", t.action, "attempt", s.Schedule.Attempts, "error", cause)
	if t.action == actKill && s.Schedule.Attempts == 1 {
		return tx.AppendSandboxEvent(s, sandbox.EventDeleteFailed, map[string]any{"code": code, "error": cause.Error()})
	}
	return nil
}

// endLease records why a lease ends and makes its sandbox due for destruction. The first reason stands.
func (e *Engine) endLease(tx *ledger.Tx, s *ledger.Sandbox, end ending) error {
	if s.Desired == ledger.Gone {
		return nil
	}
	kept, err := keptUntil(tx, s, end)
	if err != nil {
		return err
	}
	s.End(ledger.Ending{At: end.at, By: end.by, Reason: end.reason, KeptUntil: kept}, tx.Now)
	if x := e.backends[s.Backend]; x != nil && end.by != sandbox.EndedByVanished && s.Phase != sandbox.PhasePending {
		s.ObservedAt = x.lastThere(s, tx.Now) // no survey looks at it any more
	}
	if kept != 0 { // what is not kept is gone soon, and says so then
		if err := tx.Commands().StopProcesses(s.ID, "its lease ended by "+string(end.by)); err != nil {
			return err
		}
	}
	return tellEnd(tx, s, end)
}

// vanish records that the sandbox's own backend instance no longer has it, or not all of it, as cause says.
// Usage ends when it was last there. What it may have left behind is still to be removed, which makes it gone.
func (e *Engine) vanish(tx *ledger.Tx, s *ledger.Sandbox, cause error, l life) error {
	end, observed := ending{by: sandbox.EndedByVanished, code: sandbox.ReasonVanished, at: tx.Now, reason: fmt.Sprintf("%s no longer has the sandbox", s.Backend)}, "absent"
	if sandbox.ReasonOf(cause) == sandbox.ReasonPartMissing {
		end.code, end.reason, observed = sandbox.ReasonPartMissing, cause.Error(), "without a part of it"
	}
	_, isNew, err := tx.Findings().SeeDrift(ledger.DriftFinding{
		Kind: sandbox.DriftVanished, SandboxID: s.ID, LeaseID: s.Lease(), EnvironmentID: s.EnvironmentID,
		Instance: s.Instance, Expected: string(s.Phase), Observed: observed,
	})
	if err != nil || !isNew {
		return err
	}
	if err := tx.AppendSandboxEvent(s, sandbox.EventDrift, map[string]any{"kind": sandbox.DriftVanished}); err != nil {
		return err
	}
	if err := vanishedState(tx, s); err != nil {
		return err
	}
	s.ObservedAt = e.backends[s.Backend].lastThere(s, tx.Now)
	if !l.removedAt.IsZero() {
		s.ObservedAt = l.until(s, tx.Now)
	}
	if err := tx.Accounting().EnterState(s, sandbox.PhaseGone, s.ObservedAt, nil); err != nil {
		return err
	}
	return e.endLease(tx, s, end)
}

const timeFormat = "2006-01-02T15:04:05Z07:00"

// asError gives an error of a step its own code, whatever wraps it.
func asError(err error) error {
	var e *sandbox.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	return &sandbox.Error{Code: e.Code, Reason: e.Reason, Fields: e.Fields, Message: err.Error(), Err: err}
}
