package ledger

import "github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"

// BudgetEnvironments returns the environments that have a budget and are not destroyed.
func (tx *Tx) BudgetEnvironments() ([]Environment, error) {
	return find[Environment](tx.db.Where(`status <> ? AND spec LIKE '%"budget":{%'`, sandbox.EnvironmentDestroyed).Order("id"))
}

// ThresholdsReached returns which thresholds of a month's budget were told of, in percent.
func (tx *Tx) ThresholdsReached(environmentID, month string, monthly sandbox.NanoUSD) ([]int64, error) {
	var percents []int64
	err := tx.db.Model(&BudgetThreshold{}).Where("environment_id = ? AND month = ? AND monthly = ?", environmentID, month, monthly).
		Pluck("percent", &percents).Error
	return percents, unavailable("reading budgets", err)
}

// KeepThreshold notes that a threshold was told of.
func (tx *Tx) KeepThreshold(t BudgetThreshold) error {
	t.ReachedAt = tx.Now
	return tx.create(&t)
}
