// Package host gives sandboxes the variables and paths of the service's machine that its operator allows, and nothing
// else.
package host

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config lists what an operator allows. Its zero value allows nothing.
type Config struct {
	// Directories, and everything below them, may be mounted, copied from, and hold Git repositories of workspaces. Later
	// symlinks in them are followed: only users who are trusted with the whole machine may write there.
	Directories []string
	// Variables may be passed to sandboxes; "*" stands for all of them.
	Variables []string
	// LookupEnv reads a variable; nil means os.LookupEnv.
	LookupEnv func(name string) (string, bool) `json:"-"`
}

// Host checks and opens what sandboxes may use of the machine. A nil *Host allows nothing.
type Host struct {
	directories []string // without links
	config      Config
}

// forbidden lists directories that no sandbox may get, nor any parent or subdirectory. They, or an engine's socket in
// them, give full control of the machine.
var forbidden = []string{
	"/boot", "/dev", "/etc", "/lib", "/proc", "/run", "/sys", "/usr", "/var/lib/containerd", "/var/lib/docker", "/var/run",
}

// New checks c and returns the Host. Errors: Invalid, naming a path that is not a directory or is forbidden.
func New(c Config) (*Host, error) {
	h := &Host{config: c}
	if h.config.LookupEnv == nil {
		h.config.LookupEnv = os.LookupEnv
	}
	for _, dir := range c.Directories {
		target, err := resolve(dir)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "the directory %q cannot be allowed: %w", dir, err)
		}
		if info, err := os.Stat(target); err != nil || !info.IsDir() {
			return nil, sandbox.Errorf(sandbox.Invalid, "the directory %q cannot be allowed: it is not a directory", dir)
		}
		if secret := forbiddenBy(target); secret != "" {
			return nil, sandbox.Errorf(sandbox.Invalid, "the directory %q cannot be allowed: no sandbox may have %s",
				dir, secret)
		}
		h.directories = append(h.directories, target)
	}
	return h, nil
}

// forbiddenBy returns the forbidden directory that lies in a directory or contains it, "" if there is none.
func forbiddenBy(dir string) string {
	for _, secret := range forbidden {
		if sandbox.Within(dir, secret) || sandbox.Within(secret, dir) {
			return secret
		}
	}
	return ""
}

// resolve returns an absolute path with symlinks resolved.
func resolve(p string) (string, error) {
	if !filepath.IsAbs(p) {
		return "", errors.New("it is not an absolute path")
	}
	return filepath.EvalSymlinks(p)
}

// Check refuses what is not allowed or does not exist. Errors: Invalid, naming each field.
func (h *Host) Check(what string, a sandbox.HostAccess) error {
	var f []sandbox.Field
	for i, name := range a.EnvPassthrough {
		if problem := h.variableProblem(name); problem != "" {
			f = append(f, sandbox.Field{Name: fmt.Sprintf("env_passthrough[%d]", i), Problem: problem})
		}
	}
	for i, m := range a.Mounts {
		if _, problem := h.allowed(m.Source); problem != "" {
			f = append(f, sandbox.Field{Name: fmt.Sprintf("mounts[%d].source", i), Problem: problem})
		} else if info, err := os.Stat(m.Source); err != nil || !info.IsDir() {
			f = append(f,
				sandbox.Field{Name: fmt.Sprintf("mounts[%d].source", i), Problem: fmt.Sprintf("%q is not a directory", m.Source)})
		}
	}
	for i, c := range a.Copies {
		if _, problem := h.allowed(c.Source); problem != "" {
			f = append(f, sandbox.Field{Name: fmt.Sprintf("copies[%d].source", i), Problem: problem})
		}
	}
	return sandbox.InvalidFields(what, f)
}

func (h *Host) variableProblem(name string) string {
	switch {
	case name == sandbox.AllVariables && (h == nil || len(h.config.Variables) == 0):
		return "no variable is allowed: the reconciler must be started with --env-allow NAME"
	case name == sandbox.AllVariables && slices.Contains(h.config.Variables, "*"):
		return "every variable is allowed here, credentials too: name the variables, or start the reconciler with " +
			"--env-allow for each"
	case name == sandbox.AllVariables:
		return ""
	case h == nil || !slices.Contains(h.config.Variables, name) && !slices.Contains(h.config.Variables, "*"):
		return fmt.Sprintf("variable %s is not allowed: the reconciler must be started with --env-allow %s", name, name)
	default:
		if _, ok := h.config.LookupEnv(name); !ok {
			return fmt.Sprintf("variable %s is not set where the service runs", name)
		}
		return ""
	}
}

// allowed resolves the symlinks of a path. problem says why the path is not allowed, "" if it is.
func (h *Host) allowed(p string) (target, problem string) {
	refused := fmt.Sprintf(
		"%q lies in no directory that is allowed: the reconciler must be started with --mount-allow for it", p)
	if !h.HasDirectories() {
		return "", refused
	}
	target, err := resolve(p)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Sprintf("%q does not exist", p)
	}
	if err != nil {
		return "", fmt.Sprintf("%q: %v", p, err)
	}
	if !slices.ContainsFunc(h.directories, func(dir string) bool { return sandbox.Within(target, dir) }) {
		if target != p {
			refused += fmt.Sprintf(" (it leads to %s)", target)
		}
		return "", refused
	}
	return target, ""
}

// HasDirectories reports whether any directory is allowed.
func (h *Host) HasDirectories() bool { return h != nil && len(h.directories) > 0 }

// OpenDirectory opens a directory within an allowed one, and returns its path with symlinks resolved. Concurrent
// changes cannot lead it out of the allowed directory. The caller closes it. Errors: Invalid.
func (h *Host) OpenDirectory(p string) (dir *os.Root, resolved string, err error) {
	resolved, problem := h.allowed(p)
	if problem != "" {
		return nil, "", sandbox.Errorf(sandbox.Invalid, "%s", problem)
	}
	within := h.directories[slices.IndexFunc(h.directories, func(d string) bool { return sandbox.Within(resolved, d) })]
	top, err := os.OpenRoot(within)
	if err != nil {
		return nil, "", sandbox.Errorf(sandbox.Invalid, "opening %q: %w", p, err)
	}
	defer func() { _ = top.Close() }() // only read
	relative, err := filepath.Rel(within, resolved)
	if err == nil {
		dir, err = top.OpenRoot(relative + "/.") // the suffix avoids blocking on a FIFO
	}
	if err != nil {
		return nil, "", sandbox.Errorf(sandbox.Invalid, "opening %q: %w", p, err)
	}
	return dir, resolved, nil
}

// Env returns the variables for a sandbox. Errors: Invalid, as Check.
func (h *Host) Env(a sandbox.HostAccess) (map[string]string, error) {
	if err := h.Check("what a sandbox is passed", sandbox.HostAccess{EnvPassthrough: a.EnvPassthrough}); err != nil {
		return nil, err
	}
	env := make(map[string]string, len(a.EnvPassthrough))
	for _, name := range a.EnvPassthrough {
		if name == sandbox.AllVariables {
			h.addAll(env, a.EnvBlocked)
			continue
		}
		env[name], _ = h.config.LookupEnv(name) // Check found it
	}
	return env, nil
}

// addAll adds the variables that the operator allows, are set, and may be in a sandbox.
func (h *Host) addAll(env map[string]string, blocked []string) {
	for _, name := range h.config.Variables {
		if value, isSet := h.config.LookupEnv(name); isSet && sandbox.EnvProblem(name, blocked) == "" {
			env[name] = value
		}
	}
}

// Mounts returns the mounts of a sandbox with symlinks in their sources resolved. Errors: Invalid, as Check.
func (h *Host) Mounts(a sandbox.HostAccess) ([]sandbox.Mount, error) {
	if err := h.Check("what a sandbox mounts", sandbox.HostAccess{Mounts: a.Mounts}); err != nil {
		return nil, err
	}
	mounts := slices.Clone(a.Mounts)
	for i := range mounts {
		mounts[i].Source, _ = h.allowed(mounts[i].Source)
	}
	return mounts, nil
}

// Open returns the source of a copy, as a tar stream to unpack in dir. It reads nothing outside the source: it packs
// symlinks as symlinks. Errors: Invalid, as Check.
func (h *Host) Open(c sandbox.Copy) (dir string, stream io.ReadCloser, err error) {
	if err := h.Check("what a sandbox is given a copy of", sandbox.HostAccess{Copies: []sandbox.Copy{c}}); err != nil {
		return "", nil, err
	}
	source, _ := h.allowed(c.Source)
	info, err := os.Stat(source)
	if err != nil {
		return "", nil, sandbox.Errorf(sandbox.Invalid, "copying %s: %w", c.Source, err)
	}
	root, name, dir := source, "", c.Target
	if !info.IsDir() {
		root, name, dir = filepath.Dir(source), filepath.Base(source), path.Dir(c.Target)
	}
	tree, err := os.OpenRoot(root)
	if err != nil {
		return "", nil, sandbox.Errorf(sandbox.Invalid, "copying %s: %w", c.Source, err)
	}
	pr, pw := io.Pipe()
	go func() { // ends with the stream
		tw := tar.NewWriter(pw)
		var err error
		if name == "" {
			err = packTree(tw, tree)
		} else {
			err = packFile(tw, tree, name, path.Base(c.Target))
		}
		_ = pw.CloseWithError(errors.Join(err, tw.Close(), tree.Close()))
	}()
	return dir, pr, nil
}

func packTree(tw *tar.Writer, tree *os.Root) error {
	return fs.WalkDir(tree.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return packFile(tw, tree, name, name)
	})
}

// packFile writes one entry. It skips everything but files, directories and symlinks.
func packFile(tw *tar.Writer, tree *os.Root, name, as string) error {
	info, err := tree.Lstat(name)
	if err != nil {
		return err
	}
	var link string
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = tree.Readlink(name); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil
	}
	entry, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	entry.Name, entry.Uid, entry.Gid, entry.Uname, entry.Gname = as, 0, 0, "", ""
	if err := tw.WriteHeader(entry); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := tree.Open(name)
	if err != nil {
		return err
	}
	_, err = io.CopyN(tw, f, info.Size())
	return errors.Join(err, f.Close())
}
