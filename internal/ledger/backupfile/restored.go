package backupfile

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Restored is the record of NoteRestored.
type Restored struct {
	LedgerID string    `json:"ledger_id"`
	At       time.Time `json:"restored_at"`
}

// NoteRestored records that the ledger was replaced by other means than Restore. A dump or a disk snapshot does not
// show that it is a copy. If nothing else has happened since the last call, it only updates the time. Errors: NotFound
// if there is no ledger; Conflict while a program has it open, if that can be known: on PostgreSQL not for a program
// behind a pooler that does not forward notifications.
func NoteRestored(ctx context.Context, rawURL string, o ledger.Options) (r Restored, err error) {
	x, err := storage.Examine(ctx, rawURL)
	switch {
	case err != nil:
		return r, err
	case x.ID == "":
		return r, sandbox.Errorf(sandbox.NotFound, "there is no ledger at %s", location.Redact(rawURL))
	}
	inUse, err := storage.InUse(ctx, rawURL)
	switch {
	case err != nil:
		return r, err
	case inUse:
		return r, sandbox.Errorf(sandbox.Conflict,
			"the ledger at %s is in use and was not changed: stop all its reconcilers first", location.Redact(rawURL))
	}
	s, err := ledger.Open(ctx, rawURL, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r.LedgerID = s.ID()
	return r, s.Write(ctx, func(tx *ledger.Tx) error {
		r.At = tx.Now.Time()
		return tx.NoteRestored()
	})
}
