package sandbox

import "time"

// Budget limits what the sandboxes of one environment may cost in a calendar month (UTC).
type Budget struct {
	// Monthly is gross, at the list prices of the environment's backend. An acquire is refused if the sum of
	// three amounts exceeds it: what is spent, what live leases may still cost until they expire, and what the
	// new lease may cost. A budget never ends a live lease. So leases that are renewed again and again, and
	// sandboxes that wait in a warm pool, can exceed it.
	Monthly NanoUSD `json:"monthly_usd" doc:"US dollars that leases may cost in a calendar month (UTC), at list price. An acquire that could exceed it is refused. Docker costs nothing unless a price book is configured."`
}

// BudgetUse is how much of its budget an environment has used in the current month.
type BudgetUse struct {
	Month   string  `json:"month"` // 2006-01, UTC
	Monthly NanoUSD `json:"monthly_usd"`
	// Spent is the gross cost so far, with LLM, which is its part for calls of models.
	Spent NanoUSD `json:"spent_usd"`
	LLM   NanoUSD `json:"llm_usd,omitempty" doc:"Part of spent_usd for calls of models."`
	// Reserved is the most that live leases can still cost until they expire or the month ends.
	Reserved NanoUSD `json:"reserved_usd"`
}

// Left returns what is neither spent nor reserved, at least zero.
func (u BudgetUse) Left() NanoUSD { return max(u.Monthly-u.Spent-u.Reserved, 0) }

// MonthOf returns the start of the calendar month (UTC) that contains t.
func MonthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// ProjectMonth projects the cost of the whole calendar month from what was spent since its start, or since the
// given time if that is later. It assumes a constant rate. It is an estimate: exact to a millionth.
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

// BudgetThresholds are the percentages of a month's budget that raise EventBudgetReached.
var BudgetThresholds = [...]int64{80, 100}

// Reached reports whether at least percent of the budget is spent.
func (u BudgetUse) Reached(percent int64) bool {
	part := u.Monthly/100*NanoUSD(percent) + (u.Monthly%100*NanoUSD(percent)+99)/100
	return u.Spent >= part
}

// BudgetReached is the data of EventBudgetReached. The event is raised once for each environment, month, budget
// amount and threshold. After a change of the budget, its thresholds can be reached again.
type BudgetReached struct {
	Month   string  `json:"month"` // 2006-01, UTC
	Percent int64   `json:"percent"`
	Monthly NanoUSD `json:"monthly_usd"`
	Spent   NanoUSD `json:"spent_usd"`
}
