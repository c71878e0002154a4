package ledger

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
)

// Hold is a row of holds: a use that counts as activity until it ends.
type Hold struct {
	SandboxID string `gorm:"primaryKey"`
	Holder    string `gorm:"primaryKey"`
	Until     micro.Time
}

// Holds are the uses of sandboxes in a transaction.
type Holds struct{ tx *Tx }

// Holds returns the transaction's uses of sandboxes.
func (tx *Tx) Holds() Holds { return Holds{tx} }

// Add records a use that counts as activity until a time.
func (repo Holds) Add(h *Hold) error { return storage.Create(repo.tx, h) }

// Extend extends the given holders' uses until a time.
func (repo Holds) Extend(holders []string, until micro.Time) error {
	_, err := storage.RowCount("extending holds", repo.tx.db.Model(&Hold{}).Where("holder IN ?", holders).
		Update("until", until))
	return err
}

// Remove ends a use.
func (repo Holds) Remove(sandboxID, holder string) error {
	_, err := storage.RowCount("ending a hold", repo.tx.db.Delete(&Hold{}, "sandbox_id = ? AND holder = ?", sandboxID,
		holder))
	return err
}

// RemoveAll ends all uses of a sandbox.
func (repo Holds) RemoveAll(sandboxID string) error {
	_, err := storage.RowCount("ending holds", repo.tx.db.Delete(&Hold{}, "sandbox_id = ?", sandboxID))
	return err
}

// Holders returns the current holders of a sandbox.
func (repo Holds) Holders(sandboxID string) (holders []string, err error) {
	err = repo.tx.db.Model(&Hold{}).Where("sandbox_id = ? AND until > ?", sandboxID, repo.tx.Now).
		Pluck("holder", &holders).Error
	return holders, storage.Error("looking for holders", err)
}

// Until returns when the last use of a sandbox ends, 0 if there is none.
func (repo Holds) Until(sandboxID string) (micro.Time, error) {
	var until micro.Time
	err := repo.tx.db.Model(&Hold{}).Select("coalesce(max(until), 0)").Where("sandbox_id = ?", sandboxID).Scan(&until).
		Error
	return until, storage.Error("looking for holds", err)
}

// UntilOf returns when the last use of each of the given sandboxes ends.
func (repo Holds) UntilOf(sandboxIDs []string) (map[string]micro.Time, error) {
	until := make(map[string]micro.Time)
	for some := range slices.Chunk(sandboxIDs, storage.MaxVariables) {
		rows, err := storage.Find[Hold](repo.tx.db.Where("sandbox_id IN ?", some))
		if err != nil {
			return nil, err
		}
		for _, h := range rows {
			until[h.SandboxID] = max(until[h.SandboxID], h.Until)
		}
	}
	return until, nil
}
