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
	onDisk = err == nil
	if err != nil {
		fd, err = unix.MemfdCreate("stream", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, false, err
	}
	return os.NewFile(uintptr(fd), "stream"), onDisk, nil
}
