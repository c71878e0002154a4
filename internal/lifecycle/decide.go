package lifecycle

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// wakeGrace is how long a woken sandbox stays awake for the caller that is about to use it.
const wakeGrace = time.Second

// Decide compares the wanted and the observed state of a sandbox and returns the next action; if there is
// none, it returns when to look again. A non-nil ending must be recorded first, and Decide called again. It
// is a pure function of the row, the end of its last hold, and the time.
func (h *Hooks) Decide(s *ledger.Sandbox, held, now micro.Time) (Action, micro.Time, *Ending) {
	if s.Phase == sandbox.PhaseGone {
		return None, micro.Never, nil
	}
	if s.Desired == ledger.Gone {
		next, due := h.lastStep(s, now)
		return next, due, nil
	}
	if end := TimeUp(s, held, now); end != nil {
		return None, now, end
	}
	if s.Phase == sandbox.PhasePending {
		if s.Unassigned() {
			return Assign, now, nil
		}
		return Spawn, now, nil
	}
	if next, _ := h.plan(s, Interrupted, now); next != None {
		return next, now, nil
	}
	if s.Pending.Renewal != 0 { // before a wake: the backend may have stopped it by outdated limits
		return Renew, now, nil
	}
	if s.Down() {
		return restart(s, now)
	}
	if s.Pooled() {
		if s.Phase == sandbox.PhaseAwake && s.SleepAfter > 0 {
			return Sleep, now, nil
		}
		return None, s.ExpiresAt(held, now), nil
	}
	next, due := h.ofLeased(s, held, now)
	return next, due, nil
}

// ofLeased returns the next step of a leased sandbox that is asleep or awake as wanted.
func (h *Hooks) ofLeased(s *ledger.Sandbox, held, now micro.Time) (Action, micro.Time) {
	due := s.ExpiresAt(held, now)
	if s.Phase == sandbox.PhaseAwake {
		if next, _ := h.plan(s, Ready, now); next != None {
			return next, now
		}
	}
	if s.Phase == sandbox.PhaseAwake && s.SleepAfter > 0 {
		idle := max(s.LastActivity.Add(s.SleepAfter), held, s.Status.Since.Add(micro.SpanOf(wakeGrace)))
		if idle <= now {
			return h.rest(s, now), now
		}
		due = min(due, idle)
	}
	next, at := h.plan(s, Idle, now)
	if next == None {
		return None, min(due, at)
	}
	return next, now
}

// rest returns the step that puts the sandbox to sleep.
func (h *Hooks) rest(s *ledger.Sandbox, now micro.Time) Action {
	if next, _ := h.plan(s, BeforeSleep, now); next != None {
		return next
	}
	return Sleep
}

// lastStep returns the next step of a sandbox that will be removed or, if there is none yet, when to look
// again.
func (h *Hooks) lastStep(s *ledger.Sandbox, now micro.Time) (Action, micro.Time) {
	keep := s.Kept() && s.Ending.KeptUntil > now
	if keep && !s.Halted() {
		return Halt, now
	}
	if next, _ := h.plan(s, BeforeKill, now); next != None {
		return next, now
	}
	if keep {
		return None, s.Ending.KeptUntil
	}
	return Kill, now
}

// InsteadOf returns the step that a request wants if it may precede the one that is due: no caller waits for
// a checkpoint.
func (h *Hooks) InsteadOf(next, want Action, s *ledger.Sandbox, held, now micro.Time) Action {
	isFree := s.Desired == ledger.Present && (next == None || next == Save)
	switch {
	case isFree && want == Wake && s.Phase == sandbox.PhaseAsleep:
		return Wake
	case isFree && want == Sleep && s.Phase == sandbox.PhaseAwake && held <= now:
		return h.rest(s, now)
	}
	return next
}

// Interrupted reports whether an earlier step of a sandbox must finish before its state is known.
func (h *Hooks) Interrupted(s *ledger.Sandbox, now micro.Time) bool {
	next, _ := h.plan(s, Interrupted, now)
	return next != None
}

// Usable reports whether the sandbox can run commands now.
func (h *Hooks) Usable(s *ledger.Sandbox, now micro.Time) bool {
	if s.Claim.Holds(now) && s.Claim.For != string(Upload) {
		return false
	}
	if s.Phase != sandbox.PhaseAwake || h.Interrupted(s, now) {
		return false
	}
	next, _ := h.plan(s, Ready, now)
	return next == None
}
