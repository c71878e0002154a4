package accounting

import (
	"maps"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Sums of ended usage make reading a lease or checking a budget independent of the number of usage periods. A
// period is in all sums or in none; those in none are read in addition.

// CostMonth is a row of cost_months: the gross cost of an environment's days of one month.
type CostMonth struct {
	EnvironmentID string `gorm:"primaryKey"`
	Month         string `gorm:"primaryKey"` // 2006-01
	Cost          sandbox.NanoUSD
}

// SandboxCost is a row of sandbox_costs: the gross cost of a sandbox's ended usage.
type SandboxCost struct {
	SandboxID string `gorm:"primaryKey"`
	Cost      sandbox.NanoUSD
}

// SpentInMonth returns the gross cost in cost_days for an environment in a month ("2006-01").
func (repo Rows) SpentInMonth(environmentID, month string) (sandbox.NanoUSD, error) {
	row, err := storage.First[CostMonth](repo.tx, "environment_id = ? AND month = ?", environmentID, month)
	if err != nil || row == nil {
		return 0, err
	}
	return row.Cost, nil
}

// addCostMonths adds days to the sums of their months.
func (repo Rows) addCostMonths(days []CostDay) error {
	sums := make(map[CostMonth]sandbox.NanoUSD)
	for i := range days {
		sums[CostMonth{EnvironmentID: days[i].EnvironmentID, Month: days[i].Month}] += days[i].Cost.Total()
	}
	rows := make([]CostMonth, 0, len(sums))
	for row, cost := range sums {
		row.Cost = cost
		rows = append(rows, row)
	}
	return repo.db.Clauses(storage.AddTo("cost_months", []string{"environment_id", "month"}, "cost")).
		CreateInBatches(rows, storage.InsertBatch).Error
}

// SandboxCosts returns the costs in sandbox_costs for the given sandboxes.
func (repo Rows) SandboxCosts(sandboxIDs []string) (map[string]sandbox.NanoUSD, error) {
	rows, err := storage.Find[SandboxCost](repo.db.Where("sandbox_id IN ?", sandboxIDs))
	costs := make(map[string]sandbox.NanoUSD, len(rows))
	for _, r := range rows {
		costs[r.SandboxID] = r.Cost
	}
	return costs, err
}

// AddSandboxCosts adds the cost of ended usage to the sums of its sandboxes.
func (repo Rows) AddSandboxCosts(costs map[string]sandbox.NanoUSD) error {
	if len(costs) == 0 {
		return nil
	}
	rows := make([]SandboxCost, 0, len(costs))
	for _, id := range slices.Sorted(maps.Keys(costs)) {
		rows = append(rows, SandboxCost{SandboxID: id, Cost: costs[id]})
	}
	err := repo.db.Clauses(storage.AddTo("sandbox_costs", []string{"sandbox_id"}, "cost")).
		CreateInBatches(rows, storage.InsertBatch).Error
	return storage.Error("counting usage", err)
}

// UnsettledPeriods returns the usage periods of the given sandboxes that are not in sandbox_costs.
func (repo Rows) UnsettledPeriods(sandboxIDs []string) ([]UsagePeriod, error) {
	return storage.Find[UsagePeriod](repo.db.Where("rolled_at <= 0 AND sandbox_id IN ?", sandboxIDs))
}

// TakeUnsettled marks up to limit usage periods that an earlier program counted only by day as counted in
// sandbox_costs too, and returns them. The caller must count them in the same transaction.
func (repo Rows) TakeUnsettled(limit int) ([]UsagePeriod, error) {
	var rows []UsagePeriod
	err := repo.db.Raw(`UPDATE usage_periods SET rolled_at = -rolled_at
		WHERE id IN (SELECT id FROM usage_periods WHERE rolled_at <= 0 AND rolled_at <> 0 LIMIT ?) RETURNING *`, limit).
		Scan(&rows).Error
	return rows, storage.Error("counting usage", err)
}

// LastUsed returns when a sandbox's last usage ended, 0 if there is none.
func (repo Rows) LastUsed(sandboxID string) (micro.Time, error) {
	var at micro.Time
	err := repo.db.Model(&UsagePeriod{}).Select("coalesce(max(ended_at), 0)").
		Where("sandbox_id = ?", sandboxID).Scan(&at).Error
	return at, storage.Error("reading usage", err)
}
