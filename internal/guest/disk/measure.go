//go:build linux

package disk

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// inode is a file, whatever its names are.
type inode struct{ dev, ino uint64 }

func inodeOf(s *unix.Stat_t) inode { return inode{uint64(s.Dev), s.Ino} } //nolint:unconvert // as wide on every architecture

// measure returns what the trees below the roots take on disk, and what programs hold there without a name.
func (d *watch) measure() (used int64, err error) {
	w := walk{elsewhere: d.elsewhere, buffer: make([]byte, 4096)}
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

// mountsBelow returns the roots of what is mounted below some directories. It does not change: nothing in a sandbox can
// mount.
func mountsBelow(roots []string) map[inode]bool {
	found := map[inode]bool{}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return found // then they count
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

// walk adds up a tree. It holds one descriptor and a few bytes for each level, so no tree is too deep for it.
type walk struct {
	elsewhere map[inode]bool
	buffer    []byte
	used      int64
	levels    []level
}

// level is a directory that the walk comes back to, and where it goes on there.
type level struct {
	inode
	next int64
}

// maxLevels is deeper than any tree that a program needs, and 1.5 MiB of memory.
const maxLevels = 1 << 16

// blockSize is the unit of stat(2)'s blocks, whatever the file system has.
const blockSize = 512

// add counts a file's blocks: a hole takes none. One with several names is met once for each.
func (w *walk) add(s *unix.Stat_t) {
	bytes := s.Blocks * blockSize
	if s.Mode&unix.S_IFMT != unix.S_IFDIR && s.Nlink > 1 {
		names := int64(s.Nlink) //nolint:unconvert // narrower on arm64
		bytes = (bytes + names - 1) / names
	}
	w.used += bytes
}

// tree adds all below a directory, and returns its device.
func (w *walk) tree(root string) (dev uint64, err error) {
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
			_ = unix.Close(fd) // only read
			fd = child
			err = unix.Fstat(fd, &at)
		}
	}
	return dev, errors.Join(err, unix.Close(fd))
}

// files adds the files of a directory from where the walk stands there, up to the next directory in it, which it opens
// and adds. It returns -1 at the end.
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
			child, err := openBelow(fd, name)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EACCES) {
				continue // gone, another kind by now, or another user's
			}
			if err != nil {
				return -1, err
			}
			if len(w.levels) == maxLevels {
				return -1, errors.Join(errTorn, unix.Close(child))
			}
			w.add(&s)
			w.levels = append(w.levels, level{here, next})
			return child, nil
		}
	}
}

// openBelow opens a directory to read it. One that keeps its own user out is opened to it: nothing hides there.
func openBelow(fd int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	child, err := unix.Openat(fd, name, flags, 0)
	if errors.Is(err, unix.EACCES) && unix.Fchmodat(fd, name, 0o700, 0) == nil {
		child, err = unix.Openat(fd, name, flags, 0)
	}
	return child, err
}

// up goes back to the directory that the walk came from, and to where it stood there.
func (w *walk) up(fd int) (int, error) {
	back := w.levels[len(w.levels)-1]
	w.levels = w.levels[:len(w.levels)-1]
	parent, err := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
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

// entryOf takes the first entry from what getdents64 gave: where the next one is, its name, and its size.
func entryOf(b []byte) (next int64, name string, size int) {
	const head = 8 + 8 + 2 + 1 // inode, offset, size, type
	size = int(binary.NativeEndian.Uint16(b[16:]))
	name, _, _ = strings.Cut(string(b[head:size]), "\x00")
	return int64(binary.NativeEndian.Uint64(b[8:])), name, size
}

// nameless returns what programs hold open on some devices that has no name any more, or never had one.
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
		return // it has ended, or keeps its own user out
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
