//go:build linux

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// pack writes a file or directory as a tar stream, with names relative to the parent of p.
func pack(p string, out io.Writer) error {
	root, rel, err := openRoot(p)
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
	return errors.Join(w.tree(".", base), w.tw.Close())
}

type packer struct {
	tw   *tar.Writer
	root *os.Root
	kept *kept // nil for what is copied, where each name is a file of its own
}

// tree writes a directory of the root and all below it. It walks by itself: io/fs takes no names
// that are not UTF-8.
func (w packer) tree(name, as string) error {
	info, err := w.root.Lstat(name)
	if err != nil {
		return ignoreGone(name, err)
	}
	if err := w.entry(name, as, info); err != nil || !info.IsDir() {
		return err
	}
	names, err := w.names(name)
	if err != nil {
		return ignoreGone(name, err)
	}
	for _, child := range names {
		if err := w.tree(path.Join(name, child), as+"/"+child); err != nil {
			return err
		}
	}
	return nil
}

// ignoreGone leaves out what was removed, or became something else, while it was read, but for the root.
func ignoreGone(name string, err error) error {
	if name == "." {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || isEscape(err) {
		return nil
	}
	return err
}

func (w packer) names(dir string) ([]string, error) {
	d, err := w.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// entry writes one entry; sockets, pipes and devices are left out.
func (w packer) entry(name, as string, info fs.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		if w.kept != nil {
			if first := w.kept.first(info, as); first != "" {
				return w.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: as, Linkname: first})
			}
		}
		return w.file(name, as)
	case info.IsDir():
		return w.header(info, as+"/", "")
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := w.root.Readlink(name)
		if err != nil {
			return ignoreGone(name, err)
		}
		if w.kept != nil {
			if link = linkInside(w.kept.dir, name, link); link == "" {
				return nil
			}
		}
		return w.header(info, as, link)
	default:
		return nil
	}
}

func (w packer) header(info fs.FileInfo, as, link string) error {
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = as, "", ""
	h.ModTime = h.ModTime.Truncate(time.Second) // as stat shows it; the writer would round it up
	if !utf8.ValidString(as) || !utf8.ValidString(link) {
		h.Format = tar.FormatGNU // it has bytes for names, where PAX promises UTF-8
	}
	return w.tw.WriteHeader(h)
}

// readWhole is the size up to which a file is read before its header is written, in bytes: however
// often it is written anew meanwhile, its entry is whole.
const readWhole = 256 << 10

// file writes a regular file as it is once it is open. What has taken its place meanwhile is left out,
// unless it is a regular file too: a pipe would never end.
func (w packer) file(name, as string) error {
	f, err := w.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ignoreGone(name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if info.Size() > readWhole {
		return w.stream(f, as, info)
	}
	content, err := io.ReadAll(io.LimitReader(f, readWhole))
	if err != nil {
		return err
	}
	if err := w.header(sized{info, int64(len(content))}, as, ""); err != nil {
		return err
	}
	_, err = w.tw.Write(content)
	return err
}

func (w packer) stream(f *os.File, as string, info fs.FileInfo) error {
	if err := w.header(info, as, ""); err != nil {
		return err
	}
	n, err := io.CopyN(w.tw, f, info.Size())
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s shrank from %d to %d bytes while it was read; try again", as, info.Size(), n)
	}
	return err
}

// sized is a file's description with the size of what was read of it.
type sized struct {
	fs.FileInfo
	size int64
}

func (s sized) Size() int64 { return s.size }
