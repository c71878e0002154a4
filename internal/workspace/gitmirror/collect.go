package gitmirror

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Collected is what a branch of a sandbox has beyond the commit that it began with. The caller closes it.
type Collected struct {
	Branch string
	// Base is the commit that the branch began with, Tip its last one. They are equal if nothing was committed.
	Base, Tip plumbing.Hash
	// Commits counts the commits beyond Base.
	Commits int

	all     []plumbing.Hash
	objects *filesystem.Storage
	dir     string
	subject string // of the base
}

// Close removes what was collected from this machine.
func (c *Collected) Close() {
	if c.objects != nil {
		_ = c.objects.Close() // only read
	}
	_ = os.RemoveAll(c.dir) // a temporary directory
}

// mirror returns the objects as a mirror.
func (c *Collected) mirror() *mirror { return &mirror{dir: c.dir} }

// Collect reads the directory .git of a sandbox from a tar stream: the branch, packs and loose objects, and nothing
// else. It takes no name, no index and no configuration from the sandbox, and computes the hash of every object itself.
// Errors: Failed if the repository cannot be used, NotFound if it has no such branch; an error of the stream keeps its
// code.
func Collect(ctx context.Context, dotGit io.Reader, branch, base string, l Limits) (c *Collected, err error) {
	defer recovered(&err)
	l = l.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, l.Time)
	defer cancel()
	dir, err := os.MkdirTemp("", "sandbox-workspace-*")
	if err != nil {
		return nil, cacheError(err)
	}
	collected := &Collected{Branch: branch, Base: plumbing.NewHash(base), dir: dir}
	defer func() {
		if c == nil {
			collected.Close()
		}
	}()
	m := &mirror{dir: dir}
	if err := os.MkdirAll(path.Join(dir, "objects", "pack"), 0o700); err != nil {
		return nil, cacheError(err)
	}
	in := &incoming{ctx: ctx, mirror: m, limits: l, left: l.Objects, ref: "refs/heads/" + branch}
	if err := in.read(dotGit); err != nil {
		return nil, err
	}
	if in.tip.IsZero() {
		return nil, sandbox.Errorf(sandbox.NotFound, "the repository has no branch %q", branch)
	}
	collected.Tip, collected.objects = in.tip, m.open()
	if err := collected.reach(ctx, l); err != nil {
		return nil, err
	}
	return collected, nil
}

// incoming reads a tar stream of .git.
type incoming struct {
	ctx    context.Context //nolint:containedctx // it exists for one call
	mirror *mirror
	limits Limits
	left   int64 // objects
	total  int64 // bytes of loose objects, unpacked
	ref    string
	tip    plumbing.Hash
	// loose stores loose objects.
	loose *filesystem.Storage
	isRef bool // tip is from the ref's own file
}

func (in *incoming) read(from io.Reader) error {
	in.loose = in.mirror.open()
	defer func() { _ = in.loose.Close() }() // its objects are stored
	tail := &zeros{from: &boundedBody{ReadCloser: io.NopCloser(from), what: "the repository",
		left: in.limits.PackBytes, limit: in.limits.PackBytes}}
	entries := tar.NewReader(tail)
	for {
		if err := in.ctx.Err(); err != nil {
			return sandbox.Errorf(sandbox.Timeout, "reading the repository: %w", err)
		}
		h, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF) && tail.n < tarEnd:
			return sandbox.Errorf(sandbox.Failed, "its stream has no end: %w", io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		_, name, _ := strings.Cut(h.Name, "/") // .git itself
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := in.entry(name, entries); err != nil {
			return err
		}
	}
}

// tarEnd is how many zero bytes end a tar stream. A writer that fails early leaves them out.
const tarEnd = 1024

// zeros counts the zero bytes at the end of what was read.
type zeros struct {
	from io.Reader
	n    int
}

func (z *zeros) Read(p []byte) (int, error) {
	n, err := z.from.Read(p)
	rest := bytes.TrimRight(p[:n], "\x00")
	if len(rest) > 0 {
		z.n = 0
	}
	z.n += n - len(rest)
	return n, err
}

// entry reads one file. Its name only decides how it is read.
func (in *incoming) entry(name string, content io.Reader) error {
	const maxRefs = 4 << 20
	switch dir := path.Dir(name); {
	case name == in.ref:
		text, err := io.ReadAll(io.LimitReader(content, 64))
		if hash := strings.TrimSpace(string(text)); err == nil && plumbing.IsHash(hash) {
			in.tip, in.isRef = plumbing.NewHash(hash), true
		}
		return err
	case name == "packed-refs":
		text, err := io.ReadAll(io.LimitReader(content, maxRefs))
		for line := range strings.Lines(string(text)) {
			hash, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
			if ref == in.ref && plumbing.IsHash(hash) && !in.isRef {
				in.tip = plumbing.NewHash(hash)
			}
		}
		return err
	case dir == "objects/pack" && strings.HasSuffix(name, ".pack"):
		_, n, err := in.mirror.install(in.ctx, content, in.limits)
		return errors.Join(err, in.count(n))
	case strings.HasPrefix(dir, "objects/") && len(dir) == len("objects/ab") && len(path.Base(name)) == 38:
		return errors.Join(in.count(1), in.object(content))
	default:
		return nil
	}
}

// count counts objects.
func (in *incoming) count(n int) error {
	if in.left -= int64(n); in.left < 0 {
		return tooLarge("the repository", in.limits.Objects, "objects")
	}
	return nil
}

// object stores a loose object under the hash that it has. It leaves out a damaged object, which only matters if the
// branch needs it.
func (in *incoming) object(content io.Reader) error {
	z, err := zlib.NewReader(content)
	if err != nil {
		return nil //nolint:nilerr // as told above
	}
	defer func() { _ = z.Close() }() // only read
	r := bufio.NewReader(z)
	kind, size, ok := looseHeader(r)
	if !ok {
		return nil
	}
	if size > in.limits.ObjectBytes {
		return tooLarge("an object", in.limits.ObjectBytes, "bytes")
	}
	if in.total += size; in.total > in.limits.UnpackedBytes {
		return tooLarge("all objects together", in.limits.UnpackedBytes, "bytes")
	}
	data, err := io.ReadAll(io.LimitReader(r, size+1))
	if err != nil || int64(len(data)) != size {
		return nil //nolint:nilerr // as told above
	}
	o := in.loose.NewEncodedObject()
	o.SetType(kind)
	o.SetSize(size)
	w, err := o.Writer()
	if err == nil {
		_, err = w.Write(data)
		err = errors.Join(err, w.Close())
	}
	if err == nil {
		_, err = in.loose.SetEncodedObject(o)
	}
	if err != nil {
		return cacheError(err)
	}
	return nil
}

// looseHeader reads the header of a loose object, such as "blob 12" and a zero byte. It reads no further than the
// longest one, unlike go-git's objfile, which keeps everything up to a space in memory.
func looseHeader(r *bufio.Reader) (kind plumbing.ObjectType, size int64, ok bool) {
	const longest = len("commit 9223372036854775807\x00")
	head, _ := r.Peek(longest) // a short object ends earlier
	text, _, ended := bytes.Cut(head, []byte{0})
	name, digits, _ := strings.Cut(string(text), " ")
	kind, kindErr := plumbing.ParseObjectType(name)
	size, sizeErr := strconv.ParseInt(digits, 10, 64)
	if !ended || kindErr != nil || sizeErr != nil || size < 0 {
		return 0, 0, false
	}
	_, err := r.Discard(len(text) + 1)
	return kind, size, err == nil
}

// reach lists the objects that the tip has and the base lacks.
func (c *Collected) reach(ctx context.Context, l Limits) error {
	base, err := object.GetCommit(c.objects, c.Base)
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "the repository does not have %s, the commit that it began with", c.Base)
	}
	c.subject, _, _ = strings.Cut(base.Message, "\n")
	seen := map[plumbing.Hash]bool{}
	for queue := []*object.Commit{base}; len(queue) > 0; { // with a depth, the history ends early
		next := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[next.Hash] {
			continue
		}
		seen[next.Hash] = true
		for _, hash := range next.ParentHashes {
			if parent, err := object.GetCommit(c.objects, hash); err == nil && !seen[hash] {
				queue = append(queue, parent)
			}
		}
	}
	s := &scan{ctx: ctx, objects: c.objects, limits: l, seen: seen}
	if err := s.tree(base.TreeHash, 0); err != nil {
		return err
	}
	s.all = nil // the base has them
	for queue := []plumbing.Hash{c.Tip}; len(queue) > 0; {
		hash := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[hash] {
			continue
		}
		seen[hash] = true
		commit, err := object.GetCommit(c.objects, hash)
		if err != nil {
			return sandbox.Errorf(sandbox.Failed, "commit %s is missing or damaged", hash)
		}
		c.Commits++
		s.all = append(s.all, hash)
		if err := s.tree(commit.TreeHash, 0); err != nil {
			return err
		}
		queue = append(queue, commit.ParentHashes...)
	}
	c.all = s.all
	return nil
}

// scan lists the objects of trees, and checks the names in them.
type scan struct {
	ctx     context.Context //nolint:containedctx // it exists for one call
	objects *filesystem.Storage
	limits  Limits
	seen    map[plumbing.Hash]bool
	all     []plumbing.Hash
	// lenient: scan checks neither names nor whether files exist.
	lenient bool
}

func (s *scan) tree(hash plumbing.Hash, depth int) error {
	if s.seen[hash] {
		return nil
	}
	if err := s.ctx.Err(); err != nil {
		return sandbox.Errorf(sandbox.Timeout, "reading the repository: %w", err)
	}
	if depth > maxTreeDepth {
		return tooLarge("a tree", maxTreeDepth, "directories within each other")
	}
	tree, err := object.GetTree(s.objects, hash)
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "tree %s is missing or damaged", hash)
	}
	s.seen[hash] = true
	s.all = append(s.all, hash)
	for _, e := range tree.Entries {
		if problem := nameProblem(e.Name); problem != "" && !s.lenient {
			return sandbox.Errorf(sandbox.Failed, "tree %s has the name %q, %s: it is refused, as git fsck does",
				hash, e.Name, problem)
		}
		switch {
		case e.Mode == 0o160000 || s.seen[e.Hash]:
		case e.Mode == 0o040000:
			if err := s.tree(e.Hash, depth+1); err != nil {
				return err
			}
		default:
			if !s.lenient && !s.has(e.Hash) {
				return sandbox.Errorf(sandbox.Failed, "object %s is missing or damaged", e.Hash)
			}
			s.seen[e.Hash] = true
			s.all = append(s.all, e.Hash)
		}
	}
	if int64(len(s.all)) > s.limits.Objects {
		return tooLarge("the branch", s.limits.Objects, "objects")
	}
	return nil
}

// has reports whether an object exists.
func (s *scan) has(hash plumbing.Hash) bool {
	_, err := s.objects.EncodedObjectSize(hash)
	return err == nil
}

// Bundle writes the commits as a Git bundle of version 2, which can be unpacked only where the base exists. Errors:
// Conflict if there is none.
func (c *Collected) Bundle(w io.Writer) (err error) {
	defer recovered(&err)
	if c.Commits == 0 {
		return sandbox.Errorf(sandbox.Conflict, "branch %s has no commit beyond %s: there is nothing to bundle",
			c.Branch, c.Base).WithReason(sandbox.ReasonInvalidState)
	}
	subject := strings.Map(func(r rune) rune {
		if isControl(r) {
			return ' '
		}
		return r
	}, c.subject)
	_, err = fmt.Fprintf(w, "# v2 git bundle\n-%s %s\n%s refs/heads/%s\n\n", c.Base, subject, c.Tip, c.Branch)
	if err != nil {
		return err
	}
	if err := c.mirror().encode(w, c.all); err != nil {
		return sandbox.Errorf(sandbox.Failed, "the commits cannot be packed: %w", err)
	}
	return nil
}

// Limits of a diff. A larger file is only named.
const (
	maxDiffBytes = 1 << 20
	maxDiffLines = 10_000
	maxDiffFiles = 5_000
	maxDiffTotal = 64 << 20
)

// Diff writes the changes from the base to the tip in the unified format. A file that is too large is only named.
func (c *Collected) Diff(ctx context.Context, w io.Writer) (err error) {
	defer recovered(&err)
	from, err := treeOfCommit(c.objects, c.Base)
	if err != nil {
		return err
	}
	to, err := treeOfCommit(c.objects, c.Tip)
	if err != nil {
		return err
	}
	changes, err := object.DiffTreeWithOptions(ctx, from, to, nil)
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "the changes cannot be read: %w", err)
	}
	if len(changes) > maxDiffFiles {
		return tooLarge("the diff", maxDiffFiles, "files")
	}
	total := 0
	for _, change := range changes {
		if err := ctx.Err(); err != nil {
			return sandbox.Errorf(sandbox.Timeout, "writing the diff: %w", err)
		}
		text, err := c.change(ctx, change)
		if err != nil {
			return err
		}
		if total += len(text); total > maxDiffTotal {
			return tooLarge("the diff", maxDiffTotal, "bytes")
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// change returns the diff of one file.
func (c *Collected) change(ctx context.Context, change *object.Change) ([]byte, error) {
	lines := 0
	for _, e := range []object.ChangeEntry{change.From, change.To} {
		if e.Name == "" || e.TreeEntry.Mode == 0o160000 {
			continue
		}
		size, err := c.objects.EncodedObjectSize(e.TreeEntry.Hash)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Failed, "file %q cannot be read: %w", e.Name, err)
		}
		if size <= maxDiffBytes {
			content, err := readBlob(c.objects, e.TreeEntry.Hash, maxDiffBytes)
			if err != nil {
				return nil, sandbox.Errorf(sandbox.Failed, "file %q cannot be read: %w", e.Name, err)
			}
			lines += bytes.Count(content, []byte("\n"))
		}
		if size > maxDiffBytes || lines > maxDiffLines {
			return fmt.Appendf(nil, "diff --git %s %s\nFiles %[1]s and %[2]s differ and are too large for a diff\n",
				quoted("a/", change.From.Name, change.To.Name), quoted("b/", change.To.Name, change.From.Name)), nil
		}
	}
	patch, err := change.PatchContext(ctx)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "the change of %q cannot be read: %w", change.To.Name, err)
	}
	var b bytes.Buffer
	if err := patch.Encode(&b); err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "the change of %q cannot be written: %w", change.To.Name, err)
	}
	return b.Bytes(), nil
}

// quoted returns a name as a diff writes it.
func quoted(prefix, name, other string) string {
	if name == "" {
		name = other
	}
	if text := strconv.Quote(prefix + name); text != `"`+prefix+name+`"` {
		return text
	}
	return prefix + name
}

func treeOfCommit(objects *filesystem.Storage, hash plumbing.Hash) (*object.Tree, error) {
	commit, err := object.GetCommit(objects, hash)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "commit %s cannot be read: %w", hash, err)
	}
	tree, err := commit.Tree()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "commit %s has no tree: %w", hash, err)
	}
	return tree, nil
}
