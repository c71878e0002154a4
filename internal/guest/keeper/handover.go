//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// owner is a sandbox's user and group.
type owner struct{ uid, gid int }

// handOver gives a directory with its content to the sandbox's user, unless the user already owns the
// directory. The directory itself goes last, so that the next start after a crash begins again. It follows no
// link and enters no mount.
func handOver(root string, to owner) error {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // the image does not have it
	}
	if err != nil {
		return fmt.Errorf("hand %s over: %w", root, err)
	}
	dir := os.NewFile(uintptr(fd), root)
	var s unix.Stat_t
	err = unix.Fstat(fd, &s)
	if err == nil && (int(s.Uid) != to.uid || int(s.Gid) != to.gid) {
		var mounts map[string]bool
		if mounts, err = mountPoints(); err == nil {
			err = handOverBelow(dir, root, mounts, to)
		}
		if err == nil {
			err = unix.Fchown(fd, to.uid, to.gid)
		}
	}
	if err = errors.Join(err, dir.Close()); err != nil {
		return fmt.Errorf("hand %s over to %d:%d: %w", root, to.uid, to.gid, err)
	}
	return nil
}

// handOverBelow hands over the content of a directory, which it opens name by name.
func handOverBelow(dir *os.File, path string, mounts map[string]bool, to owner) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := handOverEntry(dir, path+"/"+name, name, mounts, to); err != nil {
			return err
		}
	}
	return nil
}

func handOverEntry(dir *os.File, path, name string, mounts map[string]bool, to owner) error {
	if mounts[path] {
		return nil // mounted content belongs to the host
	}
	fd := int(dir.Fd())
	var s unix.Stat_t // despite the flags, gVisor follows a link to a directory
	if err := unix.Fstatat(fd, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.Fchownat(fd, name, to.uid, to.gid, unix.AT_SYMLINK_NOFOLLOW)
	}
	child, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	below := os.NewFile(uintptr(child), path)
	err = handOverBelow(below, path, mounts, to)
	return errors.Join(err, unix.Fchown(child, to.uid, to.gid), below.Close())
}

// mountPoints returns all directories and files with a mount on them.
func mountPoints() (map[string]bool, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	found := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 {
			found[unescape.Replace(f[4])] = true
		}
	}
	return found, nil
}

// modes are the modes of the directories in memory. Runtimes replace the modes of these mounts by those of the image's
// directories.
var modes = map[string]fs.FileMode{
	"/tmp":           fs.ModeSticky | 0o777,
	"/run":           0o755,
	guest.SecretsDir: 0o700,
}

// restoreModes gives the directories in memory to the sandbox's user, with their modes.
func restoreModes(modes map[string]fs.FileMode, to owner) error {
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	for dir, mode := range modes {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() || !mounts[dir] {
			continue // it was not mounted for this sandbox
		}
		if err := errors.Join(os.Lchown(dir, to.uid, to.gid), os.Chmod(dir, mode)); err != nil {
			return fmt.Errorf("restore %s: %w", dir, err)
		}
	}
	return nil
}

const configFile = "/workspace/config.json"

// writeConfig writes config.json at the first start; later starts find it. The caller must have the sandbox's
// identity.
func writeConfig(config string) error {
	if config == "" {
		return nil
	}
	f, err := os.OpenFile(configFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := f.WriteString(config); err != nil {
		return errors.Join(err, f.Close(), os.Remove(configFile))
	}
	return f.Close()
}
