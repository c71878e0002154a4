package accounting

import (
	"slices"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// UsageSample is a row of usage_samples.
type UsageSample struct {
	SandboxID   string     `gorm:"primaryKey"`
	At          micro.Time `gorm:"primaryKey;autoIncrement:false"`
	CPU         micro.Span // since the sandbox last started
	MemoryBytes int64
	PIDs        int64 `gorm:"column:pids"`
}

// Domain converts the sample to the domain type.
func (s *UsageSample) Domain() sandbox.UsageSample {
	return sandbox.UsageSample{At: s.At.Time(), CPUTime: s.CPU.Duration(), MemoryBytes: s.MemoryBytes, PIDs: s.PIDs}
}

var keepUsageSamples = storage.InsertInto("usage_samples", "sandbox_id", "at", "cpu", "memory_bytes", "pids").OnlyNew()

// KeepUsageSamples stores samples, at most one for each sandbox, except for sandboxes with a stored sample
// that is younger than apart. It removes samples from the future: the clock has been set back since, and a
// history with the times of two clocks would be wrong.
func (repo Rows) KeepUsageSamples(rows []UsageSample, apart micro.Span) error {
	ids := make([]string, len(rows))
	for i := range rows {
		rows[i].At = min(rows[i].At, repo.tx.Now)
		ids[i] = rows[i].SandboxID
	}
	recent := make(map[string]bool)
	for some := range slices.Chunk(ids, storage.MaxVariables) {
		if _, err := storage.RowCount("removing samples of usage",
			repo.db.Where("sandbox_id IN ? AND at > ?", some, repo.tx.Now).Delete(&UsageSample{})); err != nil {
			return err
		}
		var have []string
		err := repo.db.Model(&UsageSample{}).Where("sandbox_id IN ? AND at > ?", some, repo.tx.Now.Add(-apart)).
			Pluck("sandbox_id", &have).Error
		if err != nil {
			return storage.Error("reading samples of usage", err)
		}
		for _, id := range have {
			recent[id] = true
		}
	}
	rows = slices.DeleteFunc(rows, func(s UsageSample) bool { return recent[s.SandboxID] })
	_, err := storage.BulkExec(repo.tx, "keeping samples of usage", keepUsageSamples, rows,
		func(list []any, s *UsageSample) []any {
			return append(list, s.SandboxID, s.At, s.CPU, s.MemoryBytes, s.PIDs)
		})
	return err
}

// UsageSamples returns the retained samples of a sandbox from from until before to, oldest first.
func (repo Rows) UsageSamples(sandboxID string, from, to micro.Time) ([]UsageSample, error) {
	return storage.Find[UsageSample](repo.db.Where("sandbox_id = ? AND at >= ? AND at < ?", sandboxID, from, to).
		Order("at"))
}

// PurgeUsageSamples removes up to limit samples of sandboxes, and returns the number.
func (repo Rows) PurgeUsageSamples(sandboxIDs []string, limit int) (int64, error) {
	return repo.RemoveSamples(repo.db.Where("sandbox_id IN ?", sandboxIDs).Limit(limit))
}

// RemoveSamples removes the samples that a query selects, and returns the number.
func (repo Rows) RemoveSamples(which *gorm.DB) (int64, error) {
	keys := which.Model(&UsageSample{}).Select("sandbox_id, at")
	return storage.RowCount("removing samples of usage", repo.db.Where("(sandbox_id, at) IN (?)", keys).
		Delete(&UsageSample{}))
}
