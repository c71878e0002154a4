// Package backupfile makes and restores backups. A backup is an embedded ledger in one file, whatever database it comes
// from. So the same program checks all backups, and a backup of one database can be restored to the other.
package backupfile

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgres"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Take copies a consistent snapshot of the ledger at a URL to a new file that only its owner may read. The
// ledger may be in use; no request waits. A PostgreSQL ledger must have this program's schema. Errors:
// NotFound if there is no ledger, Conflict if the file exists, Invalid, Unavailable.
func Take(ctx context.Context, rawURL, file string, o ledger.Options) (Info, error) {
	o = withDefaults(o)
	x, err := storage.Examine(ctx, rawURL)
	switch {
	case err != nil:
		return Info{}, err
	case x.ID == "":
		return Info{}, sandbox.Errorf(sandbox.NotFound, "there is no ledger at %s", location.Redact(rawURL))
	case x.MinReader > migrations.Newest, x.Server != "" && x.Schema != migrations.Newest:
		return Info{}, sandbox.Errorf(sandbox.Conflict,
			"the ledger has schema %d, but this program needs schema %d: back it up with the program that serves it",
			x.Schema, migrations.Newest)
	}
	var c Info
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
			c, err = Examine(ctx, temporary)
		}
		return err
	})
	c.File = file
	return c, err
}

// withDefaults fills in the defaults for backups.
func withDefaults(o ledger.Options) ledger.Options {
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
	return storage.Error("marking the backup", err)
}

// savePostgres copies a consistent snapshot of a PostgreSQL ledger to an empty file.
func savePostgres(ctx context.Context, rawURL, file string, o ledger.Options) (err error) {
	config, err := postgres.ConfigAt(rawURL)
	if err != nil {
		return err
	}
	from, err := postgres.Dial(config, map[string]string{"default_transaction_read_only": "on"}, 1)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "opening the ledger: %w", err)
	}
	pool, err := from.DB()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	snapshot, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return postgres.ConnectError(err)
	}
	defer func() { _ = snapshot.Rollback() }() // read only
	return newCopy(ctx, file, o, func(to *sql.Tx) error { return copyFromPostgres(ctx, snapshot, to) })
}

// newCopy creates an embedded ledger with this program's schema, and calls fill to fill it, including its
// identity.
func newCopy(ctx context.Context, file string, o ledger.Options, fill func(to *sql.Tx) error) (err error) {
	if err := storage.CreateTables(ctx, file, storage.Options(o)); err != nil {
		return err
	}
	db, err := sqlite.OpenFile(file, url.Values{"_pragma": {"foreign_keys(0)"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	to, err := db.BeginTx(ctx, nil)
	if err != nil {
		return storage.Error("filling the backup", err)
	}
	defer func() { _ = to.Rollback() }() // no effect after the commit
	if _, err := to.ExecContext(ctx, "DELETE FROM ledgers"); err != nil {
		return storage.Error("filling the backup", err)
	}
	if err := fill(to); err != nil {
		return err
	}
	return storage.Error("filling the backup", to.Commit())
}
