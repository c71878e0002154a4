package ledger

import (
	"time"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// A backup that is opened comes to life: it notes that it does not know what happened since it was taken.
// So it does not matter how its file or its rows came where they are.

// comeToLife makes a ledger of a backup. Nobody knows what was used since it was taken: so what lives counts
// as used just now, and its leases end by nothing but their longest life before their TTL has passed once more.
func comeToLife(tx *Tx, self identity) error {
	err := tx.db.Model(&identity{}).Where("one = 1").Updates(map[string]any{"backed_up_at": 0, "restored_at": tx.Now}).Error
	if err != nil {
		return unavailable("noting that the ledger was restored", err)
	}
	err = tx.db.Table("sandboxes").Where("desired = 'present' AND phase <> 'gone' AND last_activity < ?", tx.Now).
		Update("last_activity", gorm.Expr("?", tx.Now)).Error
	if err != nil {
		return unavailable("letting the leases of a restored ledger live on", err)
	}
	if err := tx.append(&Event{Type: sandbox.EventRestored}, restored{BackedUpAt: self.BackedUpAt.Time()}); err != nil {
		return err
	}
	return tx.flushEvents()
}

// restored is the data of sandbox.EventRestored.
type restored struct {
	BackedUpAt time.Time `json:"backed_up_at"`
}

// RestoredAt is when the ledger was last made of a backup, 0 when it never was. What its backends have from
// before then, and it does not know, may have been made after the backup was taken.
func (tx *Tx) RestoredAt() (Time, error) {
	var at Time
	err := tx.db.Table("ledgers").Select("restored_at").Scan(&at).Error
	return at, unavailable("reading the ledger", err)
}
