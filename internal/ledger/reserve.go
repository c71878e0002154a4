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

// reserve is a file beside an embedded ledger that takes up room on its disk. When the disk is full, the file is removed,
// and what must go on uses its room: the program starts, and leases end. Everything else is refused until there is
// room for the file again.
type reserve struct {
	file string
	size int64 // 0: no reserve
}

func newReserve(path string, size int64) reserve { return reserve{path + ".reserve", size} }

// fill makes the file unless it is whole. It fails on a disk that is full.
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
		if err != nil { // a part of it would count as the whole
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

// release frees the room and reports whether there was any.
func (r reserve) release() bool { return r.size > 0 && os.Remove(r.file) == nil }

// restore makes the file again if the disk has room for it, and as much beside it.
func (r reserve) restore() bool {
	free, err := freeBytes(filepath.Dir(r.file))
	return err == nil && (free == 0 || free >= 2*uint64(r.size)) && r.fill() == nil //nolint:gosec // a size is positive
}

// isFull reports whether SQLite found no room on its disk.
func isFull(err error) bool {
	failed, ok := errors.AsType[*sqlite.Error](err)
	return ok && (failed.Code()&0xff == sqlite3.SQLITE_FULL || failed.Code() == sqlite3.SQLITE_IOERR_SHMSIZE)
}

type essentialKey struct{}

// Essential marks what must go on when the disk is full: its writes may use the reserve.
func Essential(ctx context.Context) context.Context {
	return context.WithValue(ctx, essentialKey{}, true)
}

func isEssential(ctx context.Context) bool { return ctx.Value(essentialKey{}) != nil }
