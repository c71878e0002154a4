package gitmirror

import (
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// entry is one path of a checkout.
type entry struct {
	path string // relative to the checkout
	mode filemode.FileMode
	hash plumbing.Hash
	size int64
	// link is the target of a symbolic link. leaves: it leads out of the checkout, or into .git.
	link   string
	leaves bool
}

// Limits of a tree's shape.
const (
	maxPathBytes = 4000
	maxTreeDepth = 200
	maxLinkBytes = 4000
)

// walker lists the tree of a commit.
type walker struct {
	ctx     context.Context //nolint:containedctx // it exists for one call
	objects storer.EncodedObjectStorer
	limits  Limits
	entries []entry
	// seen counts entries, including directories. total counts the bytes of files.
	seen, total int64
}

// list returns the files, links and submodules of a tree, in the order of Git's index.
func list(ctx context.Context, objects storer.EncodedObjectStorer, tree plumbing.Hash, l Limits,
	before *Checkout) ([]entry, error) {
	w := &walker{ctx: ctx, objects: objects, limits: l, seen: before.Files, total: before.bytes}
	if err := w.walk(tree, "", 0); err != nil {
		return nil, err
	}
	before.Files, before.bytes = w.seen, w.total
	return w.entries, nil
}

func (w *walker) walk(hash plumbing.Hash, dir string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return sandbox.Errorf(sandbox.Timeout, "reading the tree: %w", err)
	}
	if depth > maxTreeDepth {
		return tooLarge("the tree", maxTreeDepth, "directories within each other")
	}
	tree, err := object.GetTree(w.objects, hash)
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "tree %s of %q cannot be read: %w", hash, dir, err)
	}
	names := make(map[string]bool, len(tree.Entries))
	for _, e := range tree.Entries {
		name := path.Join(dir, e.Name)
		if problem := nameProblem(e.Name); problem != "" {
			return sandbox.Errorf(sandbox.Failed, "its tree has the name %q in %q, %s: it is refused, as git fsck does",
				e.Name, dir, problem)
		}
		if names[e.Name] {
			return sandbox.Errorf(sandbox.Failed, "its tree has the name %q twice: it is refused, as git fsck does", name)
		}
		names[e.Name] = true
		if len(name) > maxPathBytes {
			return tooLarge("a path of its tree", maxPathBytes, "bytes")
		}
		if w.seen++; w.seen > w.limits.Files {
			return tooLarge("its tree", w.limits.Files, "files and directories")
		}
		if e.Mode == filemode.Dir {
			err = w.walk(e.Hash, name, depth+1)
		} else {
			err = w.add(entry{path: name, mode: e.Mode, hash: e.Hash})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds anything but a directory.
func (w *walker) add(e entry) (err error) {
	base := strings.ToLower(path.Base(e.path))
	switch e.mode {
	case filemode.Submodule:
		w.entries = append(w.entries, e)
		return nil
	case filemode.Regular, filemode.Deprecated, filemode.Executable:
	case filemode.Symlink:
		if base == ".gitmodules" {
			return sandbox.Errorf(sandbox.Failed, "its .gitmodules is a symbolic link: it is refused, as git fsck does")
		}
	default:
		return sandbox.Errorf(sandbox.Failed, "its tree has the mode %o for %q: it is refused, as git fsck does",
			e.mode, e.path)
	}
	if e.size, err = w.objects.EncodedObjectSize(e.hash); err != nil {
		return sandbox.Errorf(sandbox.Failed, "file %q cannot be read: %w", e.path, err)
	}
	if w.total += e.size; w.total > w.limits.TreeBytes {
		return tooLarge("its tree", w.limits.TreeBytes, "bytes")
	}
	if e.mode == filemode.Symlink {
		if e.link, err = w.linkOf(e); err != nil {
			return err
		}
		e.leaves = leavesCheckout(e.path, e.link)
	}
	w.entries = append(w.entries, e)
	return nil
}

// linkOf reads the target of a symbolic link.
func (w *walker) linkOf(e entry) (string, error) {
	if e.size == 0 || e.size > maxLinkBytes {
		return "", sandbox.Errorf(sandbox.Failed, "the link %q has a target of %d bytes: 1 to %d are possible",
			e.path, e.size, maxLinkBytes)
	}
	content, err := readBlob(w.objects, e.hash, maxLinkBytes)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Failed, "link %q cannot be read: %w", e.path, err)
	}
	if strings.ContainsFunc(string(content), isControl) {
		return "", sandbox.Errorf(sandbox.Failed, "the target of the link %q has control characters", e.path)
	}
	return string(content), nil
}

// readBlob reads a blob of at most limit bytes.
func readBlob(objects storer.EncodedObjectStorer, hash plumbing.Hash, limit int64) ([]byte, error) {
	o, err := objects.EncodedObject(plumbing.BlobObject, hash)
	if err != nil {
		return nil, err
	}
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	_ = r.Close() // only read
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	return content, err
}

// leavesCheckout reports whether a link's target is outside of the checkout, or in a directory .git.
func leavesCheckout(name, target string) bool {
	if filepath.IsAbs(target) || strings.Contains(target, `\`) {
		return true
	}
	joined := path.Join(path.Dir(name), target)
	if !filepath.IsLocal(joined) {
		return true
	}
	for part := range strings.SplitSeq(joined, "/") {
		if isDotGit(part) {
			return true
		}
	}
	return false
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// nameProblem returns why git fsck refuses a name in a tree, "" if it does not. Control characters are refused too.
func nameProblem(name string) string {
	switch {
	case name == "":
		return "which is empty"
	case name == "." || name == "..":
		return "which is a directory itself"
	case strings.ContainsAny(name, `/\`):
		return "which is a path"
	case isDotGit(name):
		return "which some file systems take for .git"
	case strings.ContainsFunc(name, isControl):
		return "which has control characters"
	}
	return ""
}

// isDotGit reports whether a name is .git on a file system that ignores case, ends of names (NTFS) or invisible
// characters (HFS+).
func isDotGit(name string) bool {
	visible := strings.ToLower(strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return r
	}, name))
	stream, _, _ := strings.Cut(visible, ":") // NTFS: an alternate stream
	stream = strings.TrimRight(stream, " .")
	return stream == ".git" || stream == "git~1"
}
