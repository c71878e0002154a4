package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Pooled reports whether the sandbox waits in a warm pool, without a lease.
func (s *Sandbox) Pooled() bool { return s.LeaseID == nil }

// Unassigned reports whether a lease took the sandbox from a warm pool but the sandbox is not assigned yet.
func (s *Sandbox) Unassigned() bool {
	return s.LeaseID != nil && s.Origin.PooledAt != 0 && s.ReadyAt == 0
}

// Subject names the sandbox in errors, by its lease or its pool.
func (s *Sandbox) Subject() string {
	if s.Pooled() {
		return "sandbox " + s.ID + " of the pool of environment " + s.EnvironmentID
	}
	return "lease " + s.Lease()
}

// Deadline is the time after which no code of the sandbox runs.
func (s *Sandbox) Deadline() micro.Time { return s.LeasedAt.Add(s.MaxLifetime) }

// ExpiresAt is the last activity plus the ttl, at most the deadline. A hold counts as activity until held,
// its end.
func (s *Sandbox) ExpiresAt(held, now micro.Time) micro.Time {
	last := s.LastActivity
	if held > now {
		last = now
	}
	return min(last.Add(s.TTL), s.Deadline())
}

// Live reports whether a lease grants access to the sandbox now. held is when the sandbox's last hold ends.
func (s *Sandbox) Live(held, now micro.Time) bool {
	return s.Desired == Present && s.ExpiresAt(held, now) > now
}

// Kept reports whether the sandbox failed and is kept for a post-mortem.
func (s *Sandbox) Kept() bool { return s.Ending.KeptUntil != 0 && s.Phase != sandbox.PhaseGone }

// Halted reports whether the sandbox is kept and known to be stopped.
func (s *Sandbox) Halted() bool { return s.Kept() && s.Status.StopReason == sandbox.StopPostMortem }

// Down reports whether the sandbox should run but does not.
func (s *Sandbox) Down() bool {
	return s.Phase == sandbox.PhaseAsleep && s.Status.StopReason == sandbox.StopCrashed && s.Crash.Since != 0
}
