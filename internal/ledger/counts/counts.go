// Package counts counts sandboxes and leases for metrics and lists.
package counts

import (
	"slices"

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

// Group is the number of sandboxes of one kind.
type Group struct {
	Backend sandbox.Backend
	Phase   sandbox.Phase
	// Pooled: they wait in a warm pool.
	Pooled bool
	N      int64
}

// Sandboxes counts the sandboxes that are not gone.
func (repo Rows) Sandboxes() (list []Group, err error) {
	err = repo.db.Model(&ledger.Sandbox{}).Select("backend, phase, lease_id IS NULL AS pooled, count(*) AS n").
		Where("phase <> 'gone'").
		Group("backend, phase, lease_id IS NULL").Scan(&list).Error
	return list, storage.Error("counting sandboxes", err)
}

// OldestEnded returns, for each backend, the end of the oldest ended lease whose sandbox is not gone yet. It
// ignores sandboxes kept for a post-mortem.
func (repo Rows) OldestEnded() (map[sandbox.Backend]micro.Time, error) {
	var rows []struct {
		Backend sandbox.Backend
		Oldest  micro.Time
	}
	err := repo.db.Model(&ledger.Sandbox{}).Select("backend, min(ended_at) AS oldest").
		Where("phase <> 'gone' AND desired = 'gone' AND kept_until = 0").
		Group("backend").Scan(&rows).Error
	oldest := make(map[sandbox.Backend]micro.Time, len(rows))
	for _, r := range rows {
		oldest[r.Backend] = r.Oldest
	}
	return oldest, storage.Error("looking for sandboxes to remove", err)
}

// Leases counts the leases of environments by sandbox state, without those that are gone.
func (repo Rows) Leases(environments []string) (map[string]sandbox.LeaseCounts, error) {
	counts := make(map[string]sandbox.LeaseCounts, len(environments))
	for some := range slices.Chunk(environments, storage.MaxVariables) {
		var rows []struct {
			EnvironmentID string
			Status        sandbox.SandboxState
			N             int64
		}
		err := repo.db.Model(&ledger.Sandbox{}).Select("environment_id, stands AS status, count(*) AS n").
			Where("phase <> 'gone' AND lease_id IS NOT NULL AND environment_id IN ?", some).
			Group("environment_id, stands").Scan(&rows).Error
		if err != nil {
			return nil, storage.Error("counting leases", err)
		}
		for _, r := range rows {
			c := counts[r.EnvironmentID]
			switch r.Status {
			case sandbox.SandboxPending:
				c.Pending = r.N
			case sandbox.SandboxReady:
				c.Ready = r.N
			case sandbox.SandboxAsleep:
				c.Asleep = r.N
			case sandbox.SandboxStopped:
				c.Stopped = r.N
			case sandbox.SandboxFailed:
				c.Failed = r.N
			case sandbox.SandboxDeleting:
				c.Deleting = r.N
			}
			counts[r.EnvironmentID] = c
		}
	}
	return counts, nil
}
