package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// lockRetry is how often the file lock is tried.
const lockRetry = 20 * time.Millisecond

// parts are the suffixes of an embedded ledger's files while it is open. The last two are the write-ahead
// log and its index.
var parts = []string{"", "-wal", "-shm"}

// CheckFile refuses an empty ledger and one that others may read. Errors: Invalid, Unavailable.
func CheckFile(path string, info fs.FileInfo) error {
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

// Locked runs fn under the ledger's file lock. Without a lock, processes that create or migrate the same ledger at the
// same time would break it for each other.
func Locked(ctx context.Context, path string, fn func() error) error {
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "locking ledger %s: %w", path, err)
	}
	defer func() { _ = lock.Close() }()
	return fn()
}

// Files are the files that an open ledger writes to.
type Files struct {
	Path string        // of the ledger itself
	was  []fs.FileInfo // by part
}

// NoteFiles records the files of a newly opened ledger. Errors: Unavailable.
func NoteFiles(path string) (Files, error) {
	f := Files{Path: path}
	for _, part := range parts {
		info, err := os.Stat(path + part)
		if err != nil {
			return f, sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
		}
		f.was = append(f.was, info)
	}
	return f, nil
}

// Intact returns an error if a file was deleted or replaced since: SQLite's writes would then be lost with
// this process. Errors: Unavailable.
func (f Files) Intact() error {
	for i, part := range parts {
		info, err := os.Stat(f.Path + part)
		switch {
		case err != nil:
			return sandbox.Errorf(sandbox.Unavailable,
				"ledger %s: looking for its file %s: %w; all writes are refused while it is missing", f.Path, f.Path+part, err)
		case !os.SameFile(info, f.was[i]):
			return sandbox.Errorf(sandbox.Unavailable,
				"ledger %s: its file %s was replaced while this program used it; all writes are refused", f.Path, f.Path+part)
		}
	}
	return nil
}
