// Package pools finds the sandboxes and environments of warm pools.
package pools

import (
	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Rows are the package's rows in a transaction.
type Rows struct{ db *gorm.DB }

// In returns the rows in a transaction.
func In(tx *ledger.Tx) Rows { return Rows{storage.DB(tx)} }

// Sandboxes returns the sandboxes that wait in an environment's warm pool, or are being made for
// it or taken from it, the longest waiting first.
func (repo Rows) Sandboxes(environmentID string) ([]ledger.Sandbox, error) {
	return storage.Find[ledger.Sandbox](repo.db.Where("environment_id = ? AND phase <> 'gone' AND lease_id IS NULL",
		environmentID).
		Order("pooled_at, id"))
}

// Environments returns the environments that may have a warm pool or want one.
func (repo Rows) Environments() ([]ledger.Environment, error) {
	const wants = `status <> ? AND (spec LIKE '%"warm_pool":{%' OR id IN
		(SELECT environment_id FROM sandboxes WHERE phase <> 'gone' AND desired = 'present' AND lease_id IS NULL))`
	return storage.Find[ledger.Environment](repo.db.Where(wants, sandbox.EnvironmentDestroyed).Order("id"))
}

// Counts counts the sandboxes that an environment's warm pool wants, by phase.
func (repo Rows) Counts(environmentID string) (map[sandbox.Phase]int64, error) {
	var rows []struct {
		Phase sandbox.Phase
		N     int64
	}
	err := repo.db.Model(&ledger.Sandbox{}).Select("phase, count(*) AS n").
		Where("environment_id = ? AND phase <> 'gone' AND desired = 'present' AND lease_id IS NULL", environmentID).
		Group("phase").Scan(&rows).Error
	counts := make(map[sandbox.Phase]int64, len(rows))
	for _, r := range rows {
		counts[r.Phase] = r.N
	}
	return counts, storage.Error("counting pooled sandboxes", err)
}

// LeasesBegun returns when the generations of an environment's leases began since a moment, in order.
func (repo Rows) LeasesBegun(environmentID string, since micro.Time) ([]micro.Time, error) {
	var begun []micro.Time
	// Each part has an index. A generation that began after since is either destroyed after since or not gone.
	err := repo.db.Raw(
		`SELECT leased_at FROM sandboxes WHERE phase <> 'gone' AND environment_id = ? AND lease_id IS NOT NULL
		AND leased_at > ?
		UNION ALL SELECT leased_at FROM sandboxes WHERE phase = 'gone' AND destroyed_at > ? AND environment_id = ?
		AND lease_id IS NOT NULL AND leased_at > ?
		ORDER BY 1`, environmentID, since, since, environmentID, since).Scan(&begun).Error
	return begun, storage.Error("counting leases that began", err)
}
