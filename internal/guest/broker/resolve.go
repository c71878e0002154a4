//go:build linux

package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/files"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/identity"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/shellstate"
)

// Exit codes as in shells.
const (
	exitCannotStart = 126
	exitNotFound    = 127
)

// resolve resolves a request to a command: its program and variables, and its working directory.
func (b *broker) resolve(r channel.Request) (c link.Command, dir *os.File, err error) {
	e := r.Exec
	c = link.Command{
		Args: e.Args, Timeout: e.Timeout, Stdin: e.Stdin, Shell: e.Shell, Process: r.Op == channel.OpProcess,
		UID: b.cfg.UID, GID: b.cfg.GID,
	}
	if c.Process {
		c.Timeout = 0
	}
	if r.Op == channel.OpVerify {
		return b.resolveVerifier(c, e)
	}
	if e.User != "" {
		if c.UID, c.GID, err = b.user(e.User); err != nil {
			return c, nil, err
		}
	}
	c.Env = environ(e.Env)
	err = b.as(c.UID, c.GID, func() (err error) {
		dir, err = findProgram(&c, e.Cwd)
		return err
	})
	if err != nil && dir != nil {
		err = errors.Join(err, dir.Close())
	}
	return c, dir, err
}

// as works on files as a user.
func (b *broker) as(uid, gid int, work func() error) error {
	if uid == b.cfg.UID && gid == b.cfg.GID {
		return b.own.Do(work)
	}
	return errors.Join(identity.Do(uid, gid, work), b.cfg.ownProc())
}

// user parses uid:gid. No command runs as process 1's user, and none as root unless the environment allows
// it.
func (b *broker) user(text string) (uid, gid int, err error) {
	u, g, ok := strings.Cut(text, ":")
	uid64, uidErr := strconv.ParseUint(u, 10, 31)
	gid64, gidErr := strconv.ParseUint(g, 10, 31)
	uid, gid = int(uid64), int(gid64)
	switch {
	case !ok || uidErr != nil || gidErr != nil:
		return 0, 0, fmt.Errorf("user %q must be a pair of numbers such as 1000:1000", text)
	case uid == guest.KeeperID || gid == guest.KeeperID:
		return 0, 0, fmt.Errorf("user %q is reserved for process 1: choose another", text)
	case b.verifies(uid) || b.verifies(gid):
		return 0, 0, fmt.Errorf("user %q is reserved for the sandbox's verifier: choose another", text)
	case (uid == 0 || gid == 0) && !b.cfg.AllowRoot && uid != b.cfg.UID:
		return 0, 0, fmt.Errorf("user %q is not allowed: the sandbox's user is %d:%d", text, b.cfg.UID, b.cfg.GID)
	}
	return uid, gid, nil
}

// environ returns the sandbox's variables, overridden by more.
func environ(more map[string]string) []string {
	env := os.Environ()
	if len(more) == 0 {
		return env
	}
	merged := make([]string, 0, len(env)+len(more))
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if _, replaced := more[name]; !replaced {
			merged = append(merged, v)
		}
	}
	for name, value := range more {
		merged = append(merged, name+"="+value)
	}
	return merged
}

// findProgram finds the working directory and the program. If one is missing, that is the command's result, not an
// error.
func findProgram(c *link.Command, cwd string) (dir *os.File, err error) {
	fail := func(code int, err error) (*os.File, error) {
		c.Failure, c.Text = code, fmt.Sprintf("guest: %v\n", err)
		return os.Open("/")
	}
	if len(c.Args) == 0 {
		return fail(exitCannotStart, errors.New("the command is empty"))
	}
	if dir, err = openDirectory(cwd); err != nil {
		return fail(exitCannotStart, err)
	}
	c.Path = c.Args[0]
	if c.Shell {
		c.Path = shellstate.Path
	}
	if !strings.Contains(c.Path, "/") {
		if c.Path, err = lookPath(c.Path, c.Env); err != nil {
			_ = dir.Close() // the command will not start
			code := exitNotFound
			if errors.Is(err, fs.ErrPermission) {
				code = exitCannotStart
			}
			return fail(code, err)
		}
	}
	return dir, nil
}

// openDirectory opens a directory that must be in the sandbox's roots, after following links.
func openDirectory(cwd string) (*os.File, error) {
	fd, err := unix.Open(cwd, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", &fs.PathError{Op: "open", Path: cwd, Err: err})
	}
	dir := os.NewFile(uintptr(fd), cwd)
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err == nil {
		err = files.CheckPath(at)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("working directory: %w", err), dir.Close())
	}
	return dir, nil
}

// workingDirectory resolves a directory as openDirectory does.
func (b *broker) workingDirectory(cwd string) (at string, err error) {
	err = b.as(b.cfg.UID, b.cfg.GID, func() error {
		if at, err = filepath.EvalSymlinks(cwd); err != nil {
			return err
		}
		return files.CheckPath(at)
	})
	return at, err
}

// lookPath finds a program in the directories of PATH. Relative directories are relative to the working
// directory.
func lookPath(name string, env []string) (string, error) {
	var path string
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = value
		}
	}
	found := error(&exec.Error{Name: name, Err: exec.ErrNotFound})
	for _, at := range filepath.SplitList(path) {
		if !filepath.IsAbs(at) {
			continue // like package os/exec, skip the current directory
		}
		file := filepath.Join(at, name)
		info, err := os.Stat(file)
		if err != nil || info.IsDir() {
			continue
		}
		err = unix.Faccessat2(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
		if errors.Is(err, unix.ENOSYS) && info.Mode()&0o111 != 0 {
			err = nil // the kernel decides at the start
		}
		if err == nil {
			return file, nil
		}
	}
	return "", found
}
