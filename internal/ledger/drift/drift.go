// Package drift keeps the rows of differences between the ledger and its backends: drift.
package drift

import (
	"slices"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Finding is a row of drift_findings.
type Finding struct {
	ID            int64 `gorm:"primaryKey"`
	Kind          sandbox.DriftKind
	SandboxID     string
	LeaseID       string
	EnvironmentID string
	Instance      string
	Field         string
	Expected      string
	Observed      string
	FirstSeenAt   micro.Time
	LastSeenAt    micro.Time
	Looks         int64
	ResolvedAt    micro.Time
	Resolution    string
}

// TableName implements gorm's Tabler.
func (Finding) TableName() string { return "drift_findings" }

// Domain converts the finding to the domain type.
func (f *Finding) Domain() sandbox.DriftFinding {
	return sandbox.DriftFinding{
		ID: f.ID, Kind: f.Kind, SandboxID: f.SandboxID, LeaseID: f.LeaseID, EnvironmentID: f.EnvironmentID,
		Instance: f.Instance, Field: f.Field, Expected: f.Expected, Observed: f.Observed,
		FirstSeenAt: f.FirstSeenAt.Time(), LastSeenAt: f.LastSeenAt.Time(),
		ResolvedAt: f.ResolvedAt.Time(), Resolution: f.Resolution,
	}
}

// Rows are the package's rows in a transaction.
type Rows struct {
	tx *ledger.Tx
	db *gorm.DB
}

// In returns the rows in a transaction.
func In(tx *ledger.Tx) Rows { return Rows{tx, storage.DB(tx)} }

// See records a difference: a new finding, or another look at an open one. It returns the finding and
// whether it is new.
func (repo Rows) See(f Finding) (*Finding, bool, error) {
	open, err := storage.First[Finding](repo.tx,
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

// ResolveAll closes the open findings of a sandbox.
func (repo Rows) ResolveAll(sandboxID, resolution string) error {
	_, err := storage.RowCount("resolving drift",
		repo.db.Model(&Finding{}).Where("sandbox_id = ? AND resolved_at = 0", sandboxID).
			Updates(map[string]any{"resolved_at": repo.tx.Now, "resolution": resolution}))
	return err
}

// Resolve closes one open finding.
func (repo Rows) Resolve(id int64, resolution string) error {
	_, err := storage.RowCount("resolving drift", repo.db.Model(&Finding{}).
		Where("id = ? AND resolved_at = 0", id).
		Updates(map[string]any{"resolved_at": repo.tx.Now, "resolution": resolution}))
	return err
}

// Open returns the open findings of a backend instance, by sandbox.
func (repo Rows) Open(instance string) ([]Finding, error) {
	return storage.Find[Finding](repo.db.Where("instance = ? AND resolved_at = 0", instance).
		Order("sandbox_id, id"))
}

// List returns findings, newest first.
func (repo Rows) List(f sandbox.DriftFilter) ([]sandbox.DriftFinding, error) {
	q := repo.db.Order("id DESC").Limit(storage.PageSize(f.Limit))
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
	rows, err := storage.Find[Finding](q)
	findings := make([]sandbox.DriftFinding, len(rows))
	for i := range rows {
		findings[i] = rows[i].Domain()
	}
	return findings, err
}

// OpenOf returns the open findings about the given sandboxes, by sandbox.
func (repo Rows) OpenOf(sandboxIDs []string) (map[string][]sandbox.DriftFinding, error) {
	rows, err := storage.Find[Finding](repo.db.Where("sandbox_id IN ? AND resolved_at = 0", sandboxIDs).
		Order("id"))
	by := make(map[string][]sandbox.DriftFinding)
	for i := range rows {
		by[rows[i].SandboxID] = append(by[rows[i].SandboxID], rows[i].Domain())
	}
	return by, err
}

// Count counts open drift findings.
func (repo Rows) Count() (map[sandbox.DriftKind]int64, error) {
	var rows []struct {
		Kind sandbox.DriftKind
		N    int64
	}
	err := repo.db.Model(&Finding{}).Select("kind, count(*) AS n").Where("resolved_at = 0").
		Group("kind").Scan(&rows).Error
	counts := make(map[sandbox.DriftKind]int64, len(rows))
	for _, r := range rows {
		counts[r.Kind] = r.N
	}
	return counts, storage.Error("counting findings", err)
}

// CountOf counts the open drift findings about environments.
func (repo Rows) CountOf(environments []string) (map[string]int64, error) {
	counts := make(map[string]int64)
	for some := range slices.Chunk(environments, storage.MaxVariables) {
		var rows []struct {
			EnvironmentID string
			N             int64
		}
		err := repo.db.Model(&Finding{}).Select("environment_id, count(*) AS n").
			Where("resolved_at = 0 AND environment_id IN ?", some).Group("environment_id").Scan(&rows).Error
		if err != nil {
			return nil, storage.Error("counting findings", err)
		}
		for _, r := range rows {
			counts[r.EnvironmentID] = r.N
		}
	}
	return counts, nil
}
