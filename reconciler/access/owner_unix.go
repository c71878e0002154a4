//go:build unix

package access

import (
	"io/fs"
	"os"
	"syscall"
)

// copyOwner gives a file the owner and the group of another, because root may rotate the secrets of a service.
func copyOwner(f *os.File, was fs.FileInfo) error {
	stat, ok := was.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) == os.Geteuid() && int(stat.Gid) == os.Getegid() {
		return nil
	}
	return f.Chown(int(stat.Uid), int(stat.Gid))
}
