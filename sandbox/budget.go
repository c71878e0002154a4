package sandbox

import "time"

// Budget bounds what the sandboxes of one environment may cost in a calendar month, UTC.
type Budget struct {
	// Monthly is gross, at the list prices of the environment's backend. An acquire is refused when
	// what is spent, what living leases may still cost until they expire, and what the new one may
	// cost exceed it. A living lease is never ended for it: leases that are used on and on, and what
	// waits in a warm pool, can exceed it.
	Monthly NanoUSD `json:"monthly_usd" doc:"US dollars that the leases of a calendar month (UTC) may cost at list price; an acquire that could exceed it is refused. On Docker everything is free unless a price book is configured."`
}

// BudgetUse is where an environment stands in its budget of the current month.
type BudgetUse struct {
	Month   string  `json:"month"` // 2006-01, UTC
	Monthly NanoUSD `json:"monthly_usd"`
	// Spent is the gross cost so far.
	Spent NanoUSD `json:"spent_usd"`
	// Reserved is what the living leases cost at most until they expire or the month ends.
	Reserved NanoUSD `json:"reserved_usd"`
}

// Left is what neither is spent nor reserved; it is not negative.
func (u BudgetUse) Left() NanoUSD { return max(u.Monthly-u.Spent-u.Reserved, 0) }

// MonthOf returns the beginning of the calendar month, UTC, in which a moment lies.
func MonthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// ProjectMonth returns what a calendar month will have cost by its end if what was spent since its
// beginning, or since the given moment if that is later, goes on at the same rate. It is an estimate:
// exact to a millionth.
func ProjectMonth(spent NanoUSD, since, now time.Time) NanoUSD {
	month := MonthOf(now)
	if since.Before(month) {
		since = month
	}
	passed, left := now.Sub(since), month.AddDate(0, 1, 0).Sub(now)
	if passed <= 0 {
		return spent
	}
	return spent + NanoUSD(float64(spent)*(float64(left)/float64(passed)))
}

// BudgetThresholds are the parts of a month's budget, in percent, that are told of when they are
// spent.
var BudgetThresholds = [...]int64{80, 100}

// Reached reports whether so many percent of the budget are spent.
func (u BudgetUse) Reached(percent int64) bool {
	part := u.Monthly/100*NanoUSD(percent) + (u.Monthly%100*NanoUSD(percent)+99)/100
	return u.Spent >= part
}

// BudgetReached is the data of EventBudgetReached. It is raised once for an environment, a month, an
// amount of its budget and a threshold: a budget that is changed is another one, whose thresholds
// are told of for themselves.
type BudgetReached struct {
	Month   string  `json:"month"` // 2006-01, UTC
	Percent int64   `json:"percent"`
	Monthly NanoUSD `json:"monthly_usd"`
	Spent   NanoUSD `json:"spent_usd"`
}
