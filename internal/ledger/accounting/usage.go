package accounting

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// EnterState closes a sandbox's open usage period, if any, at the given time and opens one in the new state;
// PhaseGone opens none. So periods of one sandbox never overlap. A future time, from a backend whose clock is
// fast, counts as now.
func (repo Rows) EnterState(s *ledger.Sandbox, state sandbox.Phase, at micro.Time, book *PriceBook) error {
	at = min(at, repo.tx.Now)
	open, err := repo.OpenPeriod(s.ID)
	if err != nil {
		return err
	}
	if open != nil {
		if open.State == state {
			return nil
		}
		open.EndedAt = max(at, open.StartedAt, 1)
		if err := storage.Save(repo.tx, open); err != nil {
			return err
		}
		at = open.EndedAt
	}
	if state != sandbox.PhaseAwake && state != sandbox.PhaseAsleep {
		return nil
	}
	size := s.Size()
	next := &UsagePeriod{
		SandboxID:     s.ID,
		LeaseID:       s.Lease(),
		EnvironmentID: s.EnvironmentID,
		AgentDID:      s.AgentDID,
		Backend:       s.Backend,
		Instance:      s.Instance,
		PriceBookID:   book.ID,
		MemoryMB:      size.MemoryMB,
		CPUMillis:     size.CPUMillis,
		DiskMB:        size.DiskMB,
		State:         state,
		StartedAt:     at,
	}
	if open == nil && s.LeaseID != nil {
		if next.Generations, err = repo.beginsGeneration(s); err != nil {
			return err
		}
	}
	return storage.Create(repo.tx, next)
}

// beginsGeneration returns 1 unless the sandbox was already used in its current generation.
func (repo Rows) beginsGeneration(s *ledger.Sandbox) (int64, error) {
	earlier, err := storage.First[UsagePeriod](repo.tx, "sandbox_id = ? AND lease_id = ?", s.ID, s.Lease())
	if err != nil || earlier != nil {
		return 0, err
	}
	return 1, nil
}

// OpenPeriod returns a sandbox's open usage period, nil if there is none.
func (repo Rows) OpenPeriod(sandboxID string) (*UsagePeriod, error) {
	return storage.First[UsagePeriod](repo.tx, "sandbox_id = ? AND ended_at = 0", sandboxID)
}

// AddCPU adds a reading of CPU time since the sandbox's last start, taken at a time, to its open period, within an
// update of the sandbox. A reading lower than the last one belongs to a new boot.
func (repo Rows) AddCPU(s *ledger.Sandbox, reading micro.Span, at micro.Time) error {
	return repo.addCPU(s, s.Meter.Read(reading), at)
}

// CompanionReading is a reading of the CPU time of a companion since its latest start.
type CompanionReading struct {
	CPU   micro.Span
	Since time.Time // of the state in which it was read
}

// AddCompanionCPU adds readings of a sandbox's companions, by name and taken at a time, to its open usage period. A
// companion that has changed its state since its reading may have started again: the next reading counts.
func (repo Rows) AddCompanionCPU(s *ledger.Sandbox, readings map[string]CompanionReading, at micro.Time) error {
	var used micro.Span
	for name, r := range readings {
		is := s.CompanionStates[name]
		if !is.Measured() || !is.Since.Equal(r.Since) || r.CPU <= is.CPUMark {
			continue
		}
		used += r.CPU - is.CPUMark
		is.CPUMark = r.CPU
		s.SetCompanion(name, is)
	}
	return repo.addCPU(s, used, at)
}

// addCPU adds CPU time to the day of its reading, so that the costs of a day do not change after it. A period that
// began on an earlier day ends at the midnight before the reading, and another one continues it.
func (repo Rows) addCPU(s *ledger.Sandbox, used micro.Span, at micro.Time) error {
	if used == 0 {
		return nil
	}
	day := (min(at, repo.tx.Now) - 1).Midnight() // until midnight, time belongs to the day before
	n, err := storage.RowCount("adding CPU time", repo.db.Model(&UsagePeriod{}).
		Where("sandbox_id = ? AND ended_at = 0 AND started_at >= ?", s.ID, day).
		Update("cpu", gorm.Expr("cpu + ?", used)))
	if err != nil || n > 0 {
		return err
	}
	open, err := repo.OpenPeriod(s.ID)
	if err != nil || open == nil {
		return err
	}
	next := *open
	next.ID, next.StartedAt, next.ContinuesFrom, next.CPU, next.Generations = 0, day, open.BegunAt(), used, 0
	open.EndedAt = day
	if err := storage.Save(repo.tx, open); err != nil {
		return err
	}
	return storage.Create(repo.tx, &next)
}

// PeriodsOf returns the usage periods of the given sandboxes.
func (repo Rows) PeriodsOf(sandboxIDs []string) ([]UsagePeriod, error) {
	return storage.Find[UsagePeriod](repo.db.Where("sandbox_id IN ?", sandboxIDs).Order("id"))
}

// PriceBooks returns all price books that ever applied, by id.
func (repo Rows) PriceBooks() (map[string]sandbox.PriceBook, error) {
	rows, err := storage.Find[PriceBook](repo.db)
	books := make(map[string]sandbox.PriceBook, len(rows))
	for _, r := range rows {
		books[r.ID] = r.Body
	}
	return books, err
}

// KeepPriceBook stores a price book unless it exists, and returns its row.
func (repo Rows) KeepPriceBook(b sandbox.Backend, book sandbox.PriceBook) (*PriceBook, error) {
	body, err := json.Marshal(book)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "encoding price book %s: %w", book.Name, err)
	}
	sum := sha256.Sum256(append([]byte(b+"\n"), body...))
	row := &PriceBook{ID: hex.EncodeToString(sum[:]), Backend: b, Body: book, AddedAt: repo.tx.Now}
	err = repo.db.Clauses(clause.OnConflict{DoNothing: true}).Create(row).Error
	return row, storage.Error("keeping a price book", err)
}
