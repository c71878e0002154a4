//go:build linux

package files

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// heldLevels is the depth up to which a walk keeps directories open. Below that it returns through "..".
	heldLevels = 32
	// maxLevels limits a walk's memory to about 1 MiB. No program needs deeper directories.
	maxLevels = 1 << 14
	// maxPath is Linux's limit of a path, in bytes.
	maxPath = 4095
	// maxNames limits the names that a walk keeps for all levels, in bytes. Beyond it, directories are read
	// name by name.
	maxNames = 128 << 10
	// oneName has room for at least one directory entry, with a name of up to 255 bytes.
	oneName = 24 + 256
)

var (
	errTooDeep = errors.New("the directories are nested too deeply")
	errTorn    = errors.New("a directory was moved during the read; try again")
)

// entry is a result of a walk: a name in an open directory.
type entry struct {
	dir    int // a descriptor
	name   string
	parent inode
	stat   unix.Stat_t
}

func (e entry) isDir() bool     { return e.stat.Mode&unix.S_IFMT == unix.S_IFDIR }
func (e entry) isRegular() bool { return e.stat.Mode&unix.S_IFMT == unix.S_IFREG }

// inode identifies a file, whatever its names.
type inode struct{ dev, ino uint64 }

func inodeOf(s *unix.Stat_t) inode { return inode{uint64(s.Dev), s.Ino} } //nolint:unconvert // as wide on every architecture

// walker visits everything below a directory, each directory before its content. It visits up to some hundred names of
// a directory in order.
type walker struct {
	// visit is called for each file. It decides whether the walk enters a directory.
	visit func(e entry) (enter bool, err error)
	// lenient skips directories that may not be read; force first gives their owner all rights to them.
	lenient, force bool
	// rescan reads a directory again after each subdirectory.
	rescan bool
	// named keeps the path of the current directory in at.
	named bool
	at    []byte

	buffer []byte
	levels []level
	names  int // bytes, in all levels
}

// level is a directory that is being read.
type level struct {
	inode
	fd    int // -1: closed; it is opened again on the way back
	names []string
	next  int64 // position after those names
	end   bool
	path  int // length of the path up to here
}

// walk visits everything below an open directory, and closes it.
func (w *walker) walk(ctx context.Context, fd int) (err error) {
	w.buffer = make([]byte, 16<<10)
	defer func() {
		for _, l := range w.levels {
			if l.fd >= 0 {
				_ = unix.Close(l.fd) // read only
			}
		}
	}()
	if err := w.push(fd); err != nil {
		return err
	}
	for len(w.levels) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

// step visits the next name, or returns to the parent directory.
func (w *walker) step() error {
	l := &w.levels[len(w.levels)-1]
	name, err := w.next(l)
	if err != nil {
		return err
	}
	if name == "" {
		return w.up()
	}
	e := entry{dir: l.fd, name: name, parent: l.inode}
	if e.stat, err = statAt(l.fd, name); err != nil {
		return w.forgive(err)
	}
	enter, err := w.visit(e)
	if err != nil || !enter || !e.isDir() {
		return err
	}
	fd, err := w.open(e)
	if err != nil {
		return w.forgive(err)
	}
	if w.named {
		w.at = append(append(w.at, '/'), name...)
	}
	return w.push(fd)
}

// forgive ignores errors of files that disappeared meanwhile.
func (w *walker) forgive(err error) error {
	if gone(err) || w.lenient && errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

func (w *walker) open(e entry) (int, error) {
	if w.force {
		unlock(e.dir, e.name)
	}
	return openAt(e.dir, e.name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// unlock gives a directory's owner all rights to it. A directory of another user stays as it is. Fchmodat would follow
// a link that takes the directory's place.
func unlock(dir int, name string) {
	fd, err := openAt(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err == nil && s.Mode&0o700 != 0o700 {
		_ = os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700) // opening it fails if this was necessary
	}
}

// push enters an open directory.
func (w *walker) push(fd int) error {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	if len(w.levels) >= maxLevels || len(w.at) > maxPath {
		return errors.Join(errTooDeep, unix.Close(fd))
	}
	if n := len(w.levels); n > heldLevels {
		_ = unix.Close(w.levels[n-1].fd) // read only
		w.levels[n-1].fd = -1
	}
	w.levels = append(w.levels, level{inode: inodeOf(&s), fd: fd, path: len(w.at)})
	return nil
}

// up returns to the parent directory.
func (w *walker) up() error {
	last := w.levels[len(w.levels)-1]
	w.levels = w.levels[:len(w.levels)-1]
	if len(w.levels) == 0 {
		return unix.Close(last.fd)
	}
	l := &w.levels[len(w.levels)-1]
	w.at = w.at[:l.path]
	if w.rescan {
		w.names -= sizeOf(l.names)
		l.names, l.next, l.end = nil, 0, false
	}
	if l.fd >= 0 {
		return unix.Close(last.fd)
	}
	fd, err := above(last.fd, l.inode)
	l.fd = fd
	return errors.Join(err, unix.Close(last.fd))
}

// above opens the parent of a directory and checks that it is the expected one.
func above(fd int, want inode) (int, error) {
	parent, err := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return -1, errTorn
	}
	if err != nil {
		return -1, err
	}
	var s unix.Stat_t
	if err = unix.Fstat(parent, &s); err == nil && inodeOf(&s) != want {
		err = errTorn
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(parent))
	}
	return parent, nil
}

// next takes a name of a level, "" at its end.
func (w *walker) next(l *level) (string, error) {
	for len(l.names) == 0 {
		if l.end {
			return "", nil
		}
		if err := w.fill(l); err != nil {
			return "", err
		}
	}
	name := l.names[0]
	l.names = l.names[1:]
	w.names -= nameSize(name)
	return name, nil
}

// fill reads some names of a level, or a single one if enough are kept.
func (w *walker) fill(l *level) error {
	buffer := w.buffer
	few := w.names > maxNames
	if few {
		buffer = buffer[:oneName]
	}
	if _, err := unix.Seek(l.fd, l.next, 0); err != nil {
		return fmt.Errorf("read a directory: %w", err)
	}
	names, next, err := readNames(l.fd, buffer, few)
	if err != nil {
		return fmt.Errorf("read a directory: %w", err)
	}
	l.end = next < 0
	if !l.end {
		l.next = next
	}
	slices.Sort(names)
	l.names = names
	w.names += sizeOf(names)
	return nil
}

// readNames reads the next names of a directory, or only the first. next is the position after them, -1 at
// the end.
func readNames(fd int, buffer []byte, one bool) (names []string, next int64, err error) {
	n, err := unix.Getdents(fd, buffer)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Getdents(fd, buffer)
	}
	if errors.Is(err, unix.ENOENT) { // it was removed meanwhile
		return nil, -1, nil
	}
	if err != nil || n == 0 {
		return nil, -1, err
	}
	for rest := buffer[:n]; len(rest) > 0; {
		const head = 8 + 8 + 2 + 1 // inode, offset, size, type
		size := int(binary.NativeEndian.Uint16(rest[16:]))
		next = int64(binary.NativeEndian.Uint64(rest[8:]))
		name, _, _ := strings.Cut(string(rest[head:size]), "\x00")
		rest = rest[size:]
		if name == "." || name == ".." {
			continue
		}
		names = append(names, name)
		if one {
			break
		}
	}
	return names, next, nil
}

// nameSize is the approximate memory of a name.
func nameSize(name string) int { return len(name) + 32 }

func sizeOf(names []string) (size int) {
	for _, name := range names {
		size += nameSize(name)
	}
	return size
}
