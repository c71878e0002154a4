package ledger

import "github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"

// SandboxCount counts the sandboxes of one kind.
type SandboxCount struct {
	Backend sandbox.Backend
	Phase   sandbox.Phase
	// Pooled: they wait in a warm pool.
	Pooled bool
	N      int64
}

// CountSandboxes counts those that are not gone.
func (tx *Tx) CountSandboxes() (list []SandboxCount, err error) {
	err = tx.db.Model(&Sandbox{}).Select("backend, phase, lease_id IS NULL AS pooled, count(*) AS n").Where("phase <> 'gone'").
		Group("backend, phase, lease_id IS NULL").Scan(&list).Error
	return list, unavailable("counting sandboxes", err)
}

// OldestEnded returns, of each backend with sandboxes that are to go and are not gone, when the lease of the first of
// them ended. What is kept for a post-mortem is not among them.
func (tx *Tx) OldestEnded() (map[sandbox.Backend]Time, error) {
	var rows []struct {
		Backend sandbox.Backend
		Oldest  Time
	}
	err := tx.db.Model(&Sandbox{}).Select("backend, min(ended_at) AS oldest").Where("phase <> 'gone' AND desired = 'gone' AND kept_until = 0").
		Group("backend").Scan(&rows).Error
	oldest := make(map[sandbox.Backend]Time, len(rows))
	for _, r := range rows {
		oldest[r.Backend] = r.Oldest
	}
	return oldest, unavailable("looking for sandboxes that are to go", err)
}

// CountFindings counts open findings of drift.
func (tx *Tx) CountFindings() (map[sandbox.DriftKind]int64, error) {
	var rows []struct {
		Kind sandbox.DriftKind
		N    int64
	}
	err := tx.db.Model(&DriftFinding{}).Select("kind, count(*) AS n").Where("resolved_at = 0").Group("kind").Scan(&rows).Error
	counts := make(map[sandbox.DriftKind]int64, len(rows))
	for _, r := range rows {
		counts[r.Kind] = r.N
	}
	return counts, unavailable("counting findings", err)
}
