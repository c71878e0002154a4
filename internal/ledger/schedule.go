package ledger

// Schedule says when a sandbox's next step is due, and how often it failed.
type Schedule struct {
	DueAt Time
	// Attempts counts the failures of the step in a row. LastError is the text of the last one.
	Attempts  int64
	LastError string
	// WakeAt is when to look again, claims included. The database computes it.
	WakeAt Time `gorm:"->"`
}

// Reset makes the next step due. It has not failed yet.
func (s *Schedule) Reset(due Time) {
	s.DueAt = due
	s.Succeed()
}

// Restart makes the next step due, and counts its failures from zero. The text of the last one stays to be read.
func (s *Schedule) Restart(due Time) { s.DueAt, s.Attempts = due, 0 }

// Succeed forgets the failures of a step.
func (s *Schedule) Succeed() { s.Attempts, s.LastError = 0, "" }

// Fail counts a failure.
func (s *Schedule) Fail(cause error) {
	s.Attempts++
	s.LastError = cause.Error()
}

// Claim is the right of one process to take a sandbox's next step.
type Claim struct {
	// Token names the claim. It stays after a step that failed: the next try then knows of this one.
	Token string `gorm:"column:claim"`
	For   string `gorm:"column:claimed_for"`
	Until Time   `gorm:"column:claimed_until"`
}

// Holds reports whether the claim holds at a moment.
func (c *Claim) Holds(now Time) bool { return c.Until > now }

// End ends the claim. Its token stays until the step succeeded.
func (c *Claim) End() { *c = Claim{Token: c.Token} }

// Pending is what a sandbox's backend has yet to get.
type Pending struct {
	// Secrets is since when the environment's secrets differ from those that the sandbox has, 0 when they do not.
	Secrets Time `gorm:"column:secrets_owed"`
	// Renewal is since when the backend does not know of a use or of the limits (driver.Lifecycle.Renew), 0 when it does.
	// RenewedAt is when it was told last.
	Renewal   Time `gorm:"column:renewal_owed"`
	RenewedAt Time
}

// NeedSecrets notes that the secrets have changed. Two changes at one moment differ.
func (p *Pending) NeedSecrets(now Time) { p.Secrets = max(now, p.Secrets+1) }

// NeedRenewal notes a use or limits that the backend does not know.
func (p *Pending) NeedRenewal(now Time) { p.Renewal = max(now, p.Renewal+1) }

// GotSecrets notes that the backend has the secrets that were pending when a step began. Later changes stay pending.
func (p *Pending) GotSecrets(asOf Pending) {
	if p.Secrets == asOf.Secrets {
		p.Secrets = 0
	}
}

// GotRenewal notes that the backend knows, since a moment, what was pending when a step began.
func (p *Pending) GotRenewal(asOf Pending, at Time) {
	if p.Renewal == asOf.Renewal {
		p.Renewal = 0
	}
	p.RenewedAt = at
}
