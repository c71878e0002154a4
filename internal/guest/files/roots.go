//go:build linux

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// errRefused marks requests that are invalid whatever the state of the files.
var errRefused = errors.New("refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errRefused, fmt.Sprintf(format, args...))
}

// problem converts an error of a file operation to a result.
func problem(err error) wire.Result {
	switch {
	case err == nil:
		return wire.Result{}
	case errors.Is(err, syscall.ENAMETOOLONG):
		return wire.Result{Problem: wire.ProblemInvalid, Message: "a name is longer than 255 bytes: " + err.Error()}
	case errors.Is(err, errRefused), isEscape(err), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR):
		return wire.Result{Problem: wire.ProblemInvalid, Message: err.Error()}
	case errors.Is(err, fs.ErrNotExist):
		return wire.Result{Problem: wire.ProblemNotFound, Message: err.Error()}
	case errors.Is(err, unix.ENOTEMPTY):
		return wire.Result{Problem: wire.ProblemConflict, Message: err.Error()}
	default:
		return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
	}
}

// isEscape reports whether os.Root refused a path that leads out of its directory. The library does not
// export that error; its file operations wrap it in an *fs.PathError or *os.LinkError, and it is not an
// errno.
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

// CheckPath refuses an absolute path outside of the directories of the file API. It does not look at links.
func CheckPath(p string) error {
	_, _, err := splitRoot(p)
	return err
}

// splitRoot splits an absolute path into a root and the path below it, "." for the root itself.
func splitRoot(p string) (root, rel string, err error) {
	p = path.Clean(p)
	for _, root := range sandbox.Roots {
		if p == root {
			return root, ".", nil
		}
		if rel, ok := strings.CutPrefix(p, root+"/"); ok {
			return root, rel, nil
		}
	}
	return "", "", refuse("%s is outside of %s", p, strings.Join(sandbox.Roots, " and "))
}

// openRoot opens the root of a path, and returns the path below it as splitRoot does.
func (w Worker) openRoot(p string) (root *os.Root, rel string, err error) {
	dir, rel, err := splitRoot(p)
	if err != nil {
		return nil, "", err
	}
	if strings.Contains(rel, "\x00") || len(rel) > maxPath {
		return nil, "", refuse("the path is too long or contains a NUL byte")
	}
	root, err = os.OpenRoot(w.base + dir)
	return root, rel, err
}

// openFlags keep an open from blocking on a pipe or on a file lease.
const openFlags = unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

// openDir opens a directory below a root. It follows links, but none leads out of the root. Root.OpenRoot would block
// forever if a pipe took the directory's place.
func openDir(root *os.Root, rel string) (*os.File, error) {
	return root.OpenFile(rel, os.O_RDONLY|unix.O_DIRECTORY|openFlags, 0)
}

// makeDir creates a directory below a root, with its parents.
func makeDir(root *os.Root, rel string) error {
	err := root.MkdirAll(rel, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return refuse("%s or a directory above it exists, and is not a directory", rel)
	}
	return err
}

// openParent opens the parent directory of a path below a root.
func openParent(root *os.Root, rel string) (dir *os.File, name string, err error) {
	dir, err = openDir(root, path.Dir(rel))
	return dir, path.Base(rel), err
}

// rootOf returns a root for an open directory.
func rootOf(dir *os.File) (*os.Root, error) {
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(fdOf(dir)))
}

func fdOf(f *os.File) int { return int(f.Fd()) }

// openAt opens a file by its name in a directory without following links.
func openAt(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|openFlags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, pathError("open", name, err)
		}
	}
}

// statAt describes a directory entry without following links.
func statAt(dir int, name string) (unix.Stat_t, error) {
	var s unix.Stat_t
	err := unix.Fstatat(dir, name, &s, unix.AT_SYMLINK_NOFOLLOW)
	return s, pathError("stat", name, err)
}

// readLinkAt returns the target of a link.
func readLinkAt(dir int, name string) (string, error) {
	var target [unix.PathMax]byte
	n, err := unix.Readlinkat(dir, name, target[:])
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return string(target[:n]), nil
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// gone reports whether a file was removed or replaced while its directory was read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ENXIO)
}
