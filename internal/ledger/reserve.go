package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// reserve is a file next to an embedded ledger that reserves disk space. When the disk is full, it is
// removed, and essential work uses its space: the program starts, and leases end. Everything else is refused
// until there is space for the file again.
type reserve struct {
	file string
	size int64 // 0: no reserve
}

func newReserve(path string, size int64) reserve { return reserve{path + ".reserve", size} }

// fill creates the file unless it is complete. It fails on a full disk.
func (r reserve) fill() (err error) {
	info, err := os.Stat(r.file)
	switch {
	case err == nil && info.Size() == r.size:
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.OpenFile(r.file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // a partial file would count as complete
			err = errors.Join(err, os.Remove(r.file))
		}
	}()
	chunk := make([]byte, 64<<10)
	_, _ = rand.Read(chunk) // never fails. A file of zeros takes up no room on some disks
	for left := r.size; left > 0 && err == nil; left -= int64(len(chunk)) {
		_, err = f.Write(chunk[:min(left, int64(len(chunk)))])
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// release frees the space and reports whether there was any.
func (r reserve) release() bool { return r.size > 0 && os.Remove(r.file) == nil }

// restore creates the file again if the disk has twice its space.
func (r reserve) restore() bool {
	free, err := freeBytes(filepath.Dir(r.file))
	return err == nil && (free == 0 || free >= 2*uint64(r.size)) && r.fill() == nil //nolint:gosec // a size is positive
}

// isFull reports whether SQLite found its disk full.
func isFull(err error) bool {
	failed, ok := errors.AsType[*sqlite.Error](err)
	return ok && (failed.Code()&0xff == sqlite3.SQLITE_FULL || failed.Code() == sqlite3.SQLITE_IOERR_SHMSIZE)
}

type essentialKey struct{}

// Essential marks work that must continue on a full disk: its writes may use the reserve.
func Essential(ctx context.Context) context.Context {
	return context.WithValue(ctx, essentialKey{}, true)
}

func isEssential(ctx context.Context) bool { return ctx.Value(essentialKey{}) != nil }
