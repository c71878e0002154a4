//go:build linux

package output

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	// DiskLimit and MemoryLimit limit the kept output of one stream, in bytes.
	DiskLimit   = 16 << 20
	MemoryLimit = 1 << 20
)

// Create creates a file without a name, and returns how many bytes of output it may hold: onDisk, or MemoryLimit if it
// is in memory.
type Create func(onDisk int64) (file *os.File, limit int64, err error)

// NamelessFile is a Create: on the workspace's disk, which the sandbox owns, or in memory if that fails.
func NamelessFile(onDisk int64) (file *os.File, limit int64, err error) {
	fd, err := unix.Open("/workspace", unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "stream"), onDisk, nil
	}
	file, err = InMemory()
	return file, MemoryLimit, err
}

// InMemory creates a file without a name in memory.
func InMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("stream", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "stream"), nil
}
