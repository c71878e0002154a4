//go:build linux

package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

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
	case errors.Is(err, unix.ENOTEMPTY):
		return wire.Result{Problem: wire.ProblemConflict, Message: err.Error()}
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

// onPath works on a path, which may be encoded.
func onPath(p string, encoded bool, work func(p string) error) error {
	if !encoded {
		return work(p)
	}
	decoded, err := base64.StdEncoding.DecodeString(p)
	if err != nil {
		return refuse("the path %q is not in base64", p)
	}
	return work(string(decoded))
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

// openRoot opens the root that a path lies in, and returns what is below it as splitRoot does.
func openRoot(p string) (root *os.Root, rel string, err error) {
	dir, rel, err := splitRoot(p)
	if err != nil {
		return nil, "", err
	}
	root, err = os.OpenRoot(dir)
	return root, rel, err
}
