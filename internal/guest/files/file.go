//go:build linux

package files

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// file works on one path.
func (w Worker) file(ctx context.Context, r *wire.FileRequest, in io.Reader, out io.Writer) error {
	if r == nil {
		return refuse("the request contains no file")
	}
	p := string(r.Path)
	switch r.Op {
	case wire.FileStat:
		return w.writing(ctx, out, func(out io.Writer) error { return w.stat(p, out) })
	case wire.FileList:
		return w.writing(ctx, out, func(out io.Writer) error { return w.list(ctx, p, string(r.After), r.Limit, out) })
	case wire.FileWrite:
		return w.reading(ctx, in, func(in io.Reader) error { return w.write(ctx, p, fs.FileMode(r.Mode)&fs.ModePerm, in) })
	case wire.FileRemove:
		return w.do(func() error { return w.remove(ctx, p, r.Recursive) })
	case wire.FileUsage:
		return w.writing(ctx, out, func(out io.Writer) error { return w.usage(ctx, p, r.Limit, out) })
	default:
		return refuse("unknown file operation %q", r.Op)
	}
}

func (w Worker) stat(p string, out io.Writer) error {
	root, rel, err := w.openRoot(p)
	if err != nil {
		return err
	}
	defer root.Close()
	dir, name, err := openParent(root, rel)
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := describe(fdOf(dir), name)
	if err != nil {
		return err
	}
	info.Name = []byte(path.Base(path.Clean(p)))
	return json.NewEncoder(out).Encode(info)
}

// describe describes a directory entry.
func describe(dir int, name string) (wire.FileInfo, error) {
	s, err := statAt(dir, name)
	if err != nil {
		return wire.FileInfo{}, err
	}
	info := wire.FileInfo{
		Name:     []byte(name),
		Type:     "other",
		Mode:     s.Mode & uint32(fs.ModePerm),
		Modified: time.Unix(s.Mtim.Unix()).UTC(),
	}
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		info.Type, info.Size = "file", s.Size
	case unix.S_IFDIR:
		info.Type = "directory"
	case unix.S_IFLNK:
		target, err := readLinkAt(dir, name)
		if err != nil {
			return wire.FileInfo{}, err
		}
		info.Type, info.Target = "symlink", []byte(target)
	}
	return info, nil
}

// list describes the first limit entries after a name. It skips entries that disappear meanwhile.
func (w Worker) list(ctx context.Context, p, after string, limit int, out io.Writer) error {
	if limit < 0 || limit > sandbox.MaxPage {
		return refuse("a page has at most %d names", sandbox.MaxPage)
	}
	root, rel, err := w.openRoot(p)
	if err != nil {
		return err
	}
	defer root.Close()
	dir, err := openDir(root, rel)
	if errors.Is(err, unix.ENOTDIR) {
		return refuse("%s is not a directory", rel)
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := firstNames(ctx, fdOf(dir), after, limit)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	for _, name := range names {
		info, err := describe(fdOf(dir), name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) { // gone, or no longer a link
			continue
		}
		if err != nil {
			return err
		}
		if err := encoder.Encode(info); err != nil {
			return err
		}
	}
	return nil
}

// firstNames returns the smallest names after a name, in order. It keeps only these in memory: sandbox code
// may fill a directory with millions of names.
func firstNames(ctx context.Context, dir int, after string, limit int) ([]string, error) {
	buffer := make([]byte, 32<<10)
	var first []string
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		names, next, err := readNames(dir, buffer, false)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if name > after {
				first = append(first, name)
			}
		}
		slices.Sort(first)
		clear(first[min(len(first), limit):])
		first = first[:min(len(first), limit)]
		if next < 0 {
			return first, nil
		}
	}
}

// usage counts the files below a directory, up to a limit. It skips what it may not read.
func (w Worker) usage(ctx context.Context, p string, limit int, out io.Writer) error {
	root, rel, err := w.openRoot(p)
	if err != nil {
		return err
	}
	defer root.Close()
	dir, name, err := openParent(root, rel)
	if err != nil {
		return err
	}
	defer dir.Close()
	used := wire.DiskUsage{Complete: true}
	s, err := statAt(fdOf(dir), name)
	if err != nil {
		return err
	}
	add := func(s *unix.Stat_t) { used.Bytes += s.Blocks * blockSize }
	add(&s)
	if rel != "." {
		used.Files++
	}
	walk := walker{lenient: true, visit: func(e entry) (bool, error) {
		add(&e.stat)
		if used.Files++; used.Files > int64(limit) {
			used.Complete = false
			return false, errEnough
		}
		return true, nil
	}}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		fd, err := openAt(fdOf(dir), name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			err = walk.walk(ctx, fd)
		}
		if errors.Is(err, errTooDeep) || errors.Is(err, errTorn) {
			used.Complete, err = false, nil
		}
		if err != nil && !errors.Is(err, errEnough) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return json.NewEncoder(out).Encode(used)
}

// blockSize is the unit of stat(2)'s blocks, for all file systems.
const blockSize = 512

// errEnough ends a walk early.
var errEnough = errors.New("the limit of the count is reached")
