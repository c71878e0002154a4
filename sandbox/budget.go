package sandbox

import "time"

// Budget limits what the sandboxes of one environment, and their calls of models, may cost in a calendar month (UTC).
//
// What is spent and reserved never exceeds it when a lease is granted. A lease reserves what it is likely to cost in
// the next hour, as long as it lives: what it used becomes spent, and the hour moves on. A call of a model reserves the
// most that it can cost while it runs. When the budget is spent, the environment's leases end.
type Budget struct {
	// Monthly is gross, at the list prices of the environment's backend.
	Monthly NanoUSD `json:"monthly_usd" doc:"US dollars that leases may cost in a calendar month (UTC), at list price. An acquire is refused if it leaves no room for an hour of the lease, and leases end when it is spent. Docker costs nothing unless a price book is configured."`
}

// What a lease reserves of a budget: its next hour awake, or less if it expires or the month ends earlier, with its
// memory and disk in full and a part of its CPU limit.
const (
	BudgetReserve    = time.Hour
	BudgetCPUPercent = 25
)

// BudgetUse is how much of its budget an environment has used in the current month.
type BudgetUse struct {
	Month   string  `json:"month"` // 2006-01, UTC
	Monthly NanoUSD `json:"monthly_usd"`
	// Spent is the gross cost so far, with LLM, which is its part for calls of models.
	Spent NanoUSD `json:"spent_usd"`
	LLM   NanoUSD `json:"llm_usd,omitempty" doc:"Part of spent_usd for calls of models."`
	// Reserved is what live leases are likely to cost in the next hour, see BudgetReserve, and the most that running calls
	// of models can cost.
	Reserved NanoUSD `json:"reserved_usd" doc:"What live leases are likely to cost in the next hour, and the most that running calls of models can cost."`
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
