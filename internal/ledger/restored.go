package ledger

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A backup that is opened comes to life: it notes that it does not know what happened since it was taken.
// So it does not matter how its file or its rows came where they are.

// comeToLife makes a ledger of a backup. What was used since it was taken is unknown: so what lives counts
// as used just now, and its leases end by nothing but their longest life before their TTL has passed once more.
func comeToLife(tx *Tx) error {
	err := tx.db.Model(&identity{}).Where("one = 1").Updates(map[string]any{"backed_up_at": 0, "restored_at": tx.Now}).Error
	if err != nil {
		return unavailable("noting that the ledger was restored", err)
	}
	err = tx.db.Table("sandboxes").Where("desired = 'present' AND phase <> 'gone' AND last_activity < ?", tx.Now).
		Update("last_activity", gorm.Expr("?", tx.Now)).Error
	return unavailable("letting the leases of a restored ledger live on", err)
}

// tellRestored tells that the ledger came to life.
func (tx *Tx) tellRestored(r restored) error {
	return tx.append(&Event{Type: sandbox.EventRestored}, r)
}

// restored is the data of sandbox.EventRestored.
type restored struct {
	// BackedUpAt is zero where it is unknown: the ledger was put back by other means.
	BackedUpAt time.Time `json:"backed_up_at,omitzero"`
}

// Restored is what NoteRestored has noted.
type Restored struct {
	LedgerID string    `json:"ledger_id"`
	At       time.Time `json:"restored_at"`
}

// NoteRestored has a ledger know that it was put back by other means than Restore: what a dump or a snapshot
// holds does not say that it is one. Noted again before anything else has happened, it moves the moment, and is
// not told again. Errors: NotFound where there is no ledger; Conflict while a program has it open, as far as that
// can be known: on PostgreSQL not of one behind a pooler that passes no notifications on.
func NoteRestored(ctx context.Context, rawURL string, o Options) (r Restored, err error) {
	x, err := Examine(ctx, rawURL)
	switch {
	case err != nil:
		return r, err
	case x.ID == "":
		return r, sandbox.Errorf(sandbox.NotFound, "there is no ledger at %s", RedactURL(rawURL))
	}
	open := isOpenSQLite
	if x.Server != "" {
		open = isOpenPostgres
	}
	inUse, err := open(ctx, rawURL)
	switch {
	case err != nil:
		return r, err
	case inUse:
		return r, sandbox.Errorf(sandbox.Conflict, "the ledger at %s is in use, and nothing was changed: stop every reconciler of it first", RedactURL(rawURL))
	}
	s, err := Open(ctx, rawURL, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r.LedgerID = s.ID()
	return r, s.Write(ctx, func(tx *Tx) error {
		r.At = tx.Now.Time()
		return tx.noteRestored()
	})
}

// noteRestored notes that the ledger was put back by other means than Restore, and tells it unless that was the last
// thing that it told.
func (tx *Tx) noteRestored() error {
	var last sandbox.EventType
	if err := tx.db.Raw("SELECT type FROM events ORDER BY id DESC LIMIT 1").Scan(&last).Error; err != nil {
		return unavailable("reading the ledger's last event", err)
	}
	if err := comeToLife(tx); err != nil || last == sandbox.EventRestored {
		return err
	}
	return tx.tellRestored(restored{})
}

// RestoredAt is when the ledger was last made of a backup, 0 when it never was. What its backends have from
// before then, and it does not know, may have been made after the backup was taken.
func (tx *Tx) RestoredAt() (Time, error) {
	var at Time
	err := tx.db.Table("ledgers").Select("restored_at").Scan(&at).Error
	return at, unavailable("reading the ledger", err)
}
