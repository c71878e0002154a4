package gitmirror_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const token = "hunter2-hunter2"

func newStore(t *testing.T, s *gittest.Server, change ...func(c *gitmirror.Config)) *gitmirror.Store {
	t.Helper()
	c := gitmirror.Config{Dir: t.TempDir()}
	if s != nil {
		c.Allow = []string{s.URL}
	}
	for _, f := range change {
		f(&c)
	}
	store, err := gitmirror.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func checkout(t *testing.T, s *gitmirror.Store, src gitmirror.Source) *gitmirror.Checkout {
	t.Helper()
	c, err := s.Checkout(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// unpack writes a checkout to a directory as a sandbox would, and returns the directory and the stream.
func unpack(t *testing.T, c *gitmirror.Checkout, branch string) (dir string, all []byte) {
	t.Helper()
	stream := c.Tar(t.Context(), branch)
	all, err := io.ReadAll(stream)
	if err := errors.Join(err, stream.Close()); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	entries := tar.NewReader(bytes.NewReader(all))
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return dir, all
		}
		if err != nil {
			t.Fatal(err)
		}
		if !filepath.IsLocal(filepath.Clean(h.Name)) {
			t.Fatalf("the stream has the name %q", h.Name)
		}
		at := filepath.Join(dir, h.Name)
		err = os.MkdirAll(filepath.Dir(at), 0o755)
		switch h.Typeflag {
		case tar.TypeDir:
			err = errors.Join(err, os.MkdirAll(at, 0o755))
		case tar.TypeSymlink:
			err = errors.Join(err, os.Symlink(h.Linkname, at))
		default:
			content, readErr := io.ReadAll(entries)
			err = errors.Join(err, readErr, os.WriteFile(at, content, fs.FileMode(h.Mode)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wantRefused checks that a checkout fails for good, and what its error says.
func wantRefused(t *testing.T, s *gitmirror.Store, src gitmirror.Source, says string) {
	t.Helper()
	c, err := s.Checkout(t.Context(), src)
	if err == nil {
		c.Close()
	}
	if sandbox.CodeOf(err) != sandbox.Failed || !strings.Contains(err.Error(), says) {
		t.Errorf("the error is %v, want one with %q", err, says)
	}
	if err != nil && strings.Contains(err.Error(), token) {
		t.Errorf("the error has the credential: %v", err)
	}
}

func TestACheckoutIsARepositoryThatGitAccepts(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("team/app.git", map[string]string{
		"README.md": "one", "src/deep/main.go": "package main", "link": "-> src/deep/main.go", "name with space": "x",
	})
	head := repo.Commit("main", map[string]string{"README.md": "two"})
	server.Require("x-access-token", token)
	store := newStore(t, server)
	c := checkout(t, store, gitmirror.Source{URL: repo.URL, Username: "x-access-token", Secret: token})
	if c.Commit != head || c.RefBranch != "main" {
		t.Errorf("it is commit %s of %q, want %s of main", c.Commit, c.RefBranch, head)
	}
	dir, all := unpack(t, c, "sandbox/ann/1")
	if got := gittest.Git(t, dir, nil, "status", "--porcelain", "--branch"); got != "## sandbox/ann/1" {
		t.Errorf("git status says %q", got)
	}
	gittest.Git(t, dir, nil, "fsck", "--strict")
	if got := gittest.Git(t, dir, nil, "log", "--format=%H %D", "--all"); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, head+" HEAD -> sandbox/ann/1, origin/main") {
		t.Errorf("git log says %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "link")); err != nil || string(text) != "package main" {
		t.Errorf("the link leads to %q: %v", text, err)
	}
	if got := gittest.Git(t, dir, nil, "remote", "get-url", "origin"); got != repo.URL {
		t.Errorf("origin is %q", got)
	}
	if bytes.Contains(all, []byte(token)) {
		t.Error("the stream has the credential")
	}
	wantNowhere(t, store.Dir, token)
	// Committing on the branch works as usual.
	if err := os.WriteFile(filepath.Join(dir, "new"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, nil, "add", "new")
	gittest.Git(t, dir, nil, "commit", "--quiet", "--message", "more")
	wantRefused(t, store, gitmirror.Source{URL: repo.URL}, "set credential_secret")
	wantRefused(t, store, gitmirror.Source{URL: repo.URL, Username: "x", Secret: token}, "was not accepted")
	wantRefused(t, store, gitmirror.Source{URL: server.URL + "/none", Username: "x-access-token", Secret: token},
		"no such repository")
}

// wantNowhere fails the test if a file below a directory contains a text.
func wantNowhere(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(p)
		if bytes.Contains(content, []byte(text)) || strings.Contains(p, text) {
			t.Errorf("%s has %q", p, text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Two stores behave like two reconcilers on one machine.
func TestLeasesShareAMirrorThatFetchesOnce(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "one"})
	store := newStore(t, server)
	other := newStore(t, server, func(c *gitmirror.Config) { c.Dir = store.Dir })
	var all sync.WaitGroup
	for n := range 10 {
		store := []*gitmirror.Store{store, other}[n%2]
		all.Go(func() {
			c, err := store.Checkout(t.Context(), gitmirror.Source{URL: repo.URL})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			stream := c.Tar(t.Context(), "b")
			if _, err := io.Copy(io.Discard, stream); err != nil {
				t.Error(err)
			}
			_ = stream.Close()
		})
	}
	all.Wait()
	if n := server.Packs.Load(); n != 1 {
		t.Errorf("10 leases fetched %d packs", n)
	}
	// A later commit causes one more fetch, of the new objects only.
	head := repo.Commit("main", map[string]string{"b": "two"})
	c := checkout(t, store, gitmirror.Source{URL: repo.URL})
	if c.Commit != head || server.Packs.Load() != 2 {
		t.Errorf("it is %s after %d packs, want %s", c.Commit, server.Packs.Load(), head)
	}
	dir, _ := unpack(t, c, "b")
	gittest.Git(t, dir, nil, "fsck", "--strict")
	if got := gittest.Git(t, dir, nil, "rev-list", "--count", "HEAD"); got != "2" {
		t.Errorf("it has %s commits", got)
	}
}

func TestARefCanBeABranchATagOrACommit(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "one"})
	first := gittest.Git(t, repo.Path, nil, "rev-parse", "main")
	gittest.Git(t, repo.Path, nil, "tag", "-a", "-m", "v1", "v1", first)
	second := repo.Commit("main", map[string]string{"a": "two"})
	other := repo.Commit("feature/x", map[string]string{"private": "only on this branch"})
	store := newStore(t, server)
	for ref, want := range map[string]string{
		"": second, "main": second, "v1": first, "refs/tags/v1": first, "feature/x": other, first: first,
		"refs/heads/feature/x": other,
	} {
		c := checkout(t, store, gitmirror.Source{URL: repo.URL, Ref: ref})
		if c.Commit != want {
			t.Errorf("ref %q is %s, want %s", ref, c.Commit, want)
		}
		dir, _ := unpack(t, c, "b")
		gittest.Git(t, dir, nil, "fsck", "--strict")
		// The mirror has all of them by the end. A checkout has the objects of its own history only.
		count := gittest.Git(t, dir, nil, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
		reachable := gittest.Git(t, dir, nil, "rev-list", "--objects", "HEAD")
		if strings.Count(count, "\n") > strings.Count(reachable, "\n")+1 {
			t.Errorf("ref %q has unreachable objects:\n%s\nreachable:\n%s", ref, count, reachable)
		}
	}
	for _, ref := range []string{"none", strings.Repeat("1", 40)} {
		wantRefused(t, store, gitmirror.Source{URL: repo.URL, Ref: ref}, "")
	}
}

// Unlike small packs, these packs of a server have deltas. A second fetch adds objects, and all are packed again.
func TestLargeHistoriesAreFetchedAndPackedAgain(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	lines := func(from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintln(&b, i)
		}
		return b.String()
	}
	repo := server.Repository("app", map[string]string{"a": lines(0, 20_000), "b": lines(5, 3000)})
	grow := func(n int) {
		for i := range 5 {
			repo.Commit("main", map[string]string{"a": lines(n+i, 20_000+2*n), "b": lines(n+i, 4000+i), "c": lines(n, n+i+1)})
		}
		gittest.Git(t, repo.Path, nil, "gc", "--quiet")
	}
	store := newStore(t, server)
	for n := range 3 {
		grow(10 * (n + 1))
		for range 2 {
			c := checkout(t, store, gitmirror.Source{URL: repo.URL})
			dir, _ := unpack(t, c, "b")
			gittest.Git(t, dir, nil, "fsck", "--strict")
			if got := gittest.Git(t, dir, nil, "status", "--porcelain"); got != "" {
				t.Errorf("git status says %q", got)
			}
			if got, want := gittest.Git(t, dir, nil, "rev-list", "--count", "HEAD"), fmt.Sprint(1+5*(n+1)); got != want {
				t.Errorf("it has %s commits, want %s", got, want)
			}
		}
	}
}

func TestADepthLimitsHistory(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "1"})
	for _, n := range []string{"2", "3", "4"} {
		repo.Commit("main", map[string]string{"a": n})
	}
	store := newStore(t, server)
	for _, next := range []string{"5", "6"} {
		c := checkout(t, store, gitmirror.Source{URL: repo.URL, Depth: 2})
		dir, _ := unpack(t, c, "b")
		if got := gittest.Git(t, dir, nil, "rev-list", "--count", "HEAD"); got != "2" {
			t.Errorf("it has %s commits, want 2", got)
		}
		gittest.Git(t, dir, nil, "fsck")
		repo.Commit("main", map[string]string{"a": next})
	}
}

func TestMirrorsThatNothingUsesArePruned(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	now := time.Now()
	store := newStore(t, server, func(c *gitmirror.Config) { c.Now = func() time.Time { return now } })
	mirrors := func() (n int) {
		entries, err := os.ReadDir(store.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				n++
			}
		}
		return n
	}
	one := server.Repository("one", map[string]string{"a": "1"})
	two := server.Repository("two", map[string]string{"a": "2"})
	held, err := store.Checkout(t.Context(), gitmirror.Source{URL: one.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, err := store.Checkout(t.Context(), gitmirror.Source{URL: two.URL})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := store.Prune(); err != nil || mirrors() != 2 {
		t.Errorf("%d mirrors are left: %v", mirrors(), err)
	}
	now = now.Add(8 * 24 * time.Hour)
	other := newStore(t, server, func(c *gitmirror.Config) { c.Dir, c.Now = store.Dir, store.Now })
	for name, s := range map[string]*gitmirror.Store{"another process": other, "its process": store} {
		if err := s.Prune(); err != nil || mirrors() != 1 {
			t.Errorf("%d mirrors are left by %s while one is used: %v", mirrors(), name, err)
		}
	}
	unpack(t, held, "b")
	held.Close()
	if err := other.Prune(); err != nil || mirrors() != 0 {
		t.Errorf("%d mirrors are left while none is used: %v", mirrors(), err)
	}
}
