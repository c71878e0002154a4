package gitmirror

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Checkout is a commit of a repository, complete on this machine. The caller closes it.
type Checkout struct {
	// Commit is the commit that the ref named. RefBranch is the branch that the ref named, "" if it named none.
	Commit, RefBranch string
	// Files counts files, links and directories. SkippedLinks counts the links that are not written, and Submodules the
	// fetched submodules. All counts include those of submodules.
	Files, SkippedLinks, Submodules int64
	bytes                           int64

	url    string
	commit *object.Commit
	// shallow are the commits whose parents are missing.
	shallow []plumbing.Hash
	entries []entry
	// pack is the path of the pack and its index, without their endings.
	pack    string
	objects *filesystem.Storage
	close   func()
	subs    []submodule
}

// submodule is a checkout within a checkout.
type submodule struct {
	at   string
	name string
	*Checkout
}

// Close ends the use of the mirrors.
func (c *Checkout) Close() {
	for _, sub := range c.subs {
		sub.Close()
	}
	if c.close != nil {
		c.close()
	}
}

// Checkout fetches what a source names, unless the mirror has it, and checks everything that a checkout would write.
// Errors: Failed if the repository cannot be used, Unavailable and Timeout if another attempt may succeed. Their text
// contains no credential.
func (s *Store) Checkout(ctx context.Context, src Source) (*Checkout, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Time)
	defer cancel()
	total := &Checkout{}
	c, err := s.checkout(ctx, src, total)
	if err != nil {
		return nil, err
	}
	c.Files, c.SkippedLinks, c.Submodules = total.Files, total.SkippedLinks, total.Submodules
	return c, nil
}

// checkout is Checkout for one repository. total counts over all repositories of a call.
func (s *Store) checkout(ctx context.Context, src Source, total *Checkout) (c *Checkout, err error) {
	r, err := s.open(ctx, src)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // only read
	ref, err := r.resolve()
	if err != nil {
		return nil, err
	}
	m, err := s.use(src)
	if err != nil {
		return nil, err
	}
	c = &Checkout{url: src.URL, RefBranch: ref.branch, close: func() { s.leave(m) }}
	own := c
	defer func() {
		if err != nil {
			own.Close()
		}
	}()
	defer recovered(&err)
	if err := s.fill(ctx, r, m, ref.want, src.Depth, c); err != nil {
		return nil, err
	}
	if c.entries, err = list(ctx, c.objects, c.commit.TreeHash, s.Limits, total); err != nil {
		return nil, err
	}
	for _, e := range c.entries {
		if e.leaves {
			total.SkippedLinks++
		}
	}
	if src.Submodules {
		err = s.addSubmodules(ctx, src, c, total)
	}
	return c, err
}

// recovered turns a panic over hostile data into an error: it must not end the service.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = sandbox.Errorf(sandbox.Failed, "the repository cannot be read: %v", p)
	}
}

// fill fetches a tip into a mirror that lacks it, and opens the mirror for a checkout.
func (s *Store) fill(ctx context.Context, r repository, m *mirror, want plumbing.Hash, depth int,
	c *Checkout) (err error) {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	own, complete := m.tip(want)
	if !complete {
		if own, err = r.fetch(ctx, m, want, s.Limits); err != nil {
			return err
		}
	}
	objects := m.open()
	leave := c.close
	c.objects, c.close = objects, func() {
		_ = objects.Close() // only read
		leave()
	}
	if c.commit, err = commitOf(objects, want); err != nil {
		return err
	}
	c.Commit = c.commit.Hash.String()
	reached, shallow, err := reach(ctx, objects, c.commit, depth, s.Limits.Objects)
	if err != nil {
		return err
	}
	c.shallow = shallow
	if c.pack, err = m.export(ctx, own, c.commit.Hash, reached, s.Limits); err != nil || complete {
		return err
	}
	return m.addTip(want, own) // reach has read all of it
}

// reach returns all objects of a commit's history to a depth, and the commits whose parents are left out.
func reach(ctx context.Context, objects *filesystem.Storage, from *object.Commit, depth int,
	most int64) (all, shallow []plumbing.Hash, err error) {
	seen := map[plumbing.Hash]bool{from.Hash: true}
	trees := &scan{ctx: ctx, objects: objects, limits: Limits{Objects: most}, seen: seen, lenient: true}
	generation := []*object.Commit{from}
	for n := 1; len(generation) > 0; n++ {
		var next []*object.Commit
		for _, c := range generation {
			if err := ctx.Err(); err != nil {
				return nil, nil, sandbox.Errorf(sandbox.Timeout, "reading the history: %w", err)
			}
			trees.all = append(trees.all, c.Hash)
			if err := trees.tree(c.TreeHash, 0); err != nil {
				return nil, nil, err
			}
			if depth > 0 && n == depth {
				if len(c.ParentHashes) > 0 {
					shallow = append(shallow, c.Hash)
				}
				continue
			}
			for _, p := range c.ParentHashes {
				if seen[p] {
					continue
				}
				seen[p] = true
				parent, err := object.GetCommit(objects, p)
				if err != nil {
					return nil, nil, sandbox.Errorf(sandbox.Failed, "commit %s is missing or damaged: %w", p, err)
				}
				next = append(next, parent)
			}
		}
		generation = next
	}
	return trees.all, shallow, nil
}

// export returns a pack with the objects of a commit and nothing else. It creates the pack unless the mirror has one:
// own, or an earlier export.
func (m *mirror) export(ctx context.Context, own string, commit plumbing.Hash, all []plumbing.Hash,
	l Limits) (string, error) {
	if own != "" {
		return filepath.Join(m.dir, "objects", "pack", own), nil
	}
	to := filepath.Join(m.dir, "exports", commit.String())
	if _, err := os.Stat(to + ".idx"); err == nil {
		return to, nil
	}
	f, err := os.CreateTemp(filepath.Join(m.dir, "exports"), "unfinished-*")
	if err != nil {
		return "", cacheError(err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // of a failed export
	defer func() { _ = f.Close() }()
	if err := m.encode(f, all); err != nil {
		return "", sandbox.Errorf(sandbox.Failed, "its objects cannot be packed: %w", err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		return "", cacheError(err)
	}
	if _, _, err := indexPack(ctx, f, l, f.Name()+".idx"); err != nil {
		return "", err
	}
	// The index comes last: a pack with an index is complete.
	if err := errors.Join(f.Close(), os.Rename(f.Name(), to+".pack"), os.Rename(f.Name()+".idx", to+".idx")); err != nil {
		return "", cacheError(err)
	}
	return to, nil
}
