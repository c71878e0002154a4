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
	"github.com/pressly/goose/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A backup is an embedded ledger in one file, whatever database it was taken from: so each is checked by the
// same program, and what was taken from one database is restored to the other as well.

// Backup copies the ledger at a URL, as it is in one moment, to a new file that only its owner may read. The
// ledger may be served meanwhile: no request waits. Of a PostgreSQL the schema must be this program's. Errors:
// NotFound where there is no ledger, Conflict for a file that exists, Invalid, Unavailable.
func Backup(ctx context.Context, rawURL, file string, o Options) (Contents, error) {
	o = o.withDefaults()
	x, err := Examine(ctx, rawURL)
	switch {
	case err != nil:
		return Contents{}, err
	case x.ID == "":
		return Contents{}, sandbox.Errorf(sandbox.NotFound, "there is no ledger at %s", RedactURL(rawURL))
	case x.MinReader > schemaVersion, x.Server != "" && x.Schema != schemaVersion:
		return Contents{}, sandbox.Errorf(sandbox.Conflict, "the ledger has schema %d, and this program knows schema %d: back it up with the program that serves it", x.Schema, schemaVersion)
	}
	var c Contents
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

// withDefaults fills in what backups are given by default.
func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.IDs == nil {
		o.IDs = sandbox.RandomIDs
	}
	return o
}

// writeNew makes a file, for its owner only, that is either whole or empty. It takes the name first, so that
// nothing that exists is ever replaced. Errors: Conflict when the file exists; Unavailable.
func writeNew(file string, write func(temporary string) error) (err error) {
	reserved, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // #nosec G304 -- the operator names the file
	if errors.Is(err, fs.ErrExist) {
		return sandbox.Errorf(sandbox.Conflict, "%s exists, and nothing is overwritten: name another file, or move it away", file)
	}
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making %s: %w", file, err)
	}
	temporary := file + ".partial"
	defer func() {
		_ = reserved.Close() // nothing was written
		if err != nil {
			err = errors.Join(err, removeAll(temporary, temporary+"-journal", temporary+"-wal", temporary+"-shm", file))
		}
	}()
	if err := removeAll(temporary); err != nil { // of a program that was killed
		return err
	}
	if err := createPrivate(temporary); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making %s: %w", temporary, err)
	}
	if err := write(temporary); err != nil {
		return err
	}
	if err := errors.Join(syncFile(temporary), os.Rename(temporary, file), syncFile(filepath.Dir(file))); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "writing %s: %w", file, err)
	}
	return nil
}

func removeAll(files ...string) error {
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Errorf(sandbox.Unavailable, "removing %s: %w", file, err)
		}
	}
	return nil
}

// syncFile has a file, or what a directory lists, be on the disk.
func syncFile(path string) error {
	f, err := os.Open(path) // #nosec G304 -- the operator names the file
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// open returns a connection to an embedded ledger's file, as it is.
func openFile(file string, q url.Values) (*sql.DB, error) {
	db, err := dial(file, q, 1)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "opening %s: %w", file, err)
	}
	return db.DB()
}

// copySQLite copies an embedded ledger, as it is in one moment, to an empty file. Writers do not wait for it,
// nor it for them.
func copySQLite(ctx context.Context, from, to string) (err error) {
	db, err := openFile(from, url.Values{"_pragma": {"busy_timeout(" + busyTimeout + ")"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "copying ledger %s to %s: %w", from, to, err)
	}
	return nil
}

// markBackup notes when a backup was taken. A ledger of schema 1 has no place for that.
func markBackup(ctx context.Context, file string, now time.Time) (err error) {
	db, err := openFile(file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	columns, err := columnsOf(ctx, db, "ledgers")
	for _, column := range columns {
		if column == "backed_up_at" {
			_, err = db.ExecContext(ctx, "UPDATE ledgers SET backed_up_at = ?", At(now))
		}
	}
	return unavailable("marking the backup", err)
}

// savePostgres copies the ledger of a PostgreSQL, as it is in one moment, to an empty file.
func savePostgres(ctx context.Context, rawURL, file string, o Options) (err error) {
	config, err := postgresAt(rawURL)
	if err != nil {
		return err
	}
	from, err := dialPostgres(config, map[string]string{"default_transaction_read_only": "on"}, 1)
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
		return connecting(err)
	}
	defer func() { _ = snapshot.Rollback() }() // it only reads
	return newCopy(ctx, file, o, func(to *sql.Tx) error { return copyFromPostgres(ctx, snapshot, to) })
}

// newCopy makes an embedded ledger of this program's schema and has it filled, its identity included.
func newCopy(ctx context.Context, file string, o Options, fill func(to *sql.Tx) error) (err error) {
	db, err := dial(file, url.Values{"_pragma": {"foreign_keys(0)"}}, 1)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, closeDB(db)) }()
	pool, err := db.DB()
	if err != nil {
		return err
	}
	if _, err := migrate(ctx, goose.DialectSQLite3, pool, db, o); err != nil {
		return err
	}
	to, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return unavailable("filling the backup", err)
	}
	defer func() { _ = to.Rollback() }() // without effect once it is committed
	if _, err := to.ExecContext(ctx, "DELETE FROM ledgers"); err != nil {
		return unavailable("filling the backup", err)
	}
	if err := fill(to); err != nil {
		return err
	}
	return unavailable("filling the backup", to.Commit())
}

// Restore makes the ledger at a URL, where there must be none, of a backup of either database. What happened
// since the backup was taken is not in it; see comeToLife. Errors: Conflict where there is a ledger, Invalid
// for a file that is no backup, Unavailable.
func Restore(ctx context.Context, file, rawURL string, o Options) (Contents, error) {
	c, err := ExamineBackup(ctx, file)
	if err != nil {
		return c, err
	}
	u, err := parseURL(rawURL)
	if err != nil {
		return c, err
	}
	if u.Scheme == "sqlite" {
		return c, restoreSQLite(ctx, file, u, o)
	}
	return c, restorePostgres(ctx, file, rawURL, o)
}

func restoreSQLite(ctx context.Context, file string, u *url.URL, o Options) error {
	path, err := sqlitePath(u)
	if err != nil {
		return err
	}
	for _, part := range []string{"", "-wal", "-shm", "-journal"} { // SQLite would take one for the new file's
		if _, err := os.Lstat(path + part); !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Errorf(sandbox.Conflict, "%s exists, and nothing is overwritten: stop what uses that ledger, and move it away with all its files", path+part)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making the directory of ledger %s: %w", path, err)
	}
	if err := refuseNetworkFileSystem(filepath.Dir(path)); err != nil {
		return err
	}
	if err := writeNew(path, func(temporary string) error { return copySQLite(ctx, file, temporary) }); err != nil {
		return err
	}
	return comeToLifeAt(ctx, u.String(), o)
}

// comeToLifeAt opens a restored ledger once, which brings its schema up to date.
func comeToLifeAt(ctx context.Context, rawURL string, o Options) error {
	s, err := Open(ctx, rawURL, o)
	if err != nil {
		return err
	}
	return s.Close()
}

// restorePostgres brings a copy of the backup to this program's schema first.
func restorePostgres(ctx context.Context, file, rawURL string, o Options) (err error) {
	dir, err := os.MkdirTemp("", "ledger-*")
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making a directory for the backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	current := filepath.Join(dir, "ledger.db")
	if err := createPrivate(current); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making %s: %w", current, err)
	}
	if err := copySQLite(ctx, file, current); err != nil {
		return err
	}
	if err := comeToLifeAt(ctx, (&url.URL{Scheme: "sqlite", Path: current}).String(), o); err != nil {
		return err
	}
	if err := comeToLifeAt(ctx, rawURL, o); err != nil { // makes the tables
		return err
	}
	return fillPostgres(ctx, current, rawURL)
}

// fillPostgres fills the tables of an unused ledger, in one transaction.
func fillPostgres(ctx context.Context, file, rawURL string) (err error) {
	from, err := openFile(file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	config, err := postgresAt(rawURL)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return connecting(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	to, err := conn.Begin(ctx)
	if err != nil {
		return unavailable("restoring the ledger", err)
	}
	defer func() { _ = to.Rollback(context.WithoutCancel(ctx)) }() // without effect once it is committed
	var used bool
	_, err = to.Exec(ctx, "SELECT begin_commit()")
	if err == nil {
		err = to.QueryRow(ctx, "SELECT EXISTS (SELECT FROM environments) OR EXISTS (SELECT FROM events) OR EXISTS (SELECT FROM tokens)").Scan(&used)
	}
	switch {
	case err != nil:
		return unavailable("restoring the ledger", err)
	case used:
		return sandbox.Errorf(sandbox.Conflict, "the ledger at %s is in use, and nothing is overwritten: restore to another database or schema", RedactURL(rawURL))
	}
	if _, err := to.Exec(ctx, "DELETE FROM ledgers; DELETE FROM clocks"); err != nil {
		return unavailable("restoring the ledger", err)
	}
	if err := copyToPostgres(ctx, from, to); err != nil {
		return err
	}
	return unavailable("restoring the ledger", to.Commit(ctx))
}
