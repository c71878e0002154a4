package sqlite

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Reserve is a file next to an embedded ledger that reserves disk space. When the disk is full, it is
// removed, and essential work uses its space: the program starts, and leases end. Everything else is refused
// until there is space for the file again.
type Reserve struct {
	file string
	size int64 // 0: no reserve
}

// NewReserve describes the reserve of the ledger in a file, in bytes; 0 for none. It creates nothing.
func NewReserve(path string, size int64) Reserve { return Reserve{path + ".reserve", size} }

// Fill creates the file unless it is complete. It fails on a full disk.
func (r Reserve) Fill() (err error) {
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

// Release frees the space and reports whether there was any.
func (r Reserve) Release() bool { return r.size > 0 && os.Remove(r.file) == nil }

// Restore creates the file again if the disk has twice its space.
func (r Reserve) Restore() bool {
	free, err := FreeBytes(filepath.Dir(r.file))
	return err == nil && (free == 0 || free >= 2*uint64(r.size)) && r.Fill() == nil //nolint:gosec // a size is positive
}
