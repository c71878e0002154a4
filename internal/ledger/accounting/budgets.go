package accounting

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// BudgetEnvironments returns the environments that have a budget and are not destroyed.
func (repo Rows) BudgetEnvironments() ([]ledger.Environment, error) {
	rows, err := storage.Find[ledger.Environment](repo.db.Where(`status <> ? AND spec LIKE '%"budget":{%'`,
		sandbox.EnvironmentDestroyed).
		Order("id"))
	return slices.DeleteFunc(rows, func(e ledger.Environment) bool {
		return e.Spec.Budget == nil // a companion or a model route has the name
	}), err
}

// ThresholdsReached returns the thresholds of a month's budget that have an event, in percent.
func (repo Rows) ThresholdsReached(environmentID, month string, monthly sandbox.NanoUSD) ([]int64, error) {
	var percents []int64
	err := repo.db.Model(&BudgetThreshold{}).
		Where("environment_id = ? AND month = ? AND monthly = ?", environmentID, month, monthly).
		Pluck("percent", &percents).Error
	return percents, storage.Error("reading budgets", err)
}

// KeepThreshold records that a threshold has an event.
func (repo Rows) KeepThreshold(t BudgetThreshold) error {
	t.ReachedAt = repo.tx.Now
	return storage.Create(repo.tx, &t)
}

// TimeLeft is the total remaining time of leases of one size.
type TimeLeft struct {
	Backend                     sandbox.Backend
	MemoryMB, CPUMillis, DiskMB int64
	N                           int64
	Remaining                   micro.Span
}

// TimeLeft sums the remaining times of an environment's leases, at most until a time, by size.
func (repo Rows) TimeLeft(environmentID string, until micro.Time) (list []TimeLeft, err error) {
	err = repo.db.Raw(`SELECT backend, memory_mb, cpu_millis, disk_mb, count(*) AS n,
		CAST(sum((CASE WHEN ends < ? THEN ends ELSE ? END) - ?) AS bigint) AS remaining
		FROM (SELECT backend, memory_mb + companion_memory_mb AS memory_mb, cpu_millis + companion_cpu_millis AS cpu_millis,
			disk_mb + companion_disk_mb AS disk_mb,
			CASE WHEN NOT EXISTS (SELECT 1 FROM holds WHERE holds.sandbox_id = sandboxes.id AND holds.until > ?) THEN expires_at
			WHEN ttl + ? < leased_at + max_lifetime THEN ttl + ? ELSE leased_at + max_lifetime END AS ends
			FROM sandboxes WHERE environment_id = ? AND phase <> 'gone' AND lease_id IS NOT NULL
			AND desired = 'present') AS leased
		WHERE ends > ? GROUP BY backend, memory_mb, cpu_millis, disk_mb`,
		until, until, repo.tx.Now, repo.tx.Now, repo.tx.Now, repo.tx.Now, environmentID, repo.tx.Now).Scan(&list).Error
	return list, storage.Error("reading how long leases may live", err)
}
