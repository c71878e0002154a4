//go:build linux

package files

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// write writes the content that a wire.Writer sent to in to a path, atomically.
func (w Worker) write(ctx context.Context, p string, mode fs.FileMode, in io.Reader) error {
	root, rel, err := w.openRoot(p)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := makeDir(root, path.Dir(rel)); err != nil {
		return err
	}
	dir, name, err := openParent(root, rel)
	if err != nil {
		return err
	}
	defer dir.Close()
	if s, err := statAt(fdOf(dir), name); err == nil && s.Mode&unix.S_IFMT == unix.S_IFDIR {
		return refuse("the path is a directory")
	}
	return replace(fdOf(dir), name, mode, func(f io.Writer) error {
		return cmp.Or(copyContent(bounded{ctx, w.space, f}, in), ctx.Err())
	})
}

// replace creates or replaces a file in a directory, atomically.
func replace(dir int, name string, mode fs.FileMode, content func(io.Writer) error) error {
	unfinished := ".unfinished-" + rand.Text()
	fd, err := unix.Openat(dir, unfinished, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return pathError("create", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = content(f)
	if err = cmp.Or(err, f.Chmod(mode)); err == nil {
		err = pathError("rename", name, unix.Renameat(dir, unfinished, dir, name))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		if gone := unix.Unlinkat(dir, unfinished, 0); !errors.Is(gone, unix.ENOENT) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// copyContent copies content, and fails if the sender could not send all of it.
func copyContent(to io.Writer, in io.Reader) error {
	content := &wire.Demux{Stdout: to}
	if _, err := io.CopyBuffer(content, in, make([]byte, bufferSize)); err != nil {
		return err
	}
	r, ok := content.Result()
	switch {
	case !ok:
		return errors.New("the content is incomplete; nothing was changed")
	case r.Problem != "":
		return errors.New(r.Message + "; nothing was changed")
	}
	return nil
}

func (w Worker) remove(ctx context.Context, p string, recursive bool) error {
	root, rel, err := w.openRoot(p)
	if err != nil {
		return err
	}
	defer root.Close()
	if rel == "." {
		return refuse("the root directories of a sandbox cannot be removed")
	}
	dir, name, err := openParent(root, rel)
	if err != nil {
		return err
	}
	defer dir.Close()
	s, err := statAt(fdOf(dir), name)
	if err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR && recursive {
		return removeAll(ctx, fdOf(dir), name)
	}
	return removeOne(fdOf(dir), name, &s)
}

func removeOne(dir int, name string, s *unix.Stat_t) error {
	flags := 0
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
	}
	return pathError("remove", name, unix.Unlinkat(dir, name, flags))
}

// removeAll removes a directory with its content.
func removeAll(ctx context.Context, dir int, name string) error {
	for {
		err := pathError("remove", name, unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
		if err == nil || gone(err) {
			return nil
		}
		if !notEmpty(err) {
			return err
		}
		e := entry{dir: dir, name: name}
		walk := walker{force: true, rescan: true, visit: removeEntry}
		fd, err := walk.open(e)
		if err == nil {
			err = walk.walk(ctx, fd)
		}
		if err != nil && !gone(err) {
			return err
		}
	}
}

// removeEntry removes a file or an empty directory, and enters any other directory.
func removeEntry(e entry) (enter bool, err error) {
	err = removeOne(e.dir, e.name, &e.stat)
	switch {
	case err == nil || gone(err) || errors.Is(err, unix.EISDIR): // EISDIR: it has become a directory
		return false, nil
	case e.isDir() && notEmpty(err):
		return true, nil
	default:
		return false, err
	}
}

func notEmpty(err error) bool { return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) }
