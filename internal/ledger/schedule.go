package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
)

// Schedule says when a sandbox's next step is due, and how often it failed.
type Schedule struct {
	DueAt micro.Time
	// Attempts counts consecutive failures of the step. LastError is the text of the last one.
	Attempts  int64
	LastError string
	// WakeAt is when to look again, including claims. The database computes it.
	WakeAt micro.Time `gorm:"->"`
}

// Reset makes the next step due, without failures so far.
func (s *Schedule) Reset(due micro.Time) {
	s.DueAt = due
	s.Succeed()
}

// Restart makes the next step due, and counts its failures from zero. LastError stays.
func (s *Schedule) Restart(due micro.Time) { s.DueAt, s.Attempts = due, 0 }

// Succeed clears the failures of a step.
func (s *Schedule) Succeed() { s.Attempts, s.LastError = 0, "" }

// Fail counts a failure.
func (s *Schedule) Fail(cause error) {
	s.Attempts++
	s.LastError = cause.Error()
}

// Claim is the right of one process to carry out a sandbox's next step.
type Claim struct {
	// Token identifies the claim. It stays after a failed step, so that the next attempt knows of this one.
	Token string     `gorm:"column:claim"`
	For   string     `gorm:"column:claimed_for"`
	Until micro.Time `gorm:"column:claimed_until"`
}

// Holds reports whether the claim is valid at now.
func (c *Claim) Holds(now micro.Time) bool { return c.Until > now }

// End ends the claim. Its token stays until the step succeeds.
func (c *Claim) End() { *c = Claim{Token: c.Token} }

// Pending is what a sandbox's backend has not received yet.
type Pending struct {
	// Secrets is since when the sandbox's secrets are outdated, 0 if they are not.
	Secrets micro.Time `gorm:"column:secrets_owed"`
	// Renewal is since when the backend lacks a use or the limits (driver.Lifecycle.Touch), 0 if it does not.
	// RenewedAt is the time of the last update.
	Renewal   micro.Time `gorm:"column:renewal_owed"`
	RenewedAt micro.Time
}

// NeedSecrets records that the secrets have changed. Two changes at the same time differ.
func (p *Pending) NeedSecrets(now micro.Time) { p.Secrets = max(now, p.Secrets+1) }

// NeedRenewal records a use or limits that the backend does not know.
func (p *Pending) NeedRenewal(now micro.Time) { p.Renewal = max(now, p.Renewal+1) }

// GotSecrets records that the backend has the secrets that were pending at the start of a step. Later changes
// stay pending.
func (p *Pending) GotSecrets(asOf Pending) {
	if p.Secrets == asOf.Secrets {
		p.Secrets = 0
	}
}

// GotRenewal records when the backend got what was pending at the start of a step.
func (p *Pending) GotRenewal(asOf Pending, at micro.Time) {
	if p.Renewal == asOf.Renewal {
		p.Renewal = 0
	}
	p.RenewedAt = at
}
