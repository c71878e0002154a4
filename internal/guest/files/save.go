//go:build linux

package files

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/bits"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Save packs a directory with its hard links. The caller must keep all programs of the sandbox frozen, so
// that the archive is consistent. Save packs nothing if the fingerprint equals s.Unless, or if the files
// exceed s.Limit bytes. The result contains the fingerprint. The caller handles s.End. See Serve for the
// effect of ctx.
func (w Worker) Save(ctx context.Context, dir string, s channel.Save, out io.Writer) wire.Result {
	var r wire.Result
	err := w.writing(ctx, out, func(out io.Writer) error {
		r.Data = w.fingerprint(ctx, dir)
		if r.Data != "" && r.Data == s.Unless {
			return nil
		}
		size, err := w.size(ctx, dir)
		if err != nil {
			return err
		}
		if s.Limit > 0 && size > s.Limit {
			return fmt.Errorf("the files in %s have %d bytes, but at most %d are saved: delete some of them", dir, size, s.Limit)
		}
		return w.packAll(ctx, dir, out)
	})
	if err != nil {
		return problem(err)
	}
	return r
}

// Fingerprint distinguishes versions of a directory's content by the files' metadata, without reading files. It returns
// wire.DataEmpty for a directory without files, and "" if it is unknown.
func (w Worker) Fingerprint(ctx context.Context, dir string) string {
	sum := ""
	err := w.do(func() error {
		sum = w.fingerprint(ctx, dir)
		return nil
	})
	if err != nil {
		return ""
	}
	return sum
}

// maxFingerprinted limits the files of a fingerprint: with more files, the check takes longer than a save.
const maxFingerprinted = 20_000

func (w Worker) fingerprint(ctx context.Context, dir string) string {
	var high, low uint64 // a sum, which does not depend on the order
	seen := 0
	err := w.each(ctx, dir, walker{visit: func(e entry) (bool, error) {
		if seen++; seen > maxFingerprinted {
			return false, fmt.Errorf("more than %d files", maxFingerprinted)
		}
		s := &e.stat
		one := sha256.Sum256(fmt.Appendf(nil, "%d %d %q %d %o %d %d.%d",
			e.parent.dev, e.parent.ino, e.name, s.Ino, s.Mode, s.Size, s.Ctim.Sec, s.Ctim.Nsec))
		var carry uint64
		low, carry = bits.Add64(low, binary.BigEndian.Uint64(one[8:]), 0)
		high, _ = bits.Add64(high, binary.BigEndian.Uint64(one[:]), carry)
		return true, nil
	}})
	if err != nil {
		return ""
	}
	if seen == 0 {
		return wire.DataEmpty
	}
	return hex.EncodeToString(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, high), low))
}

// size adds up the sizes of the files below a directory, including holes. It skips unreadable files; packing
// reports them.
func (w Worker) size(ctx context.Context, dir string) (size int64, err error) {
	err = w.each(ctx, dir, walker{lenient: true, visit: func(e entry) (bool, error) {
		if e.isRegular() {
			size += e.stat.Size
		}
		return true, nil
	}})
	return size, err
}

// each walks through a directory.
func (w Worker) each(ctx context.Context, dir string, walk walker) error {
	root, rel, err := w.openRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	d, err := openDir(root, rel)
	if err != nil {
		return err
	}
	defer d.Close()
	fd, err := openAt(fdOf(d), ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	return walk.walk(ctx, fd)
}

// packAll writes the content of a directory as a tar stream, with names relative to it and with its hard
// links. It skips what unpack would refuse.
func (w Worker) packAll(ctx context.Context, dir string, out io.Writer) error {
	root, rel, err := w.openRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	a := packer{tw: tar.NewWriter(out), prefix: ".", kept: &kept{dir: dir, links: map[inode]firstName{}}}
	return a.directory(ctx, root, rel)
}

// kept is the state of packing a whole directory.
type kept struct {
	dir   string
	links map[inode]firstName
	size  int // size of links in bytes
}

// firstName is the name under which an inode with several names was packed, and the number of its remaining
// names.
type firstName struct {
	name string
	left uint64
}

// maxLinks limits the memory for files with several names, in bytes. Beyond it, each name is packed as a
// separate file.
const maxLinks = 4 << 20

// first returns the name under which a file was already packed, "" for the first name of a file.
func (k *kept) first(s *unix.Stat_t, as string) string {
	if k == nil || s.Nlink < 2 {
		return ""
	}
	const overhead = 96 // approximate size of a map element
	file := inodeOf(s)
	before, known := k.links[file]
	switch {
	case !known && k.size+len(as)+overhead <= maxLinks:
		k.links[file] = firstName{as, uint64(s.Nlink) - 1} //nolint:unconvert // narrower on arm64
		k.size += len(as) + overhead
	case known && before.left == 1:
		delete(k.links, file)
		k.size -= len(before.name) + overhead
	case known:
		k.links[file] = firstName{before.name, before.left - 1}
	}
	return before.name
}

// linkInside returns the target of a symbolic link at name in a form that is valid wherever the directory is,
// "" if it leads out of the directory.
func linkInside(dir, name, target string) string {
	if filepath.IsAbs(target) {
		rest, err := filepath.Rel(dir, filepath.Clean(target))
		if err != nil {
			return ""
		}
		if target, err = filepath.Rel(filepath.Dir(name), rest); err != nil {
			return ""
		}
	}
	if target == "" || !filepath.IsLocal(filepath.Join(filepath.Dir(name), target)) {
		return ""
	}
	return target
}
