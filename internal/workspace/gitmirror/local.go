package gitmirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// local is a repository in an allowed directory of this machine. A sandbox may be able to write there, so the
// repository is hostile too: only HEAD, refs, packs and loose objects are read, no link leads out of it, and every
// object is checked like one from a server. Nothing is written to it.
type local struct {
	source Source
	// own has HEAD, common has refs and objects. They differ for a worktree of git worktree add.
	own, common *os.Root
}

// Limits of the files of a repository.
const (
	maxRefFile    = 4 << 10
	maxPackedRefs = 64 << 20
	maxSymrefs    = 5
	// localTries is how often a repository is read if Git packs it meanwhile.
	localTries = 3
)

// openAllowed opens a directory that the operator allows. Errors: Failed.
func openAllowed(allowed *host.Host, p string) (dir *os.Root, resolved string, err error) {
	if dir, resolved, err = allowed.OpenDirectory(p); err != nil {
		err = sandbox.Errorf(sandbox.Failed, "%w", err)
	}
	return dir, resolved, err
}

// openLocal opens the repository of a source. Errors: Failed.
func openLocal(allowed *host.Host, src Source) (_ *local, err error) {
	u, err := sandbox.ParseGitURL(src.URL)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "its URL cannot be read")
	}
	tree, at, err := openAllowed(allowed, u.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tree.Close() }() // only read
	l := &local{source: src}
	defer func() {
		if err != nil {
			err = errors.Join(l.explain(err), l.Close())
		}
	}()
	switch info, lookErr := tree.Lstat(".git"); {
	case errors.Is(lookErr, fs.ErrNotExist):
		l.own, err = tree.OpenRoot(".") // it may be bare
	case lookErr != nil:
		err = lookErr
	case info.Mode().IsRegular():
		l.own, l.common, err = openLinked(allowed, tree, at)
	default:
		l.own, err = tree.OpenRoot(".git/.") // /. avoids waiting for a FIFO
	}
	if err == nil && l.common == nil {
		l.common, err = l.own.OpenRoot(".")
	}
	if err != nil {
		return nil, err
	}
	return l, l.usable()
}

// checkLocal is Check for a repository of this machine.
func (s *Store) checkLocal(text string) string {
	l, err := openLocal(s.Host, Source{URL: text, Depth: 1})
	if err != nil {
		return err.Error()
	}
	_ = l.Close() // only read
	return ""
}

// openLinked opens the repository of a worktree that git worktree add created. The repository must know the worktree:
// write access to the worktree alone must not allow the choice of another repository. Everything is read through
// common, so that replacing a directory meanwhile cannot lead to another repository.
func openLinked(allowed *host.Host, tree *os.Root, at string) (own, common *os.Root, err error) {
	text, err := readFile(tree, ".git", maxRefFile)
	if err != nil {
		return nil, nil, err
	}
	target := absolute(at, strings.TrimPrefix(text, "gitdir: "))
	worktrees, id := filepath.Dir(target), filepath.Base(target)
	unknown := sandbox.Errorf(sandbox.Failed, "its file .git leads to %q, which is not a repository that has it as a "+
		"worktree: name the repository itself, or run git worktree repair", target)
	if filepath.Base(worktrees) != "worktrees" {
		return nil, nil, unknown
	}
	common, commonAt, err := openAllowed(allowed, filepath.Dir(worktrees))
	if err != nil {
		return nil, nil, err
	}
	if own, err = common.OpenRoot(path.Join("worktrees", id) + "/."); err != nil {
		return nil, common, unknown
	}
	back, err := readFile(own, "gitdir", maxRefFile)
	if err != nil || absolute(filepath.Join(commonAt, "worktrees", id), back) != filepath.Join(at, ".git") {
		return own, common, unknown
	}
	return own, common, nil
}

func absolute(dir, target string) string {
	if filepath.IsAbs(target) {
		return filepath.Clean(target)
	}
	return filepath.Join(dir, target)
}

// usable returns why a repository cannot be read, nil if it can.
func (l *local) usable() error {
	has := func(root *os.Root, name string) bool {
		info, err := root.Stat(name)
		return err == nil && (info.IsDir() || info.Size() > 0)
	}
	switch {
	case !has(l.own, "HEAD") || !has(l.common, "objects"):
		return sandbox.Errorf(sandbox.Failed, "it is not a Git repository that can be read: it has no HEAD or no objects")
	case has(l.common, "reftable"):
		return sandbox.Errorf(sandbox.Failed, "its refs have the format reftable: run git refs migrate --ref-format=files")
	case has(l.common, "objects/info/alternates"):
		return sandbox.Errorf(sandbox.Failed, "objects of it are in another repository (objects/info/alternates): run "+
			"git repack -a -d, and remove that file")
	case has(l.common, "shallow") && l.source.Depth == 0:
		return sandbox.Errorf(sandbox.Failed, "it has a part of its history only: set depth to no more than that, or run "+
			"git fetch --unshallow")
	}
	return nil
}

// Close implements io.Closer.
func (l *local) Close() (err error) {
	for _, root := range []*os.Root{l.own, l.common} {
		if root != nil {
			err = errors.Join(err, root.Close())
		}
	}
	return err
}

// resolve implements repository.
func (l *local) resolve() (found, error) {
	if l.source.Ref != "" {
		return named(l.source.Ref, l.ref)
	}
	head, err := readFile(l.own, "HEAD", maxRefFile)
	if err != nil {
		return found{}, l.explain(err)
	}
	name, isRef := strings.CutPrefix(head, "ref: ")
	if !isRef && plumbing.IsHash(head) {
		return found{want: plumbing.NewHash(head)}, nil
	}
	hash, err := l.ref(name)
	if err != nil {
		return found{}, err
	}
	if hash.IsZero() {
		return found{}, sandbox.Errorf(sandbox.Failed, "its HEAD is on %q, which has no commit: name a ref", name)
	}
	branch, isBranch := strings.CutPrefix(name, "refs/heads/")
	if !isBranch {
		branch = ""
	}
	return found{hash, branch}, nil
}

// ref returns the hash of a ref, zero if the ref does not exist.
func (l *local) ref(name string) (hash plumbing.Hash, err error) {
	for range maxSymrefs {
		if !strings.HasPrefix(name, "refs/") || !filepath.IsLocal(name) ||
			strings.ContainsFunc(name, func(r rune) bool { return r == ' ' || isControl(r) }) {
			return hash, nil
		}
		if info, err := l.common.Stat(name); err != nil || info.IsDir() {
			return l.packedRef(name)
		}
		text, err := readFile(l.common, name, maxRefFile)
		if err != nil {
			return hash, l.explain(err)
		}
		if plumbing.IsHash(text) {
			return plumbing.NewHash(text), nil
		}
		target, isSymref := strings.CutPrefix(text, "ref: ")
		if !isSymref {
			return hash, sandbox.Errorf(sandbox.Failed, "its ref %q has no SHA-1, the only object format that can be read", name)
		}
		name = target
	}
	return hash, sandbox.Errorf(sandbox.Failed, "its ref %q leads to more than %d other refs", name, maxSymrefs)
}

func (l *local) packedRef(name string) (hash plumbing.Hash, err error) {
	text, err := readFile(l.common, "packed-refs", maxPackedRefs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return hash, l.explain(err)
	}
	for line := range strings.Lines(text) {
		if h, ref, _ := strings.Cut(strings.TrimSpace(line), " "); ref == name && plumbing.IsHash(h) {
			return plumbing.NewHash(h), nil
		}
	}
	return hash, nil
}

// fetch implements repository. It copies all objects that the mirror lacks, so no pack has only the objects of the
// commit.
func (l *local) fetch(ctx context.Context, m *mirror, _ plumbing.Hash, limits Limits) (pack string, err error) {
	for range localTries {
		if err = l.copyTo(ctx, m, limits); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return "", l.explain(err)
}

// copyTo copies objects to a mirror. Git packs an object before it removes the object's file, so packs come last.
// Errors: fs.ErrNotExist if Git has removed a file meanwhile.
func (l *local) copyTo(ctx context.Context, m *mirror, limits Limits) error {
	in := &incoming{ctx: ctx, mirror: m, limits: limits, left: limits.Objects, loose: m.open()}
	defer func() { _ = in.loose.Close() }() // its objects are stored
	budget := &boundedBody{what: "the repository", left: limits.PackBytes, limit: limits.PackBytes}
	within := func(f *os.File) io.Reader {
		budget.ReadCloser = io.NopCloser(interruptible{f, ctx})
		return budget
	}
	for first := range 256 {
		dir := fmt.Sprintf("objects/%02x", first)
		err := l.each(ctx, dir, limits, func(name string) bool {
			_, err := os.Stat(filepath.Join(m.dir, dir, name))
			return len(name) == 38 && plumbing.IsHash(dir[len("objects/"):]+name) && err != nil
		}, func(f *os.File, _ int64) error {
			return errors.Join(in.count(1), in.object(within(f)), budget.exceeded()) // damaged ones are left out
		})
		if err != nil {
			return err
		}
	}
	isPack := func(name string) bool { return strings.HasSuffix(name, ".pack") }
	return l.each(ctx, "objects/pack", limits, isPack, func(f *os.File, size int64) error {
		if m.hasPack(f, size) {
			return nil
		}
		_, n, err := m.install(ctx, within(f), limits)
		return errors.Join(err, in.count(n))
	})
}

// each reads the wanted regular files of a directory, which may be missing.
func (l *local) each(ctx context.Context, dir string, limits Limits, wanted func(name string) bool,
	read func(f *os.File, size int64) error) error {
	d, err := openFile(l.common, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(int(min(limits.Objects, math.MaxInt32)))
	_ = d.Close() // only read
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !e.Type().IsRegular() || !wanted(e.Name()) {
			continue
		}
		f, err := openFile(l.common, path.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil && info.Mode().IsRegular() {
			err = read(f, info.Size())
		}
		_ = f.Close() // only read
		if err != nil {
			return err
		}
	}
	return nil
}

// hasPack reports whether a mirror has a pack, by the checksum that it ends with. A pack with a false checksum is not
// copied, so only its own repository lacks objects.
func (m *mirror) hasPack(f io.ReaderAt, size int64) bool {
	var sum plumbing.Hash
	if _, err := f.ReadAt(sum[:], size-int64(len(sum))); err != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(m.dir, "objects", "pack", "pack-"+sum.String()+".idx"))
	return err == nil
}

// openFile opens a file or a directory without waiting: the other end of a FIFO may never open.
func openFile(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// readFile reads a regular file of at most limit bytes, without the white space around its text.
func readFile(root *os.Root, name string, limit int64) (string, error) {
	f, err := openFile(root, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", sandbox.Errorf(sandbox.Failed, "its %s is not a regular file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = tooLarge("its "+name, limit, "bytes")
	}
	return strings.TrimSpace(string(text)), err
}

// explain turns an error of this machine's disk into one for the reader.
func (l *local) explain(err error) error {
	var own *sandbox.Error
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sandbox.Errorf(sandbox.Timeout, "reading it took too long: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return sandbox.Errorf(sandbox.Unavailable, "Git removes files of it meanwhile: %w", err)
	default:
		return sandbox.Errorf(sandbox.Failed, "it cannot be read by the reconciler: %w", err)
	}
}
