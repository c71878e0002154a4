package storage

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/pressly/goose/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// prepare creates the ledger's file if there is none, and refuses a file that cannot be a ledger. If the
// program is killed meanwhile, no half-made ledger is left: an empty file is never ours. The caller must hold
// the lock. Errors: Invalid, Conflict, Unavailable.
func prepare(ctx context.Context, path string, o Options) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createFile(ctx, path, o)
	case err != nil:
		return sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
	}
	return sqlite.CheckFile(path, info)
}

// createFile creates a ledger, first under another name.
func createFile(ctx context.Context, path string, o Options) (err error) {
	for _, part := range []string{"-wal", "-journal"} { // SQLite would apply them to the new file
		if _, err := os.Lstat(path + part); !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Errorf(sandbox.Conflict, "ledger %s is missing, but %s exists, which holds its last changes: "+
				"restore the ledger's file, or move %s away to start a new ledger", path, path+part, path+part)
		}
	}
	temporary := path + ".new"
	defer func() {
		if err != nil {
			err = errors.Join(err, private.Remove(temporary))
		}
	}()
	if err := private.Remove(temporary); err != nil { // left by a program that was killed
		return err
	}
	if err := private.Touch(temporary); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating ledger %s: %w", path, err)
	}
	if err := CreateTables(ctx, temporary, o); err != nil {
		return err
	}
	err = errors.Join(wholefile.Sync(temporary), os.Rename(temporary, path), wholefile.Sync(filepath.Dir(path)))
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating ledger %s: %w", path, err)
	}
	o.Logger.Info("ledger: created a new one", "file", path)
	return nil
}

// CreateTables creates the tables of a new ledger in an empty file. Options.Now and IDs must be set. The file counts
// only once it is complete, so SQLite needs no journal.
func CreateTables(ctx context.Context, file string, o Options) (err error) {
	db, err := sqlite.Dial(file, url.Values{"_pragma": {"journal_mode(MEMORY)", "synchronous(OFF)", "foreign_keys(1)"}}, 1)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating ledger %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, closeDB(db)) }()
	pool, err := db.DB()
	if err != nil {
		return err
	}
	_, err = migrate(ctx, goose.DialectSQLite3, pool, db, o)
	return err
}
