package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Status is the state of a sandbox for readers, derived from its events.
type Status struct {
	State sandbox.SandboxState `gorm:"column:stands"`
	Since micro.Time           `gorm:"column:changed_at"`
	// StopReason is why the sandbox sleeps, while it does.
	StopReason sandbox.StopReason
	// ErrorCode and ErrorMessage say why the sandbox failed.
	ErrorCode    sandbox.Reason
	ErrorMessage string
}

// Follow applies an event to the state.
func (s *Status) Follow(t sandbox.EventType, now micro.Time) {
	if next := s.State.After(t); next != s.State {
		s.State, s.Since = next, now
	}
}

// Fail records why the sandbox failed.
func (s *Status) Fail(code sandbox.Reason, message string) {
	s.ErrorCode, s.ErrorMessage = code, message
}

// Recover clears why the sandbox failed.
func (s *Status) Recover() { s.Fail("", "") }

// Domain converts the status to the domain type.
func (s *Status) Domain() sandbox.SandboxStatus {
	d := sandbox.SandboxStatus{
		SandboxState:   s.State,
		StateChangedAt: s.Since.Time(),
		ErrorCode:      s.ErrorCode,
		ErrorMessage:   s.ErrorMessage,
	}
	if s.State == sandbox.SandboxAsleep || s.State == sandbox.SandboxStopped {
		d.StopReason = s.StopReason
	}
	return d
}

// Ending is how a lease ended, and the fate of its sandbox.
type Ending struct {
	At     micro.Time      `gorm:"column:ended_at"`
	By     sandbox.EndedBy `gorm:"column:ended_by"`
	Reason string          `gorm:"column:end_reason"`
	// KeptUntil is the end of a failed sandbox's post-mortem, 0 if there is none.
	KeptUntil   micro.Time
	DestroyedAt micro.Time
}

// End ends the sandbox's lease. The next step removes the sandbox and is due now.
func (s *Sandbox) End(e Ending, now micro.Time) {
	s.Desired, s.Ending = Gone, e
	s.Schedule.Restart(now)
}

// Crash counts the crashes of a sandbox.
type Crash struct {
	// Since is when the sandbox became unhealthy, 0 if it is healthy. Count is the number of stops since
	// then.
	Since micro.Time `gorm:"column:down_since"`
	Count int64      `gorm:"column:crashes"`
}

// Add counts one more stop. The first stop after a healthy time starts a new count.
func (c *Crash) Add(wasWell bool, now micro.Time) {
	if c.Since == 0 || wasWell {
		*c = Crash{Since: now}
	}
	c.Count++
}
