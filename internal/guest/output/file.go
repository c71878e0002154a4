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

// NamelessFile creates a file without a name: on the workspace's disk, which the sandbox owns, or in memory
// if that fails.
func NamelessFile() (file *os.File, onDisk bool, err error) {
	fd, err := unix.Open("/workspace", unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "stream"), true, nil
	}
	file, err = InMemory()
	return file, false, err
}

// InMemory creates a file without a name in memory.
func InMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("stream", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "stream"), nil
}
