//go:build linux

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// roots are the directories that files may be moved in and out of.
var roots = []string{"/workspace", "/data"}

// errRefused marks what a caller may not ask for, whatever state the files are in.
var errRefused = errors.New("refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errRefused, fmt.Sprintf(format, args...))
}

// problem reports an error of a file transfer.
func problem(err error) wire.Result {
	switch {
	case err == nil:
		return wire.Result{}
	case errors.Is(err, errRefused), isEscape(err), errors.Is(err, syscall.ELOOP):
		return wire.Result{Problem: wire.ProblemInvalid, Message: err.Error()}
	case errors.Is(err, fs.ErrNotExist):
		return wire.Result{Problem: wire.ProblemNotFound, Message: err.Error()}
	default:
		return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
	}
}

// isEscape reports whether os.Root refused to follow a path out of its directory. The library
// gives that error no name; what its file operations return is an *fs.PathError or *os.LinkError
// around an error that is no errno.
func isEscape(err error) bool {
	var pe *fs.PathError
	var le *os.LinkError
	var cause error
	switch {
	case errors.As(err, &pe):
		cause = pe.Err
	case errors.As(err, &le):
		cause = le.Err
	default:
		return false
	}
	var errno syscall.Errno
	return !errors.As(cause, &errno) && !errors.Is(cause, fs.ErrClosed)
}

// splitRoot splits an absolute path into one of the roots and what is below it, "." for the root itself.
func splitRoot(p string) (root, rel string, err error) {
	p = path.Clean(p)
	for _, root := range roots {
		if p == root {
			return root, ".", nil
		}
		if rel, ok := strings.CutPrefix(p, root+"/"); ok {
			return root, rel, nil
		}
	}
	return "", "", refuse("%s lies outside of %s", p, strings.Join(roots, " and "))
}

// unpack unpacks a tar stream under dir, as this process's user. No entry and no link leaves dir:
// os.Root resolves each path below it, component by component.
func unpack(dir string, in io.Reader) error {
	rootDir, rel, err := splitRoot(dir)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(rootDir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(rel, 0o755); err != nil {
		return err
	}
	target, err := root.OpenRoot(rel)
	if err != nil {
		return err
	}
	defer target.Close()
	return unpackInto(target, in)
}

func unpackInto(target *os.Root, in io.Reader) error {
	u := unpacker{root: target, dirs: map[string]directory{}}
	entries := tar.NewReader(in)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return u.finish()
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
	root *os.Root
	dirs map[string]directory
}

// directory is what a directory gets once nothing in it changes any more.
type directory struct {
	mode     fs.FileMode
	modified time.Time
}

func (u unpacker) entry(h *tar.Header, content io.Reader) error {
	name := filepath.Clean(h.Name)
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) {
		return refuse("the path leads outside of the directory")
	}
	if err := u.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(name, mode, h.ModTime)
	case tar.TypeReg:
		return u.file(name, mode, h.ModTime, content)
	case tar.TypeSymlink:
		if filepath.IsAbs(h.Linkname) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), h.Linkname)) {
			return refuse("the link to %s leads outside of the directory", h.Linkname)
		}
		return errors.Join(u.clear(name), u.root.Symlink(h.Linkname, name))
	case tar.TypeLink:
		if !filepath.IsLocal(h.Linkname) {
			return refuse("the link to %s leads outside of the directory", h.Linkname)
		}
		return errors.Join(u.clear(name), u.root.Link(h.Linkname, name))
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return refuse("entries of type %q are not taken, only files, directories and links", h.Typeflag)
	}
}

func (u unpacker) directory(name string, mode fs.FileMode, modified time.Time) error {
	if err := u.root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	u.dirs[name] = directory{mode, modified}
	return u.root.Chmod(name, mode|0o700) // its content is still to be written
}

func (u unpacker) file(name string, mode fs.FileMode, modified time.Time, content io.Reader) error {
	if err := u.clear(name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return u.root.Chtimes(name, modified, modified)
}

// clear removes what is in the way of a file, so that an existing link is replaced and not followed.
func (u unpacker) clear(name string) error {
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return refuse("a directory is in the way")
	default:
		return u.root.Remove(name)
	}
}

// finish goes from the inside out, since a directory's mode may keep its own user from what is below.
func (u unpacker) finish() error {
	var errs []error
	names := slices.SortedFunc(maps.Keys(u.dirs), func(a, b string) int { return strings.Compare(b, a) })
	for _, name := range names {
		d := u.dirs[name]
		errs = append(errs, u.root.Chtimes(name, d.modified, d.modified), u.root.Chmod(name, d.mode))
	}
	return errors.Join(errs...)
}

// pack writes a file or directory as a tar stream, with names relative to the parent of p.
func pack(p string, out io.Writer) error {
	rootDir, rel, err := splitRoot(p)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(rootDir)
	if err != nil {
		return err
	}
	defer root.Close()
	// A path whose last element is a link names what the link leads to, below the root.
	info, err := root.Stat(rel)
	if err != nil {
		return err
	}
	w := packer{tw: tar.NewWriter(out), root: root}
	base := path.Base(path.Clean(p))
	if !info.IsDir() {
		return errors.Join(w.entry(rel, base, info), w.tw.Close())
	}
	if w.root, err = root.OpenRoot(rel); err != nil {
		return err
	}
	defer w.root.Close()
	return errors.Join(w.tree(base), w.tw.Close())
}

type packer struct {
	tw   *tar.Writer
	root *os.Root
}

func (w packer) tree(base string) error {
	return fs.WalkDir(w.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name != "." {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		info, err := w.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return w.entry(name, path.Join(base, name), info)
	})
}

// entry writes one entry; sockets, pipes and devices are left out.
func (w packer) entry(name, as string, info fs.FileInfo) error {
	var link string
	var err error
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = w.root.Readlink(name); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = as
	if info.IsDir() {
		h.Name += "/"
	}
	h.Uname, h.Gname = "", ""
	if !info.Mode().IsRegular() {
		return w.tw.WriteHeader(h)
	}
	f, err := w.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := w.tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(w.tw, f, h.Size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s shrank from %d to %d bytes while it was read; try again", as, h.Size, n)
	}
	return err
}
