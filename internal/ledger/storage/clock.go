package storage

import (
	"time"

	"gorm.io/gorm/clause"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
)

// A step of the clock must neither end leases in bulk nor prolong them. Every write first compares the
// progress of the clock with that of the time since boot, which includes suspended time and cannot be set. If
// they differ, the clock was stepped. The same transaction then moves all times that the old clock set for
// live objects by the same amount: the remaining time of a lease, a retry, a claim or a usage period stays
// the same. Time while the host was suspended or off is not a step.
//
// The ledger stores the sum of the steps, so that only one of several processes that see the same step moves
// the rows.
const (
	// clockTolerance is the largest difference that is not a step. A slow answer or an NTP correction may
	// cause it.
	clockTolerance = 2 * time.Second
	// clockSkew is the inverse of the largest drift between two uncorrected clocks: 200 ppm, more than any
	// computer's quartz.
	clockSkew = 5000
	// clockNotedEvery is the interval at which the state is stored for later processes to compare with.
	clockNotedEvery = 10 * time.Second
)

// clock is this process's knowledge of the ledger's clock. Only the writer uses it.
type clock struct {
	bootID string
	boot   func() time.Duration

	known bool
	ahead micro.Span // lead of the clock over the time since boot, at the last check
	steps micro.Span // the ledger's sum of steps then
	noted micro.Time // when that was last stored
}

// clockRow is a row of clocks.
type clockRow struct {
	BootID string `gorm:"primaryKey"`
	Ahead  micro.Span
	Steps  micro.Span
	SeenAt micro.Time
}

func (clockRow) TableName() string { return "clocks" }

// look returns the difference between the ledger's clock and the time since boot.
func (c *clock) look(now micro.Time) micro.Span { return micro.Span(now) - micro.SpanOf(c.boot()) }

// stepped reports whether the clock has been stepped since the last write.
func (c *clock) stepped(now micro.Time) bool {
	return c != nil && c.known && beyond(c.look(now)-c.ahead, clockTolerance)
}

func beyond(d micro.Span, tolerance time.Duration) bool {
	return d > micro.SpanOf(tolerance) || -d > micro.SpanOf(tolerance)
}

// check moves all times if the clock was stepped. It returns the state of the clock after the commit.
func (c *clock) check(tx *Tx) (clock, error) {
	next := *c
	next.ahead = c.look(tx.Now)
	jump := next.ahead - c.ahead
	due := tx.Now-c.noted >= micro.Time(clockNotedEvery.Microseconds()) || tx.Now < c.noted
	if c.known && !beyond(jump, clockTolerance) && !due {
		return next, nil
	}
	var self identity
	if err := tx.db.Take(&self).Error; err != nil {
		return next, Error("reading the ledger's clock", err)
	}
	if c.known {
		jump -= self.ClockSteps - c.steps // steps that another process has handled
	} else {
		var err error
		if jump, err = next.sinceLastProcess(tx, &self); err != nil {
			return next, err
		}
	}
	if beyond(jump, clockTolerance) {
		if err := tx.session.StepClock(jump); err != nil {
			return next, err
		}
		self.ClockSteps += jump
	}
	next.known, next.steps, next.noted = true, self.ClockSteps, tx.Now
	return next, next.note(tx)
}

// sinceLastProcess returns the steps while no process of this boot was running. Across a reboot, only a clock
// that went back is known to be wrong, because it is unknown how long the host was off.
func (c *clock) sinceLastProcess(tx *Tx, self *identity) (micro.Span, error) {
	last, err := First[clockRow](tx, "boot_id = ?", c.bootID)
	if err != nil {
		return 0, err
	}
	if last == nil {
		return min(micro.Span(tx.Now-self.ClockSeenAt), 0), nil
	}
	jump := c.ahead - last.Ahead - (self.ClockSteps - last.Steps)
	elapsed := max(micro.Span(tx.Now-last.SeenAt)-jump, 0)
	if !beyond(jump, clockTolerance+time.Duration(elapsed/clockSkew)*time.Microsecond) {
		jump = 0
	}
	return jump, nil
}

// note stores the state for later processes to compare with.
func (c *clock) note(tx *Tx) error {
	err := tx.db.Model(&identity{}).Where("one = 1").
		Updates(map[string]any{"clock_steps": c.steps, "clock_seen_at": tx.Now}).Error
	if err == nil {
		err = tx.db.Clauses(clause.OnConflict{UpdateAll: true}).
			Create(&clockRow{BootID: c.bootID, Ahead: c.ahead, Steps: c.steps, SeenAt: tx.Now}).Error
	}
	return Error("noting the ledger's clock", err)
}
