//go:build linux

package files

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// pack writes a file or directory as a tar stream, with names relative to the parent of p.
func (w Worker) pack(ctx context.Context, p string, out io.Writer) error {
	root, rel, err := w.openRoot(p)
	if err != nil {
		return err
	}
	defer root.Close()
	// If the last element of the path is a link, the path names the link's target below the root.
	info, err := root.Stat(rel)
	if err != nil {
		return err
	}
	a := packer{tw: tar.NewWriter(out), prefix: path.Base(path.Clean(p))}
	if info.IsDir() {
		return a.directory(ctx, root, rel)
	}
	if info.Mode().IsRegular() {
		f, err := root.OpenFile(rel, os.O_RDONLY|openFlags, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := a.content(ctx, fdOf(f), a.prefix); err != nil {
			return err
		}
	}
	return a.tw.Close()
}

type packer struct {
	tw     *tar.Writer
	prefix string // prepended to each name
	kept   *kept  // nil for copies, in which each name is a separate file
	buffer []byte
}

// directory writes a directory below a root with all its content, and the end of the archive.
func (a *packer) directory(ctx context.Context, root *os.Root, rel string) error {
	dir, err := openDir(root, rel)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, err := openAt(fdOf(dir), ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	if err := a.header(&s, a.prefix+"/", "", 0); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	walk := walker{named: true}
	walk.visit = func(e entry) (bool, error) { return a.entry(ctx, e, string(walk.at)) }
	if err := walk.walk(ctx, fd); err != nil {
		return err
	}
	return a.tw.Close()
}

// entry writes one entry of the directory at below. It skips sockets, pipes and devices.
func (a *packer) entry(ctx context.Context, e entry, below string) (enter bool, err error) {
	as := a.prefix + below + "/" + e.name
	if len(as) > maxPath {
		if a.kept != nil {
			return false, nil // unpack would refuse it
		}
		return false, errTooDeep
	}
	switch e.stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return true, a.header(&e.stat, as+"/", "", 0)
	case unix.S_IFREG:
		return false, a.regular(ctx, e, as)
	case unix.S_IFLNK:
		return false, a.link(e, as, below)
	default:
		return false, nil
	}
}

func (a *packer) link(e entry, as, below string) error {
	target, err := readLinkAt(e.dir, e.name)
	if err != nil {
		if gone(err) || errors.Is(err, unix.EINVAL) { // no longer a link
			return nil
		}
		return err
	}
	if a.kept != nil {
		if target = linkInside(a.kept.dir, path.Join(".", below, e.name), target); target == "" {
			return nil
		}
	}
	return a.header(&e.stat, as, target, 0)
}

// regular writes a regular file. If another file took its place, it is written only if it is regular: a pipe
// would never end.
func (a *packer) regular(ctx context.Context, e entry, as string) error {
	if first := a.kept.first(&e.stat, as); first != "" {
		return a.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: as, Linkname: first, Format: formatOf(as, first)})
	}
	fd, err := openAt(e.dir, e.name, unix.O_RDONLY)
	if err != nil {
		if gone(err) {
			return nil
		}
		return err
	}
	defer unix.Close(fd)
	return a.content(ctx, fd, as)
}

// readWhole is the size up to which a file is read before its header is written, in bytes. The entry of such
// a file is always complete, however often the file changes.
const readWhole = 256 << 10

// content writes an open file if it is regular.
func (a *packer) content(ctx context.Context, fd int, as string) error {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil || s.Mode&unix.S_IFMT != unix.S_IFREG {
		return pathError("stat", as, err)
	}
	if len(a.buffer) == 0 || s.Size > int64(len(a.buffer)) {
		a.buffer = make([]byte, max(bufferSize, min(s.Size, readWhole)))
	}
	if s.Size > readWhole {
		return a.stream(ctx, fd, as, &s)
	}
	n := 0
	for n < len(a.buffer) {
		more, err := read(fd, a.buffer[n:])
		if err != nil {
			return pathError("read", as, err)
		}
		if more == 0 {
			break
		}
		n += more
	}
	if err := a.header(&s, as, "", int64(n)); err != nil {
		return err
	}
	_, err := a.tw.Write(a.buffer[:n])
	return err
}

func (a *packer) stream(ctx context.Context, fd int, as string, s *unix.Stat_t) error {
	if err := a.header(s, as, "", s.Size); err != nil {
		return err
	}
	for left := s.Size; left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := read(fd, a.buffer[:min(left, int64(len(a.buffer)))])
		if err != nil {
			return pathError("read", as, err)
		}
		if n == 0 {
			return fmt.Errorf("%s shrank from %d to %d bytes during the read; try again", as, s.Size, s.Size-left)
		}
		if _, err := a.tw.Write(a.buffer[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

func read(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// maxOctalID is the largest id that fits a header. A larger one would need a second header for each file, and
// unpacking ignores ids.
const maxOctalID = 1<<21 - 1

func (a *packer) header(s *unix.Stat_t, as, target string, size int64) error {
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: as, Linkname: target, Size: size, Mode: int64(s.Mode & 0o7777),
		ModTime: time.Unix(s.Mtim.Sec, 0), // truncated as stat shows it; the writer would round up
		Format:  formatOf(as, target),
	}
	if s.Uid <= maxOctalID && s.Gid <= maxOctalID {
		h.Uid, h.Gid = int(s.Uid), int(s.Gid)
	}
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
	}
	return a.tw.WriteHeader(h)
}

// formatOf returns the tar format for names: GNU stores any bytes, while PAX requires UTF-8.
func formatOf(names ...string) tar.Format {
	for _, name := range names {
		if !utf8.ValidString(name) {
			return tar.FormatGNU
		}
	}
	return tar.FormatUnknown
}
