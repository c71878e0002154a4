package ledger

import (
	"time"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An opened backup is activated: it records that later changes are missing. This works regardless of how the file or
// its rows were restored.

// activate turns a backup into a ledger. Use since the backup is unknown. So live sandboxes count as used
// just now, and before another TTL has passed only max_lifetime ends their leases.
func (tx *Tx) activate() error {
	err := tx.db.Table("ledgers").Where("one = 1").
		Updates(map[string]any{"backed_up_at": 0, "restored_at": tx.Now}).Error
	if err != nil {
		return storage.Error("noting that the ledger was restored", err)
	}
	err = tx.db.Table("sandboxes").Where("desired = 'present' AND phase <> 'gone' AND last_activity < ?", tx.Now).
		Update("last_activity", gorm.Expr("?", tx.Now)).Error
	return storage.Error("extending the leases of a restored ledger", err)
}

// emitRestored emits an event that the ledger was restored.
func (tx *Tx) emitRestored(r restored) error {
	return tx.append(&Event{Type: sandbox.EventRestored}, r)
}

// restored is the data of sandbox.EventRestored.
type restored struct {
	// BackedUpAt is zero if it is unknown: the ledger was replaced by other means.
	BackedUpAt time.Time `json:"backed_up_at,omitzero"`
}

// NoteRestored records that the ledger was replaced by other means than Restore, and emits the event unless
// it is already the last one.
func (tx *Tx) NoteRestored() error {
	var last sandbox.EventType
	if err := tx.db.Raw("SELECT type FROM events ORDER BY id DESC LIMIT 1").Scan(&last).Error; err != nil {
		return storage.Error("reading the ledger's last event", err)
	}
	if err := tx.activate(); err != nil || last == sandbox.EventRestored {
		return err
	}
	return tx.emitRestored(restored{})
}

// RestoredAt is when the ledger was last restored from a backup, 0 if never. It moves with the clock, as the times of
// sandboxes do.
func (tx *Tx) RestoredAt() (micro.Time, error) {
	var at micro.Time
	err := tx.db.Table("ledgers").Select("restored_at").Scan(&at).Error
	return at, storage.Error("reading the ledger", err)
}

// UnknownBefore returns the time before which unknown objects on backends may have been created after the backup that
// was restored, 0 if none was. Backends stamp objects with the clock of the time, so a step never makes it earlier.
func (tx *Tx) UnknownBefore() (micro.Time, error) {
	at, err := tx.RestoredAt()
	if err != nil || at == 0 {
		return 0, err
	}
	var shown micro.Time // by the clock at the restore
	err = tx.db.Raw("SELECT COALESCE(MAX(at), 0) FROM events WHERE environment_id = '' AND type = ?",
		sandbox.EventRestored).Scan(&shown).Error
	return max(at, shown), storage.Error("reading when the ledger was restored", err)
}
