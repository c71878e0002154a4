package storage

import (
	"context"
	"errors"
	"net/url"
	"os"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Verify reads every page of an embedded ledger. Damage that it finds becomes a Fault. Its time grows with
// the ledger's size, but no writer waits. On PostgreSQL it does nothing: the server checks its pages. Errors:
// Unavailable.
func (s *Store) Verify(ctx context.Context) error {
	err := s.db.verify(ctx, s.reads)
	s.note(err)
	return err
}

// Verify checks a ledger that need not be open, including indexes against tables. It changes nothing. Errors:
// as Examine.
func Verify(ctx context.Context, rawURL string) (err error) {
	u, err := location.Parse(rawURL)
	if err != nil || u.Scheme != "sqlite" {
		return err
	}
	path, err := location.SQLitePath(u)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return sandbox.Errorf(sandbox.NotFound, "checking the ledger: %w", err)
	}
	db, err := sqlite.Dial(path, url.Values{"_pragma": {"busy_timeout(" + sqlite.BusyTimeout + ")", "query_only(1)",
		sqlite.CheckCells}}, 1)
	if err != nil {
		return openingSQLite(path, err)
	}
	defer func() { err = errors.Join(err, closeDB(db)) }()
	return sqlite.Check(ctx, db, "PRAGMA integrity_check(1)")
}

// verify asks SQLite for the first error.
func (sqliteDatabase) verify(ctx context.Context, db *gorm.DB) error {
	return sqlite.Check(ctx, db, "PRAGMA quick_check(1)")
}

func (*postgresDatabase) verify(context.Context, *gorm.DB) error { return nil }
