package backupfile

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgres"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Restore creates the ledger at a URL, where there must be none, from a backup of either database. Changes
// since the backup are missing; see ledger.Tx.NoteRestored. Errors: Conflict if there is a ledger, Invalid if the file
// is not a backup, Unavailable.
func Restore(ctx context.Context, file, rawURL string, o ledger.Options) (Info, error) {
	c, err := Examine(ctx, file)
	if err != nil {
		return c, err
	}
	u, err := location.Parse(rawURL)
	if err != nil {
		return c, err
	}
	if u.Scheme == "sqlite" {
		return c, restoreSQLite(ctx, file, u, o)
	}
	return c, restorePostgres(ctx, file, rawURL, o)
}

// CheckVacant checks that Restore would find room for a ledger at a URL. It changes nothing. Errors: Conflict if there
// is a ledger; as Open.
func CheckVacant(ctx context.Context, rawURL string) error {
	u, err := location.Parse(rawURL)
	if err != nil {
		return err
	}
	if u.Scheme == "sqlite" {
		path, err := location.SQLitePath(u)
		if err != nil {
			return err
		}
		return vacantSQLite(path)
	}
	x, err := storage.Examine(ctx, rawURL)
	if err != nil || x.ID == "" || x.Schema != migrations.Newest { // Restore migrates an older one before it looks
		return err
	}
	config, err := postgres.ConfigAt(rawURL)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return postgres.ConnectError(err)
	}
	return errors.Join(vacantPostgres(ctx, conn, rawURL), conn.Close(context.WithoutCancel(ctx)))
}

func vacantSQLite(path string) error {
	for _, part := range []string{"", "-wal", "-shm", "-journal"} { // SQLite would apply it to the new file
		if _, err := os.Lstat(path + part); !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Errorf(sandbox.Conflict,
				"%s exists and is not overwritten: stop the programs that use that ledger, and move it away with all its "+
					"files", path+part)
		}
	}
	return nil
}

// vacantPostgres checks that a ledger of this program's schema is unused.
func vacantPostgres(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, rawURL string) error {
	var used bool
	err := db.QueryRow(ctx,
		"SELECT EXISTS (SELECT FROM environments) OR EXISTS (SELECT FROM events) OR EXISTS (SELECT FROM tokens)").Scan(&used)
	switch {
	case err != nil:
		return storage.Error("restoring the ledger", err)
	case used:
		return sandbox.Errorf(sandbox.Conflict,
			"the ledger at %s already has data and is not overwritten: restore to another database or schema",
			location.Redact(rawURL))
	}
	return nil
}

func restoreSQLite(ctx context.Context, file string, u *url.URL, o ledger.Options) error {
	path, err := location.SQLitePath(u)
	if err != nil {
		return err
	}
	if err := vacantSQLite(path); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating the directory of ledger %s: %w", path, err)
	}
	if err := sqlite.RefuseNetworkFileSystem(filepath.Dir(path)); err != nil {
		return err
	}
	if err := writeNew(path, func(temporary string) error { return copySQLite(ctx, file, temporary) }); err != nil {
		return err
	}
	return activateAt(ctx, u.String(), o)
}

// activateAt opens a restored ledger once, which upgrades its schema.
func activateAt(ctx context.Context, rawURL string, o ledger.Options) error {
	s, err := ledger.Open(ctx, rawURL, o)
	if err != nil {
		return err
	}
	return s.Close()
}

// restorePostgres first upgrades a copy of the backup to this program's schema.
func restorePostgres(ctx context.Context, file, rawURL string, o ledger.Options) (err error) {
	dir, err := os.MkdirTemp("", "ledger-*")
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating a directory for the backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	current := filepath.Join(dir, "ledger.db")
	if err := private.Touch(current); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating %s: %w", current, err)
	}
	if err := copySQLite(ctx, file, current); err != nil {
		return err
	}
	if err := activateAt(ctx, (&url.URL{Scheme: "sqlite", Path: current}).String(), o); err != nil {
		return err
	}
	if err := activateAt(ctx, rawURL, o); err != nil { // creates the tables
		return err
	}
	return fillPostgres(ctx, current, rawURL)
}

// fillPostgres fills the tables of an unused ledger, in one transaction.
func fillPostgres(ctx context.Context, file, rawURL string) (err error) {
	from, err := sqlite.OpenFile(file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	config, err := postgres.ConfigAt(rawURL)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return postgres.ConnectError(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	to, err := conn.Begin(ctx)
	if err != nil {
		return storage.Error("restoring the ledger", err)
	}
	defer func() { _ = to.Rollback(context.WithoutCancel(ctx)) }() // no effect after the commit
	if _, err = to.Exec(ctx, "SELECT begin_commit()"); err != nil {
		return storage.Error("restoring the ledger", err)
	}
	if err := vacantPostgres(ctx, to, rawURL); err != nil {
		return err
	}
	if _, err := to.Exec(ctx, "DELETE FROM ledgers; DELETE FROM clocks"); err != nil {
		return storage.Error("restoring the ledger", err)
	}
	if err := copyToPostgres(ctx, from, to); err != nil {
		return err
	}
	return storage.Error("restoring the ledger", to.Commit(ctx))
}
