package leasing

import (
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A sandbox that stops under us is started again in place: an engine that restarts without live-restore
// stops every container, and a game does not end by that. Its files are there, its processes and their
// memory are not. One that cannot be started, or does not stay up, fails.
const (
	// crashClears is how long it has to run until it counts as well again.
	crashClears = 30 * time.Second
	// crashFails is how long it may not be well. The time in which its backend is away does not count.
	crashFails = 5 * time.Minute
)

// stopped records that a sandbox was found stopped that no request had stopped.
func (e *Engine) stopped(tx *ledger.Tx, s *ledger.Sandbox, o driver.Observation) error {
	at := min(max(ledger.At(o.StoppedAt), s.ReadyAt), tx.Now)
	if s.Phase == sandbox.PhaseAwake { // one that was asleep need not run
		s.Crash.Add(ranLongEnough(s, at), tx.Now)
		s.Schedule.DueAt = restartAt(s, tx.Now)
	}
	if err := loseProcesses(tx, s, "its sandbox stopped"); err != nil {
		return err
	}
	s.Schedule.Succeed()
	s.Standing.StopReason = sandbox.StopCrashed
	s.Standing.Fail(whyStopped(o))
	err := e.enterPhase(tx, s, sandbox.PhaseAsleep, at, sandbox.EventStopped, map[string]any{
		"reason": s.Standing.StopReason, "error_code": s.Standing.ErrorCode, "error_message": s.Standing.ErrorMessage})
	switch {
	case err != nil:
		return err
	case pooled(s): // another one is made as fast
		return e.endLease(tx, s, crashed(s, tx.Now))
	case s.Crash.Count > 1 && s.Crash.Since.Add(ledger.SpanOf(crashFails)) <= tx.Now:
		return e.endLease(tx, s, crashed(s, tx.Now))
	}
	return nil
}

// restartedUnseen records that a sandbox which is awake has stopped and was started again meanwhile: its processes
// are lost, and on some backends its disk; what it is given at a start it is given again.
func restartedUnseen(tx *ledger.Tx, s *ledger.Sandbox) error {
	if err := loseProcesses(tx, s, "its sandbox stopped and was started again"); err != nil {
		return err
	}
	return owe(tx, s)
}

// whyStopped says what ended a sandbox that no request had ended.
func whyStopped(o driver.Observation) (sandbox.Reason, string) {
	if o.OOMKilled {
		return sandbox.ReasonOutOfMemory, "it ran out of memory"
	}
	return sandbox.ReasonCrashed, fmt.Sprintf("its processes ended with exit code %d and nobody had asked for it", o.ExitCode)
}

// ranLongEnough reports whether a sandbox had run for so long at a moment that what was before is over.
func ranLongEnough(s *ledger.Sandbox, at ledger.Time) bool {
	return s.Phase == sandbox.PhaseAwake && at >= s.Standing.Since.Add(ledger.SpanOf(crashClears))
}

// isDown reports whether a sandbox should run and does not.
func isDown(s *ledger.Sandbox) bool {
	return s.Phase == sandbox.PhaseAsleep && s.Standing.StopReason == sandbox.StopCrashed && s.Crash.Since != 0
}

// restartAt is when a sandbox that is down is started again: the first time at once.
func restartAt(s *ledger.Sandbox, stopped ledger.Time) ledger.Time {
	if s.Crash.Count <= 1 {
		return stopped
	}
	return stopped.Add(ledger.SpanOf(backoff(s.Crash.Count - 1)))
}

// restart returns the next step of a sandbox that is down, and its ending once it was tried for long enough.
func restart(s *ledger.Sandbox, now ledger.Time) (action, ledger.Time, *ending) {
	if s.Schedule.Attempts > 0 && s.Crash.Since.Add(ledger.SpanOf(crashFails)) <= now {
		end := crashed(s, now)
		return actNone, now, &end
	}
	if at := restartAt(s, s.Standing.Since); at > now {
		return actNone, at, nil
	}
	return actWake, now, nil
}

func crashed(s *ledger.Sandbox, at ledger.Time) ending {
	return ending{by: sandbox.EndedByCrashed, code: s.Standing.ErrorCode, reason: s.Standing.ErrorMessage, at: at}
}

// restartFailed notes that a sandbox which is down could not be started.
func restartFailed(s *ledger.Sandbox, now ledger.Time, code sandbox.Code) {
	if !isDown(s) {
		return
	}
	if code == sandbox.Unavailable {
		s.Crash.Since = now
	}
	s.Schedule.DueAt = min(s.Schedule.DueAt, max(now, s.Crash.Since.Add(ledger.SpanOf(crashFails))))
}

// recovered forgets that a sandbox had stopped.
func recovered(tx *ledger.Tx, s *ledger.Sandbox) error {
	if s.Crash.Since == 0 && s.Standing.ErrorCode == "" {
		return nil
	}
	s.Crash = ledger.Crash{}
	s.Standing.Recover()
	open, err := tx.Findings().OpenDriftOf([]string{s.ID})
	for _, f := range open[s.ID] {
		if err == nil && f.Field == "state" {
			err = tx.Findings().ResolveFinding(f.ID, "it was started again and runs")
		}
	}
	return err
}
