// Package witnesses keeps the rows of the numbers that the ledger leaves on backend instances. They reveal that a
// ledger is an older copy.
package witnesses

import (
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Rows are the package's rows in a transaction.
type Rows struct {
	tx *ledger.Tx
	db *gorm.DB
}

// In returns the rows in a transaction.
func In(tx *ledger.Tx) Rows { return Rows{tx, storage.DB(tx)} }

// A witness is a number that the ledger leaves on a backend instance (driver.Witnesser). The ledger issues
// the next number in the transaction that begins a generation. The instance gets the number before the
// generation can be used, and then the ledger records that. So an instance that matches this state of the
// ledger has a number from Witnessed to Issued. A lower number means a clone, or an older copy of the
// machine. A higher number means that the ledger is the older copy, and by how many generations at most.

// Witness is a row of witnesses.
type Witness struct {
	Instance  string `gorm:"primaryKey"`
	Issued    int64
	Witnessed int64
	// Found is a number on the instance that this ledger never issued.
	Found int64
}

// Behind reports whether the ledger is older than what it left on the instance.
func (w *Witness) Behind() bool { return w.Found > w.Issued }

// Withdrawn reports whether the instance needs no number: none was left there, or the last one was withdrawn.
func (w *Witness) Withdrawn() bool { return w.Witnessed == 0 }

// Of returns the witness on an instance; its numbers are 0 if the ledger has issued none.
func (repo Rows) Of(instance string) (Witness, error) {
	w, err := storage.First[Witness](repo.tx, "instance = ?", instance)
	if err != nil || w == nil {
		return Witness{Instance: instance}, err
	}
	return *w, nil
}

// Save stores a witness, new or changed.
func (repo Rows) Save(w *Witness) error {
	return storage.Error("writing to the ledger", repo.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(w).Error)
}

// Issue issues the next number for an instance. A ledger that is behind issues none.
func (repo Rows) Issue(instance string) error {
	w, err := repo.Of(instance)
	if err != nil || w.Behind() {
		return err
	}
	w.Issued++
	return repo.Save(&w)
}

// Witnessed records that an instance has a number.
func (repo Rows) Witnessed(instance string, n int64) error {
	res := repo.db.Exec("UPDATE witnesses SET witnessed = ? WHERE instance = ? AND witnessed < ?", n, instance, n)
	return storage.Error("noting the witness on a backend instance", res.Error)
}

// FindBehind records that an instance has a number that this ledger never issued: the ledger was replaced by
// an older copy. The first time, it activates the ledger, as a restore does.
func (repo Rows) FindBehind(instance string, found int64) (isNew bool, err error) {
	w, err := repo.Of(instance)
	if err != nil || found <= w.Issued {
		return false, err
	}
	isNew = !w.Behind()
	w.Found = max(w.Found, found)
	if err := repo.Save(&w); err != nil || !isNew {
		return false, err
	}
	return true, repo.tx.NoteRestored()
}

// Accept accepts an instance that has the given number as the ledger's own, and issues a higher
// number. The unknown numbers stand for at most as many generations, of any leases: later generations are
// above all of them.
func (repo Rows) Accept(instance string, found int64) (Witness, error) {
	w, err := repo.Of(instance)
	if err != nil {
		return w, err
	}
	found = max(found, w.Found)
	if unknown := found - w.Issued; unknown > 0 {
		err := repo.db.Exec(`UPDATE ledgers SET generation_floor = ? +
			(SELECT max(generation) FROM (SELECT generation_floor AS generation FROM ledgers
			UNION ALL SELECT generation FROM leases) AS known)`, unknown).Error
		if err != nil {
			return w, storage.Error("raising the ledger's generations", err)
		}
	}
	w.Issued, w.Witnessed, w.Found = max(w.Issued, found)+1, 0, 0
	return w, repo.Save(&w)
}

// NextGeneration returns the generation after a lease's last one, 0 for none, and issues a number for it if
// the instance has a witness. Errors: Conflict with ReasonLedgerBehind.
func (repo Rows) NextGeneration(instance string, last int64) (int64, error) {
	var at struct{ Floor, Issued, Found int64 }
	err := repo.db.Raw(`SELECT generation_floor AS floor, coalesce(issued, 0) AS issued, coalesce(found, 0) AS found
		FROM ledgers LEFT JOIN witnesses ON instance = ?`, instance).Scan(&at).Error
	if err != nil {
		return 0, storage.Error("numbering a generation", err)
	}
	if at.Found > at.Issued {
		return 0, sandbox.Errorf(sandbox.Conflict, "this ledger is older than its sandboxes on instance %s: "+
			"it was replaced by an older copy, which lacks up to %d generations. It begins no lease until "+
			"`sandbox adopt` has adopted their live sandboxes", instance, at.Found-at.Issued).
			WithReason(sandbox.ReasonLedgerBehind)
	}
	if at.Issued > 0 {
		if err := repo.db.Exec("UPDATE witnesses SET issued = issued + 1 WHERE instance = ?", instance).Error; err != nil {
			return 0, storage.Error("numbering a generation", err)
		}
	}
	return max(at.Floor, last) + 1, nil
}

// Withdraw forgets that an instance has a witness, if the ledger has nothing there except one
// environment that is being removed. It returns the number up to which to remove the witness, 0 for none.
func (repo Rows) Withdraw(instance, environmentID string) (int64, error) {
	uses, err := repo.usesBeside(instance, environmentID)
	if err != nil || uses.Environments || uses.Sandboxes {
		return 0, err
	}
	w, err := repo.Of(instance)
	if err != nil || w.Issued == 0 || w.Behind() {
		return 0, err
	}
	w.Witnessed = 0
	return w.Issued, repo.Save(&w)
}

// InstanceUses says what a ledger has on a backend instance.
type InstanceUses struct {
	// Environments: not destroyed and not being deleted. Sandboxes: not confirmed gone.
	Environments, Sandboxes bool
}

// InstanceUses returns what the ledger has on an instance.
func (repo Rows) InstanceUses(instance string) (InstanceUses, error) {
	return repo.usesBeside(instance, "")
}

// usesBeside is InstanceUses without one environment.
func (repo Rows) usesBeside(instance, environmentID string) (u InstanceUses, err error) {
	err = repo.db.Raw(
		`SELECT EXISTS (SELECT 1 FROM environments WHERE instance = ? AND id <> ? AND status NOT IN ?) AS environments,
		EXISTS (SELECT 1 FROM sandboxes WHERE instance = ? AND phase <> 'gone') AS sandboxes`,
		instance, environmentID, []sandbox.EnvironmentStatus{sandbox.EnvironmentDestroyed, sandbox.EnvironmentDeleting},
		instance).Scan(&u).Error
	return u, storage.Error("reading the ledger", err)
}
