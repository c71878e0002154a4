package ledger

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"github.com/pressly/goose/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// parts are the suffixes of an embedded ledger's files while it is open. The last two are the write-ahead log and its index.
var parts = []string{"", "-wal", "-shm"}

// prepare makes the ledger's file if there is none, and refuses one that cannot be a ledger. A program that is killed
// meanwhile leaves no half-made ledger: an empty file is never ours. Its caller holds the lock.
// Errors: Invalid, Conflict, Unavailable.
func prepare(ctx context.Context, path string, o Options) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return create(ctx, path, o)
	case err != nil:
		return sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
	}
	return checkFile(path, info)
}

// checkFile refuses an empty ledger and one that others may read. Errors: Invalid, Unavailable.
func checkFile(path string, info fs.FileInfo) error {
	if info.Size() == 0 {
		return sandbox.Errorf(sandbox.Invalid, "ledger %s is an empty file, and a ledger never is: restore a backup. If it never held a ledger, remove it (`rm %s`) and start again", path, path)
	}
	for _, part := range parts {
		info, err := os.Stat(path + part)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the others are there while the ledger is open
			continue
		case err != nil:
			return sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
		}
		if err := private.Check(path+part, "the ledger", info); err != nil {
			return err
		}
	}
	return nil
}

// create makes a ledger under another name first.
func create(ctx context.Context, path string, o Options) (err error) {
	for _, part := range []string{"-wal", "-journal"} { // SQLite would take them for the new file's
		if _, err := os.Lstat(path + part); !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Errorf(sandbox.Conflict, "ledger %s is missing, and %s is there, which holds its last changes: put the ledger back, or move %s away to begin a new one", path, path+part, path+part)
		}
	}
	temporary := path + ".new"
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(temporary))
		}
	}()
	if err := removeAll(temporary); err != nil { // of a program that was killed
		return err
	}
	if err := createPrivate(temporary); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making ledger %s: %w", path, err)
	}
	if err := fill(ctx, temporary, o); err != nil {
		return err
	}
	if err := errors.Join(syncFile(temporary), os.Rename(temporary, path), syncFile(filepath.Dir(path))); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making ledger %s: %w", path, err)
	}
	o.Logger.Info("ledger: made a new one", "file", path)
	return nil
}

// fill makes the tables of a new ledger. The file counts only once it is whole, so SQLite need not write a journal.
func fill(ctx context.Context, file string, o Options) (err error) {
	db, err := dial(file, url.Values{"_pragma": {"journal_mode(MEMORY)", "synchronous(OFF)", "foreign_keys(1)"}}, 1)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making ledger %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, closeDB(db)) }()
	pool, err := db.DB()
	if err != nil {
		return err
	}
	_, err = migrate(ctx, goose.DialectSQLite3, pool, db, o)
	return err
}

// createPrivate makes a file before SQLite does, so that its mode, and that of the files SQLite puts beside it, is 0600.
func createPrivate(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// locked runs fn under the ledger's file lock: without one, processes that make or migrate the same ledger at the same
// time fail each other.
func locked(ctx context.Context, path string, fn func() error) error {
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "locking ledger %s: %w", path, err)
	}
	defer func() { _ = lock.Close() }()
	return fn()
}

// openFiles are the files that an open ledger writes to.
type openFiles struct {
	path string
	was  []fs.FileInfo // by part
}

// noteFiles remembers the files of a ledger that has just been opened.
func noteFiles(path string) (openFiles, error) {
	f := openFiles{path: path}
	for _, part := range parts {
		info, err := os.Stat(path + part)
		if err != nil {
			return f, sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
		}
		f.was = append(f.was, info)
	}
	return f, nil
}

// intact returns an error if a file was deleted or replaced since: what SQLite then writes is lost with this process.
func (f openFiles) intact() error {
	for i, part := range parts {
		info, err := os.Stat(f.path + part)
		switch {
		case err != nil:
			return sandbox.Errorf(sandbox.Unavailable, "ledger %s: looking for its file %s: %w; nothing is written while it is missing", f.path, f.path+part, err)
		case !os.SameFile(info, f.was[i]):
			return sandbox.Errorf(sandbox.Unavailable, "ledger %s: its file %s was replaced beneath this program; nothing is written", f.path, f.path+part)
		}
	}
	return nil
}

// rescue saves what this process has committed to files that are gone, and returns the new file.
func (s *Store) rescue(path string) (file string, err error) {
	file = path + ".rescued-" + s.now().UTC().Format("20060102T150405.000Z")
	if err := createPrivate(file); err != nil {
		return "", err
	}
	if err := s.writes.Exec("VACUUM INTO ?", file).Error; err != nil {
		return "", errors.Join(err, removeAll(file))
	}
	return file, syncFile(file)
}

// tellRescue saves what would be lost with this process, and says where it is.
func (s *Store) tellRescue(path string) {
	file, err := s.rescue(path)
	if err != nil {
		s.log.Error("ledger: what was committed could not be saved; while this program runs, its open files in /proc/PID/fd still hold it", "error", err)
		return
	}
	s.log.Error("ledger: what was committed is saved; stop this program, remove what is left of "+path+" with its -wal and -shm, and move the saved file there", "file", file)
}
