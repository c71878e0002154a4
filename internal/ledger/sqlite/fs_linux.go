package sqlite

import (
	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// FreeBytes returns the free space of a file system for unprivileged users.
func FreeBytes(path string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, sandbox.Errorf(sandbox.Unavailable, "reading the file system of %s: %w", path, err)
	}
	return st.Bavail * uint64(st.Bsize), nil //nolint:gosec // a block has a size
}

// RefuseNetworkFileSystem refuses file systems on which a second machine would corrupt SQLite's write-ahead
// log, which uses shared memory.
func RefuseNetworkFileSystem(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "reading the file system of %s: %w", path, err)
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.V9FS_MAGIC:
		return sandbox.Errorf(sandbox.Invalid,
			"ledger %s is on a network file system, where an embedded ledger is not safe: move it to a local disk", path)
	}
	return nil
}
