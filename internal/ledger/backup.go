package ledger

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgres"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A backup is an embedded ledger in one file, whatever database it comes from. So the same program checks all
// backups, and a backup of one database can be restored to the other.

// Backup copies a consistent snapshot of the ledger at a URL to a new file that only its owner may read. The
// ledger may be in use; no request waits. A PostgreSQL ledger must have this program's schema. Errors:
// NotFound if there is no ledger, Conflict if the file exists, Invalid, Unavailable.
func Backup(ctx context.Context, rawURL, file string, o Options) (BackupInfo, error) {
	o = o.withDefaults()
	x, err := Examine(ctx, rawURL)
	switch {
	case err != nil:
		return BackupInfo{}, err
	case x.ID == "":
		return BackupInfo{}, sandbox.Errorf(sandbox.NotFound, "there is no ledger at %s", location.Redact(rawURL))
	case x.MinReader > migrations.Newest, x.Server != "" && x.Schema != migrations.Newest:
		return BackupInfo{}, sandbox.Errorf(sandbox.Conflict,
			"the ledger has schema %d, but this program needs schema %d: back it up with the program that serves it",
			x.Schema, migrations.Newest)
	}
	var c BackupInfo
	err = writeNew(file, func(temporary string) (err error) {
		if x.Server == "" {
			err = copySQLite(ctx, x.Path, temporary)
		} else {
			err = savePostgres(ctx, rawURL, temporary, o)
		}
		if err == nil {
			err = markBackup(ctx, temporary, o.Now())
		}
		if err == nil {
			c, err = ExamineBackup(ctx, temporary)
		}
		return err
	})
	c.File = file
	return c, err
}

// withDefaults fills in the defaults for backups.
func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.IDs == nil {
		o.IDs = sandbox.RandomIDs
	}
	return o
}

// writeNew creates the file of an embedded ledger, complete or not at all; see private.Create.
func writeNew(file string, write func(temporary string) error) error {
	return private.Create(file, func(temporary string) error {
		err := write(temporary)
		if err != nil {
			err = errors.Join(err, private.Remove(temporary+"-journal", temporary+"-wal", temporary+"-shm"))
		}
		return err
	})
}

// copySQLite copies a consistent snapshot of an embedded ledger to an empty file. Neither it nor writers wait
// for each other.
func copySQLite(ctx context.Context, from, to string) (err error) {
	db, err := sqlite.OpenFile(from, url.Values{"_pragma": {"busy_timeout(" + sqlite.BusyTimeout + ")"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "copying ledger %s to %s: %w", from, to, err)
	}
	return nil
}

// markBackup records the time of the backup. A ledger of schema 1 has no column for it.
func markBackup(ctx context.Context, file string, now time.Time) (err error) {
	db, err := sqlite.OpenFile(file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	columns, err := columnsOf(ctx, db, "ledgers")
	for _, column := range columns {
		if column == "backed_up_at" {
			_, err = db.ExecContext(ctx, "UPDATE ledgers SET backed_up_at = ?", micro.At(now))
		}
	}
	return unavailable("marking the backup", err)
}

// savePostgres copies a consistent snapshot of a PostgreSQL ledger to an empty file.
func savePostgres(ctx context.Context, rawURL, file string, o Options) (err error) {
	config, err := postgres.ConfigAt(rawURL)
	if err != nil {
		return err
	}
	from, err := postgres.Dial(config, map[string]string{"default_transaction_read_only": "on"}, 1)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "opening the ledger: %w", err)
	}
	defer func() { err = errors.Join(err, closeDB(from)) }()
	pool, err := from.DB()
	if err != nil {
		return err
	}
	snapshot, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return postgres.ConnectError(err)
	}
	defer func() { _ = snapshot.Rollback() }() // read only
	return newCopy(ctx, file, o, func(to *sql.Tx) error { return copyFromPostgres(ctx, snapshot, to) })
}

// newCopy creates an embedded ledger with this program's schema, and calls fill to fill it, including its
// identity.
func newCopy(ctx context.Context, file string, o Options, fill func(to *sql.Tx) error) (err error) {
	if err := createTables(ctx, file, rawOptions(o)); err != nil {
		return err
	}
	db, err := sqlite.OpenFile(file, url.Values{"_pragma": {"foreign_keys(0)"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	to, err := db.BeginTx(ctx, nil)
	if err != nil {
		return unavailable("filling the backup", err)
	}
	defer func() { _ = to.Rollback() }() // no effect after the commit
	if _, err := to.ExecContext(ctx, "DELETE FROM ledgers"); err != nil {
		return unavailable("filling the backup", err)
	}
	if err := fill(to); err != nil {
		return err
	}
	return unavailable("filling the backup", to.Commit())
}

// Restore creates the ledger at a URL, where there must be none, from a backup of either database. Changes
// since the backup are missing; see activate. Errors: Conflict if there is a ledger, Invalid if the file is
// not a backup, Unavailable.
func Restore(ctx context.Context, file, rawURL string, o Options) (BackupInfo, error) {
	c, err := ExamineBackup(ctx, file)
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
	x, err := Examine(ctx, rawURL)
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
		return unavailable("restoring the ledger", err)
	case used:
		return sandbox.Errorf(sandbox.Conflict,
			"the ledger at %s already has data and is not overwritten: restore to another database or schema", location.Redact(rawURL))
	}
	return nil
}

func restoreSQLite(ctx context.Context, file string, u *url.URL, o Options) error {
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
func activateAt(ctx context.Context, rawURL string, o Options) error {
	s, err := Open(ctx, rawURL, o)
	if err != nil {
		return err
	}
	return s.Close()
}

// restorePostgres first upgrades a copy of the backup to this program's schema.
func restorePostgres(ctx context.Context, file, rawURL string, o Options) (err error) {
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
		return unavailable("restoring the ledger", err)
	}
	defer func() { _ = to.Rollback(context.WithoutCancel(ctx)) }() // no effect after the commit
	if _, err = to.Exec(ctx, "SELECT begin_commit()"); err != nil {
		return unavailable("restoring the ledger", err)
	}
	if err := vacantPostgres(ctx, to, rawURL); err != nil {
		return err
	}
	if _, err := to.Exec(ctx, "DELETE FROM ledgers; DELETE FROM clocks"); err != nil {
		return unavailable("restoring the ledger", err)
	}
	if err := copyToPostgres(ctx, from, to); err != nil {
		return err
	}
	return unavailable("restoring the ledger", to.Commit(ctx))
}
