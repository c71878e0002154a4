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
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// unpack unpacks a tar stream under dir, as this process's user. No entry and no link leaves dir:
// os.Root resolves each path below it, component by component.
func unpack(dir string, in io.Reader) error {
	root, rel, err := openRoot(dir)
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
