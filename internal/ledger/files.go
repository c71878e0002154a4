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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// parts are the suffixes of an embedded ledger's files while it is open. The last two are the write-ahead
// log and its index.
var parts = []string{"", "-wal", "-shm"}

// prepare creates the ledger's file if there is none, and refuses a file that cannot be a ledger. If the
// program is killed meanwhile, no half-made ledger is left: an empty file is never ours. The caller must hold
// the lock. Errors: Invalid, Conflict, Unavailable.
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
		return sandbox.Errorf(sandbox.Invalid, "ledger %s is an empty file, but a ledger is never empty: restore a "+
			"backup. If it never held a ledger, remove it (`rm %s`) and start again", path, path)
	}
	for _, part := range parts {
		info, err := os.Stat(path + part)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the other files exist while the ledger is open
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

// create creates a ledger, first under another name.
func create(ctx context.Context, path string, o Options) (err error) {
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
	if err := fill(ctx, temporary, o); err != nil {
		return err
	}
	err = errors.Join(wholefile.Sync(temporary), os.Rename(temporary, path), wholefile.Sync(filepath.Dir(path)))
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating ledger %s: %w", path, err)
	}
	o.Logger.Info("ledger: created a new one", "file", path)
	return nil
}

// fill creates the tables of a new ledger. The file counts only once it is complete, so SQLite needs no
// journal.
func fill(ctx context.Context, file string, o Options) (err error) {
	db, err := dial(file, url.Values{"_pragma": {"journal_mode(MEMORY)", "synchronous(OFF)", "foreign_keys(1)"}}, 1)
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

// locked runs fn under the ledger's file lock. Without a lock, processes that create or migrate the same
// ledger at once break each other.
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

// noteFiles records the files of a newly opened ledger.
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

// intact returns an error if a file was deleted or replaced since: SQLite's writes would then be lost with
// this process.
func (f openFiles) intact() error {
	for i, part := range parts {
		info, err := os.Stat(f.path + part)
		switch {
		case err != nil:
			return sandbox.Errorf(sandbox.Unavailable,
				"ledger %s: looking for its file %s: %w; all writes are refused while it is missing", f.path, f.path+part, err)
		case !os.SameFile(info, f.was[i]):
			return sandbox.Errorf(sandbox.Unavailable,
				"ledger %s: its file %s was replaced while this program used it; all writes are refused", f.path, f.path+part)
		}
	}
	return nil
}

// rescue saves this process's committed data from files that are gone, and returns the new file.
func (s *Store) rescue(path string) (file string, err error) {
	file = path + ".rescued-" + s.now().UTC().Format("20060102T150405.000Z")
	if err := private.Touch(file); err != nil {
		return "", err
	}
	if err := s.writes.Exec("VACUUM INTO ?", file).Error; err != nil {
		return "", errors.Join(err, private.Remove(file))
	}
	return file, wholefile.Sync(file)
}

// logRescue saves data that would be lost with this process, and logs where it is.
func (s *Store) logRescue(path string) {
	file, err := s.rescue(path)
	if err != nil {
		s.log.Error("ledger: committed data could not be saved; while this program runs, its open files in "+
			"/proc/PID/fd still hold it", "error", err)
		return
	}
	s.log.Error("ledger: committed data is saved; stop this program, remove the rest of "+path+
		" with its -wal and -shm, and move the saved file there", "file", file)
}
