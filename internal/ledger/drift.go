package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// SeeDrift records a difference: a new finding, or another look at an open one. It returns the finding and
// whether it is new.
func (repo Findings) SeeDrift(f DriftFinding) (*DriftFinding, bool, error) {
	open, err := storage.First[DriftFinding](repo.tx,
		"instance = ? AND sandbox_id = ? AND kind = ? AND field = ? AND resolved_at = 0", f.Instance,
		f.SandboxID, f.Kind, f.Field)
	if err != nil {
		return nil, false, err
	}
	if open == nil {
		f.FirstSeenAt, f.LastSeenAt, f.Looks = repo.tx.Now, repo.tx.Now, 1
		return &f, true, storage.Create(repo.tx, &f)
	}
	open.LastSeenAt, open.Expected, open.Observed, open.Resolution = repo.tx.Now, f.Expected, f.Observed, f.Resolution
	open.Looks++
	return open, false, storage.Save(repo.tx, open)
}

// ResolveDrift closes the open findings of a sandbox.
func (repo Findings) ResolveDrift(sandboxID, resolution string) error {
	_, err := storage.RowCount("resolving drift",
		repo.tx.db.Model(&DriftFinding{}).Where("sandbox_id = ? AND resolved_at = 0", sandboxID).
			Updates(map[string]any{"resolved_at": repo.tx.Now, "resolution": resolution}))
	return err
}

// ResolveFinding closes one open finding.
func (repo Findings) ResolveFinding(id int64, resolution string) error {
	_, err := storage.RowCount("resolving drift", repo.tx.db.Model(&DriftFinding{}).
		Where("id = ? AND resolved_at = 0", id).
		Updates(map[string]any{"resolved_at": repo.tx.Now, "resolution": resolution}))
	return err
}

// OpenDrift returns the open findings of a backend instance, by sandbox.
func (repo Findings) OpenDrift(instance string) ([]DriftFinding, error) {
	return storage.Find[DriftFinding](repo.tx.db.Where("instance = ? AND resolved_at = 0", instance).
		Order("sandbox_id, id"))
}

// Drift returns findings, newest first.
func (repo Findings) Drift(f sandbox.DriftFilter) ([]sandbox.DriftFinding, error) {
	q := repo.tx.db.Order("id DESC").Limit(storage.PageSize(f.Limit))
	if f.EnvironmentID != "" {
		q = q.Where("environment_id = ?", f.EnvironmentID)
	}
	if f.LeaseID != "" {
		q = q.Where("lease_id = ?", f.LeaseID)
	}
	if f.Kind != "" {
		q = q.Where("kind = ?", f.Kind)
	}
	switch f.Status {
	case sandbox.DriftOpen:
		q = q.Where("resolved_at = 0")
	case sandbox.DriftResolved:
		q = q.Where("resolved_at <> 0")
	}
	rows, err := storage.Find[DriftFinding](q)
	findings := make([]sandbox.DriftFinding, len(rows))
	for i := range rows {
		findings[i] = rows[i].Domain()
	}
	return findings, err
}

// OpenDriftOf returns the open findings about the given sandboxes, by sandbox.
func (repo Findings) OpenDriftOf(sandboxIDs []string) (map[string][]sandbox.DriftFinding, error) {
	rows, err := storage.Find[DriftFinding](repo.tx.db.Where("sandbox_id IN ? AND resolved_at = 0", sandboxIDs).
		Order("id"))
	by := make(map[string][]sandbox.DriftFinding)
	for i := range rows {
		by[rows[i].SandboxID] = append(by[rows[i].SandboxID], rows[i].Domain())
	}
	return by, err
}
