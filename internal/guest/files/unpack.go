//go:build linux

package files

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unpack unpacks a tar stream under dir. No entry and no link leaves dir: os.Root resolves each path
// component by component. It ignores owners in the stream: new files belong to the worker's identity.
func (w Worker) unpack(ctx context.Context, dir string, in io.Reader) error {
	root, rel, err := w.openRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if rel == "." {
		return w.unpackInto(ctx, root, in)
	}
	if err := makeDir(root, rel); err != nil {
		return err
	}
	d, err := openDir(root, rel)
	if err != nil {
		return err
	}
	defer d.Close()
	target, err := rootOf(d)
	if err != nil {
		return err
	}
	defer target.Close()
	return w.unpackInto(ctx, target, in)
}

func (w Worker) unpackInto(ctx context.Context, target *os.Root, in io.Reader) error {
	u := unpacker{ctx: ctx, root: target, space: w.space, dirs: map[string]directory{}, buffer: make([]byte, bufferSize)}
	entries := tar.NewReader(in)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return u.finish("")
		}
		if err != nil {
			return refuse("not a tar stream: %v", err)
		}
		if err := u.entry(h, entries); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

type unpacker struct {
	ctx    context.Context //nolint:containedctx // it exists for one call
	root   *os.Root
	space  *Space
	buffer []byte
	parent string // a directory that exists
	dirs   map[string]directory
	size   int // size of dirs in bytes
}

// directory is the metadata to set on a directory after its content is complete.
type directory struct {
	mode     fs.FileMode
	modified time.Time
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	name := filepath.Clean(h.Name)
	if name == "." {
		return nil
	}
	if err := u.space.take(u.ctx, entrySize); err != nil {
		return err
	}
	if !filepath.IsLocal(name) {
		return refuse("the path leads outside of the directory")
	}
	if len(name) > maxPath {
		return refuse("the path is longer than %d bytes", maxPath)
	}
	if parent := filepath.Dir(name); parent != u.parent {
		if err := makeDir(u.root, parent); err != nil {
			return err
		}
		u.parent = parent
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(name, mode, h.ModTime)
	case tar.TypeReg:
		return u.file(name, mode, h.ModTime, content)
	case tar.TypeSymlink:
		if filepath.IsAbs(h.Linkname) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), h.Linkname)) {
			return refuse("the link target %s is outside of the directory", h.Linkname)
		}
		return errors.Join(u.clear(name), u.root.Symlink(h.Linkname, name))
	case tar.TypeLink:
		if !filepath.IsLocal(h.Linkname) {
			return refuse("the link target %s is outside of the directory", h.Linkname)
		}
		return errors.Join(u.clear(name), u.root.Link(h.Linkname, name))
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return refuse("entries of type %q are not supported: only files, directories and links are", h.Typeflag)
	}
}

// maxDirs limits the memory for directories whose mode and time are still to be set, in bytes.
const maxDirs = 1 << 20

func (u *unpacker) directory(name string, mode fs.FileMode, modified time.Time) error {
	if err := makeDir(u.root, name); err != nil {
		return err
	}
	const overhead = 128 // approximate size of a map element
	if u.size += len(name) + overhead; u.size > maxDirs {
		if err := u.finish(name); err != nil {
			return err
		}
		u.size = len(name) + overhead
		for name := range u.dirs {
			u.size += len(name) + overhead
		}
		if u.size > maxDirs {
			return errTooDeep
		}
	}
	u.dirs[name], u.parent = directory{mode, modified}, name
	return u.root.Chmod(name, mode|0o700) // writable until its content is complete
}

func (u *unpacker) file(name string, mode fs.FileMode, modified time.Time, content io.Reader) error {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := u.root.OpenFile(name, flags, mode|0o200)
	if errors.Is(err, fs.ErrExist) {
		if err := u.clear(name); err != nil {
			return err
		}
		f, err = u.root.OpenFile(name, flags, mode|0o200)
	}
	if errors.Is(err, fs.ErrNotExist) { // the directory was removed meanwhile
		if err := makeDir(u.root, filepath.Dir(name)); err != nil {
			return err
		}
		f, err = u.root.OpenFile(name, flags, mode|0o200)
	}
	if err != nil {
		return err
	}
	err = u.copy(bounded{u.ctx, u.space, f}, content)
	return bare(errors.Join(err, f.Chmod(mode), setTime(f, modified), f.Close()))
}

// copy copies the content of a file. It checks the context itself, because holes are not read from the
// stream.
func (u *unpacker) copy(to io.Writer, content io.Reader) error {
	for {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		n, err := content.Read(u.buffer)
		if n > 0 {
			if _, err := to.Write(u.buffer[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return refuse("the tar stream ends before the end of this file: send the whole stream again")
		}
		if err != nil {
			return err
		}
	}
}

// setTime sets the times of an open file, because its name may now refer to another file.
func setTime(f *os.File, modified time.Time) error {
	at, err := unix.TimeToTimespec(modified)
	if err != nil {
		return err
	}
	times := [2]unix.Timespec{at, at}
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, f.Fd(), 0, uintptr(unsafe.Pointer(&times[0])), 0, 0, 0)
	if errno != 0 {
		return pathError("set the time", f.Name(), errno)
	}
	return nil
}

// bare removes the path from an error, which may name a descriptor. The caller names the entry.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}

// clear removes an existing file, so that a link is replaced and not followed.
func (u *unpacker) clear(name string) error {
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return refuse("the path is a directory")
	default:
		return u.root.Remove(name)
	}
}

// finish sets the modes and times of directories, except those on the path but. It goes from the inside out,
// because a directory's mode may deny its own user access to its content.
func (u *unpacker) finish(but string) error {
	names := make([]string, 0, len(u.dirs))
	for name := range u.dirs {
		if !strings.HasPrefix(but+"/", name+"/") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	var errs []error
	for _, name := range names {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		d := u.dirs[name]
		errs = append(errs, u.root.Chtimes(name, d.modified, d.modified), u.root.Chmod(name, d.mode))
		delete(u.dirs, name)
	}
	return errors.Join(errs...)
}
