//go:build linux

package disk

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/identity"
)

// inode identifies a file, whatever its names.
type inode struct{ dev, ino uint64 }

func inodeOf(s *unix.Stat_t) inode { return inode{uint64(s.Dev), s.Ino} } //nolint:unconvert // as wide on every architecture

// measure returns the disk use of the trees below the roots, plus that of open files on their devices without a name.
func (d *watch) measure() (used int64, err error) {
	w := walk{elsewhere: d.elsewhere, buffer: make([]byte, 4096), as: d.limits.As}
	devices := map[uint64]bool{}
	for _, root := range d.limits.Roots {
		dev, err := w.tree(root)
		if err != nil {
			return 0, err
		}
		devices[dev] = true
	}
	return w.used + w.nameless(d.limits.Holders(), devices), nil
}

// mountsBelow returns the roots of mounts below directories. They are constant, because nothing in a sandbox
// can mount.
func mountsBelow(roots []string) map[inode]bool {
	found := map[inode]bool{}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return found // then mounts count too
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		at := unescape.Replace(f[4])
		for _, root := range roots {
			var s unix.Stat_t
			if strings.HasPrefix(at, root+"/") && unix.Stat(at, &s) == nil {
				found[inodeOf(&s)] = true
			}
		}
	}
	return found
}

// walk adds up a tree. It keeps one descriptor and a few bytes per level, so it can handle any depth.
type walk struct {
	elsewhere map[inode]bool
	buffer    []byte
	used      int64
	levels    []level
	as        Identity // of the thread
}

// level is a parent directory, the position at which the walk continues in it, and the identity for it.
type level struct {
	inode
	next int64
	as   Identity
}

// Identity is a file-system identity of a thread.
type Identity struct{ UID, GID int }

// maxLevels is deeper than any tree that a program needs, and uses 1.5 MiB of memory.
const maxLevels = 1 << 16

// blockSize is the unit of stat(2)'s blocks, for all file systems.
const blockSize = 512

// add counts a file's blocks, not its holes. A file with several names is visited once per name.
func (w *walk) add(s *unix.Stat_t) {
	bytes := s.Blocks * blockSize
	if s.Mode&unix.S_IFMT != unix.S_IFDIR && s.Nlink > 1 {
		names := int64(s.Nlink) //nolint:unconvert // narrower on arm64
		bytes = (bytes + names - 1) / names
	}
	w.used += bytes
}

// tree adds everything below a directory, and returns its device.
func (w *walk) tree(root string) (dev uint64, err error) {
	own := w.as
	defer func() { err = errors.Join(err, w.become(own)) }()
	fd, err := openBelow(unix.AT_FDCWD, root)
	if err != nil {
		return 0, err
	}
	w.levels = w.levels[:0]
	var at unix.Stat_t
	if err := unix.Fstat(fd, &at); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	dev = inodeOf(&at).dev
	w.add(&at)
	for err == nil {
		var child int
		if child, err = w.files(fd, inodeOf(&at)); err != nil {
			break
		}
		if child < 0 && len(w.levels) == 0 {
			break
		}
		if child < 0 {
			child, err = w.up(fd)
		}
		if err == nil {
			_ = unix.Close(fd) // read only
			fd = child
			err = unix.Fstat(fd, &at)
		}
	}
	return dev, errors.Join(err, unix.Close(fd))
}

// files adds the files of a directory from the walk's position up to the next subdirectory. It opens and adds
// that subdirectory. It returns -1 at the end.
func (w *walk) files(fd int, here inode) (child int, err error) {
	for {
		n, err := unix.Getdents(fd, w.buffer)
		if errors.Is(err, unix.ENOENT) || err == nil && n == 0 { // ENOENT: it was removed meanwhile
			return -1, nil
		}
		if err != nil {
			return -1, err
		}
		for rest := w.buffer[:n]; len(rest) > 0; {
			next, name, size := entryOf(rest)
			rest = rest[size:]
			var s unix.Stat_t
			if name == "." || name == ".." || unix.Fstatat(fd, name, &s, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if s.Mode&unix.S_IFMT != unix.S_IFDIR {
				w.add(&s)
				continue
			}
			if w.elsewhere[inodeOf(&s)] {
				continue
			}
			as := w.as
			child, err := w.open(fd, name, Identity{int(s.Uid), int(s.Gid)})
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
				errors.Is(err, unix.EACCES) {
				continue // gone, replaced, or of a user that this user namespace does not have
			}
			if err != nil {
				return -1, err
			}
			if len(w.levels) == maxLevels {
				return -1, errors.Join(errTorn, unix.Close(child))
			}
			w.add(&s)
			w.levels = append(w.levels, level{here, next, as})
			return child, nil
		}
	}
}

// open opens a directory. If one denies this thread access, the thread becomes its owner until it returns from there:
// commands may run as any user, and could hide files from the sandbox's own.
func (w *walk) open(fd int, name string, owner Identity) (int, error) {
	child, err := openBelow(fd, name)
	if !errors.Is(err, unix.EACCES) || owner == w.as {
		return child, err
	}
	at, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at) //nolint:errcheck // nothing was written
	back := w.as
	if w.become(owner) != nil {
		return -1, errors.Join(unix.EACCES, w.become(back))
	}
	if child, err = openToWalk(at, "."); errors.Is(err, unix.EACCES) {
		// The parent may deny the owner access, and only Linux 6.6 needs no access to it.
		if unix.Fchmodat(at, "", 0o700, unix.AT_EMPTY_PATH) != nil {
			_ = unix.Fchmodat(fd, name, 0o700, 0) // openToWalk says whether it worked
		}
		child, err = openToWalk(at, ".")
	}
	if err != nil {
		return -1, errors.Join(err, w.become(back))
	}
	return child, nil
}

// become gives the thread an identity.
func (w *walk) become(as Identity) error {
	if w.as == as {
		return nil
	}
	w.as = as // even if the thread has only a part of it
	return identity.Take(as.UID, as.GID)
}

// openBelow opens a directory. If one denies its owner access, it makes it accessible: nothing can hide there.
func openBelow(fd int, name string) (int, error) {
	child, err := openToWalk(fd, name)
	if errors.Is(err, unix.EACCES) && unix.Fchmodat(fd, name, 0o700, 0) == nil {
		child, err = openToWalk(fd, name)
	}
	return child, err
}

// openToWalk opens a directory that can be read and searched. The files in one that can only be read cannot be
// measured, and it has no way back to its parent.
func openToWalk(fd int, name string) (int, error) {
	child, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var s unix.Stat_t
	if err := unix.Fstatat(child, ".", &s, 0); err != nil {
		return -1, errors.Join(err, unix.Close(child))
	}
	return child, nil
}

// up returns to the parent directory at the walk's position.
func (w *walk) up(fd int) (int, error) {
	back := w.levels[len(w.levels)-1]
	w.levels = w.levels[:len(w.levels)-1]
	// The owner of the directory can look for its parent, and only the parent's owner can read that.
	at, err := unix.Openat(fd, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	parent := -1
	if err == nil {
		if err = w.become(back.as); err == nil {
			parent, err = unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		err = errors.Join(err, unix.Close(at))
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return -1, errTorn
	}
	if err != nil {
		return -1, err
	}
	var s unix.Stat_t
	if err = unix.Fstat(parent, &s); err == nil && inodeOf(&s) != back.inode {
		err = errTorn
	}
	if err == nil {
		_, err = unix.Seek(parent, back.next, 0)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(parent))
	}
	return parent, nil
}

// entryOf parses the first entry of a getdents64 buffer: the position of the next one, the name, and the
// size.
func entryOf(b []byte) (next int64, name string, size int) {
	const head = 8 + 8 + 2 + 1 // inode, offset, size, type
	size = int(binary.NativeEndian.Uint16(b[16:]))
	name, _, _ = strings.Cut(string(b[head:size]), "\x00")
	return int64(binary.NativeEndian.Uint64(b[8:])), name, size
}

// nameless returns the size of open files without a name on some devices.
func (w *walk) nameless(holders []int, devices map[uint64]bool) (used int64) {
	held := map[inode]int64{}
	for _, pid := range holders {
		w.heldBy(pid, devices, held)
	}
	for _, bytes := range held {
		used += bytes
	}
	return used
}

func (w *walk) heldBy(pid int, devices map[uint64]bool, held map[inode]int64) {
	dir, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return // it has ended, or denies its owner access
	}
	defer unix.Close(dir)
	for {
		n, err := unix.Getdents(dir, w.buffer)
		if err != nil || n == 0 {
			return
		}
		for rest := w.buffer[:n]; len(rest) > 0; {
			_, name, size := entryOf(rest)
			rest = rest[size:]
			var s unix.Stat_t
			if unix.Fstatat(dir, name, &s, 0) == nil && s.Nlink == 0 && devices[inodeOf(&s).dev] {
				held[inodeOf(&s)] = s.Blocks * blockSize
			}
		}
	}
}
