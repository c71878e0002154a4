package sandbox

// Budget bounds what the sandboxes of one environment may cost.
type Budget struct {
	// Monthly is the most that a calendar month, UTC, may cost: gross, at list price.
	Monthly NanoUSD `json:"monthly_usd" doc:"Most that the sandboxes of a calendar month (UTC) may cost, in US dollars at list price."`
}

// BudgetThresholds are the percentages of a budget whose crossing is an event, once a month.
var BudgetThresholds = []int64{80, 100}

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
