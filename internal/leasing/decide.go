package leasing

import (
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// action is what the engine does to a sandbox's backend in one step.
type action string

const (
	actNone  action = ""
	actSpawn action = "spawn"
	// actAssign gives a sandbox of a warm pool to its lease, and wakes it.
	actAssign action = "assign"
	actSleep  action = "sleep"
	actWake   action = "wake"
	// actRenew tells a backend that keeps time itself of a use that it has not seen, or of other limits.
	actRenew action = "renew"
	// actDeliver brings secrets that were changed into a sandbox that is awake.
	actDeliver action = "deliver"
	actKill    action = "kill"
	// actHalt ends what may run of a sandbox that failed and is kept.
	actHalt action = "halt"
	// actSave saves /data. It is a checkpoint while the sandbox is wanted, and the last save after.
	actSave action = "save"
	// actThaw thaws a sandbox whose reconciler died during a checkpoint.
	actThaw action = "thaw"
)

// ending is a reason for which a lease ends.
type ending struct {
	by sandbox.EndedBy
	// code is set where the sandbox failed.
	code   sandbox.Reason
	reason string
	at     ledger.Time
}

// wakeGrace is how long a sandbox that was woken is left awake for the caller that woke it, which is about to use it.
const wakeGrace = time.Second

// decide compares what is wanted of a sandbox with what was seen of it, and returns the one next
// action and, when there is none, when to look again. A non-nil ending has to be recorded first, and then
// to be decided anew.
// It is a pure function of the row, the end of its last hold, and the time.
func decide(s *ledger.Sandbox, held, now ledger.Time) (action, ledger.Time, *ending) {
	if s.Phase == sandbox.PhaseGone {
		return actNone, ledger.Never, nil
	}
	if s.Desired == ledger.Gone {
		next, due := lastStep(s, now)
		return next, due, nil
	}
	if end := timeUp(s, held, now); end != nil {
		return actNone, now, end
	}
	if s.Phase == sandbox.PhasePending {
		if unassigned(s) {
			return actAssign, now, nil
		}
		return actSpawn, now, nil
	}
	if interrupted(s, now) {
		return actThaw, now, nil
	}
	if s.Pending.Renewal != 0 { // before a wake: the backend may have ended it by limits that are not its own any more
		return actRenew, now, nil
	}
	if isDown(s) {
		return restart(s, now)
	}
	due := expiresAt(s, held, now)
	if pooled(s) {
		if s.Phase == sandbox.PhaseAwake && s.SleepAfter > 0 {
			return actSleep, now, nil
		}
		return actNone, due, nil
	}
	if s.Phase == sandbox.PhaseAwake && s.Pending.Secrets != 0 {
		return actDeliver, now, nil
	}
	if s.Phase == sandbox.PhaseAwake && s.SleepAfter > 0 {
		idle := max(s.LastActivity.Add(s.SleepAfter), held, s.Standing.Since.Add(ledger.SpanOf(wakeGrace)))
		if idle <= now {
			return restStep(s), now, nil
		}
		due = min(due, idle)
	}
	if at := checkpointAt(s); at > now {
		return actNone, min(due, at), nil
	}
	return actSave, now, nil
}

// lastStep is the next one of a sandbox that is to go, and when to look again when there is none yet.
func lastStep(s *ledger.Sandbox, now ledger.Time) (action, ledger.Time) {
	keep := isKept(s) && s.Ending.KeptUntil > now
	switch {
	case keep && !isHalted(s):
		return actHalt, now
	case mustSave(s):
		return actSave, now
	case keep:
		return actNone, s.Ending.KeptUntil
	}
	return actKill, now
}

// insteadOf returns the step that a request wants, where it may go before the one that is due: no caller
// waits for a checkpoint.
func insteadOf(next, want action, s *ledger.Sandbox, held, now ledger.Time) action {
	isFree := s.Desired == ledger.Present && (next == actNone || next == actSave)
	switch {
	case isFree && want == actWake && s.Phase == sandbox.PhaseAsleep:
		return actWake
	case isFree && want == actSleep && s.Phase == sandbox.PhaseAwake && held <= now:
		return restStep(s)
	}
	return next
}

// expiresAt is min(last activity + ttl, leased_at + max_lifetime), where a hold is activity until
// it ends.
func expiresAt(s *ledger.Sandbox, held, now ledger.Time) ledger.Time {
	last := s.LastActivity
	if held > now {
		last = now
	}
	return min(last.Add(s.TTL), deadline(s))
}

// deadline is the moment past which no code of the sandbox runs.
func deadline(s *ledger.Sandbox) ledger.Time { return s.LeasedAt.Add(s.MaxLifetime) }

// timeUp returns the ending of a lease whose time has passed, nil before.
func timeUp(s *ledger.Sandbox, held, now ledger.Time) *ending {
	at := expiresAt(s, held, now)
	switch {
	case at > now:
		return nil
	case at == deadline(s):
		return &ending{by: sandbox.EndedByMaxLifetime, at: at, reason: fmt.Sprintf("its max_lifetime of %s had passed", s.MaxLifetime.Duration())}
	default:
		return &ending{by: sandbox.EndedByTTL, at: at, reason: fmt.Sprintf("its ttl of %s had passed without activity", s.TTL.Duration())}
	}
}

// live reports whether a lease gives the right to its sandbox now.
func live(s *ledger.Sandbox, held, now ledger.Time) bool {
	return s.Desired == ledger.Present && timeUp(s, held, now) == nil
}
