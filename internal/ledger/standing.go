package ledger

import "github.com/sandbox-lease/terraform-provider-sandbox/sandbox"

// Standing is where a sandbox stands for its readers, as its events tell it.
type Standing struct {
	State sandbox.SandboxState `gorm:"column:stands"`
	Since Time                 `gorm:"column:changed_at"`
	// StopReason is why the sandbox sleeps, as long as it does.
	StopReason sandbox.StopReason
	// ErrorCode and ErrorMessage are why the sandbox failed.
	ErrorCode    sandbox.Reason
	ErrorMessage string
}

// Follow moves to the state that an event leads to.
func (s *Standing) Follow(t sandbox.EventType, now Time) {
	if next := s.State.After(t); next != s.State {
		s.State, s.Since = next, now
	}
}

// Fail notes why the sandbox failed.
func (s *Standing) Fail(code sandbox.Reason, message string) {
	s.ErrorCode, s.ErrorMessage = code, message
}

// Recover forgets why the sandbox failed.
func (s *Standing) Recover() { s.Fail("", "") }

// Domain returns the standing as the domain knows it.
func (s *Standing) Domain() sandbox.Standing {
	d := sandbox.Standing{SandboxState: s.State, StateChangedAt: s.Since.Time(), ErrorCode: s.ErrorCode, ErrorMessage: s.ErrorMessage}
	if s.State == sandbox.SandboxAsleep || s.State == sandbox.SandboxStopped {
		d.StopReason = s.StopReason
	}
	return d
}

// Ending is how a lease ended, and what became of its sandbox after.
type Ending struct {
	At     Time            `gorm:"column:ended_at"`
	By     sandbox.EndedBy `gorm:"column:ended_by"`
	Reason string          `gorm:"column:end_reason"`
	// KeptUntil is until when a sandbox that failed is kept for a post-mortem, 0 when it is not.
	KeptUntil   Time
	DestroyedAt Time
}

// End ends the sandbox's lease. The next step removes the sandbox, and is due now.
func (s *Sandbox) End(e Ending, now Time) {
	s.Desired, s.Ending = Gone, e
	s.Schedule.Restart(now)
}

// Crash counts how often a sandbox stopped by itself.
type Crash struct {
	// Since is since when the sandbox has not been well, 0 when it is. Count counts its stops since then.
	Since Time  `gorm:"column:down_since"`
	Count int64 `gorm:"column:crashes"`
}

// Add counts one more stop. One after the sandbox was well is the first.
func (c *Crash) Add(wasWell bool, now Time) {
	if c.Since == 0 || wasWell {
		*c = Crash{Since: now}
	}
	c.Count++
}
