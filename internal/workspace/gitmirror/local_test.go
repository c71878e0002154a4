package gitmirror_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
)

// worktree is a repository of this machine in an allowed directory.
type worktree struct {
	*testing.T
	allowed, dir string
	store        *gitmirror.Store
}

func newWorktree(t *testing.T, change ...func(c *gitmirror.Config)) worktree {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git: ", err)
	}
	allowed, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := worktree{T: t, allowed: allowed, dir: filepath.Join(allowed, "app")}
	gittest.Git(t, "", nil, "init", "--quiet", "--initial-branch=main", w.dir)
	w.commit("README", "one")
	machine, err := host.New(host.Config{Directories: []string{allowed}})
	if err != nil {
		t.Fatal(err)
	}
	w.store = newStore(t, nil, append(change, func(c *gitmirror.Config) { c.Host = machine })...)
	return w
}

func (w worktree) write(name, content string) {
	w.Helper()
	at := filepath.Join(w.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
		w.Fatal(err)
	}
}

func (w worktree) git(args ...string) string {
	w.Helper()
	return gittest.Git(w, w.dir, nil, args...)
}

// commit commits one file, and returns the commit.
func (w worktree) commit(name, content string) string {
	w.Helper()
	w.write(name, content)
	w.git("add", name)
	w.git("commit", "--quiet", "--message", content)
	return w.git("rev-parse", "HEAD")
}

// checkout checks a repository out, and returns the commit and the content of README.
func (w worktree) checkout(src gitmirror.Source) (c *gitmirror.Checkout, readme string) {
	w.Helper()
	if src.URL == "" {
		src.URL = "file://" + w.dir
	}
	if problem := w.store.Check(src.URL); problem != "" {
		w.Errorf("%s is refused: %s", src.URL, problem)
	}
	c = checkout(w.T, w.store, src)
	dir, _ := unpack(w.T, c, "sandbox/ann/1")
	gittest.Git(w, dir, nil, "fsck", "--strict")
	if got := gittest.Git(w, dir, nil, "status", "--porcelain", "--branch"); got != "## sandbox/ann/1" {
		w.Errorf("git status says %q", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "README"))
	if err != nil {
		w.Error(err)
	}
	return c, string(text)
}

// listing describes every file of a directory with its time.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		b.WriteString(p + " " + info.Mode().String() + " " + info.ModTime().String() + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOnlyCommitsOfAWorktreeAreCopiedAndNothingIsWrittenToIt(t *testing.T) {
	t.Parallel()
	w := newWorktree(t)
	secret := "hunter3-hunter3"
	w.write("secret", secret)
	w.git("add", "secret") // staged and not committed
	w.git("stash", "--quiet")
	w.write("secret", secret)
	w.git("add", "secret")
	w.git("checkout", "--quiet", "-b", "private")
	w.git("commit", "--quiet", "--message", "private")
	w.git("checkout", "--quiet", "main")
	w.git("gc", "--quiet") // one pack has it all
	mark := filepath.Join(t.TempDir(), "ran")
	w.write(".git/config", "[core]\n\tfsmonitor = touch "+mark+"\n[credential]\n\thelper = "+secret+
		"\n[include]\n\tpath = /etc/passwd\n")
	for _, hook := range []string{"post-checkout", "pre-auto-gc", "reference-transaction"} {
		w.write(".git/hooks/"+hook, "#!/bin/sh\necho "+secret+" >"+mark)
		if err := os.Chmod(filepath.Join(w.dir, ".git/hooks", hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.write("README", "changed")
	before := listing(t, w.allowed)
	c := checkout(t, w.store, gitmirror.Source{URL: "file://" + w.dir})
	dir, all := unpack(t, c, "sandbox/ann/1")
	if text, err := os.ReadFile(filepath.Join(dir, "README")); err != nil || string(text) != "one" {
		t.Errorf("README is %q: %v", text, err)
	}
	if _, err := os.Stat(mark); !os.IsNotExist(err) {
		t.Error("a program of the repository was run")
	}
	if bytes.Contains(all, []byte(secret)) || bytes.Contains(all, []byte(w.allowed)) {
		t.Error("the stream has what is not committed, a secret or the path of the repository")
	}
	types := strings.Fields(gittest.Git(t, dir, nil, "cat-file", "--batch-check=%(objecttype)", "--batch-all-objects"))
	if slices.Sort(types); !slices.Equal(types, []string{"blob", "commit", "tree"}) {
		t.Errorf("the sandbox gets the objects %q", types)
	}
	if after := listing(t, w.allowed); after != before {
		t.Errorf("the repository was changed from\n%s\nto\n%s", before, after)
	}
}

func TestAWorktreeIsReadHoweverGitStoresIt(t *testing.T) {
	t.Parallel()
	w := newWorktree(t)
	first := w.git("rev-parse", "HEAD")
	w.git("tag", "--annotate", "--message", "v", "v1")
	second := w.commit("README", "two")
	linked := filepath.Join(w.allowed, "linked")
	w.git("worktree", "add", "--quiet", "-b", "side", linked)
	bare := filepath.Join(w.allowed, "bare.git")
	clone := func() { gittest.Git(t, "", nil, "clone", "--quiet", "--bare", "--no-hardlinks", w.dir, bare) }
	clone()
	check := func(src gitmirror.Source, commit, branch, readme string) {
		t.Helper()
		c, text := w.checkout(src)
		if c.Commit != commit || c.RefBranch != branch || text != readme {
			t.Errorf("%+v is %s of %q with %q", src, c.Commit, c.RefBranch, text)
		}
	}
	for _, packed := range []bool{false, true} {
		if packed {
			w.git("gc", "--quiet", "--prune=now")
		}
		check(gitmirror.Source{}, second, "main", "two")
		check(gitmirror.Source{Depth: 1}, second, "main", "two")
		check(gitmirror.Source{Ref: "v1"}, first, "", "one")
		check(gitmirror.Source{Ref: first}, first, "", "one")
		check(gitmirror.Source{Ref: "side"}, second, "side", "two")
		check(gitmirror.Source{URL: "file://" + linked}, second, "side", "two")
		check(gitmirror.Source{URL: "file://" + bare}, second, "main", "two")
		check(gitmirror.Source{URL: "file://" + filepath.Join(w.dir, ".git")}, second, "main", "two")
	}
	// New objects are copied, even into a mirror that has the rest.
	third := w.commit("README", "three")
	check(gitmirror.Source{}, third, "main", "three")
	w.git("checkout", "--quiet", "--detach", first)
	check(gitmirror.Source{}, first, "", "one")
	w.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
	check(gitmirror.Source{Ref: "alias"}, third, "alias", "three")
	shallow := filepath.Join(w.allowed, "shallow")
	gittest.Git(t, "", nil, "clone", "--quiet", "--depth=1", "file://"+w.dir, "--branch=main", shallow)
	check(gitmirror.Source{URL: "file://" + shallow, Depth: 1}, third, "main", "three")
	wantRefused(t, w.store, gitmirror.Source{URL: "file://" + shallow}, "set depth")
}

// TestARepositoryIsReadWhileGitPacksIt commits and packs continuously.
func TestARepositoryIsReadWhileGitPacksIt(t *testing.T) {
	t.Parallel()
	w := newWorktree(t)
	for n := range 12 {
		commit := w.commit("README", strings.Repeat("x", n+1))
		packing := make(chan []byte, 1)
		go func() {
			c := exec.Command("git", "-C", w.dir, "repack", "-adq")
			out, _ := c.CombinedOutput()
			packing <- out
		}()
		if c, text := w.checkout(gitmirror.Source{}); c.Commit != commit || len(text) != n+1 {
			t.Errorf("it is %s with %q", c.Commit, text)
		}
		if out := <-packing; len(out) > 0 {
			t.Errorf("git says %s", out)
		}
	}
}

func TestAMissingObjectIsFoundOnceTheRepositoryIsRepaired(t *testing.T) {
	t.Parallel()
	w := newWorktree(t)
	blob := w.git("rev-parse", "HEAD:README")
	at := filepath.Join(w.dir, ".git/objects", blob[:2], blob[2:])
	content, err := os.ReadFile(at)
	if err := errors.Join(err, os.Remove(at)); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, w.store, gitmirror.Source{URL: "file://" + w.dir}, "cannot be packed")
	if err := os.WriteFile(at, content, 0o444); err != nil {
		t.Fatal(err)
	}
	if _, text := w.checkout(gitmirror.Source{}); text != "one" {
		t.Errorf("README is %q", text)
	}
}

func TestNoLinkAndNoFileLeadsOutOfARepository(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(w worktree, other string)
		says   string
	}{
		"a link to the worktree": {func(w worktree, other string) { w.replace(".", other, os.Symlink) }, "--mount-allow"},
		"a link for .git":        {func(w worktree, other string) { w.replace(".git", other+"/.git", os.Symlink) }, "escapes"},
		"a link for objects": {func(w worktree, other string) { w.replace(".git/objects", other+"/.git/objects", os.Symlink) },
			"it has no HEAD or no objects"},
		"a link for packs": {func(w worktree, other string) {
			w.replace(".git/objects/pack", other+"/.git/objects/pack", os.Symlink)
		}, "escapes"},
		"a link for a ref": {func(w worktree, other string) {
			w.replace(".git/refs/heads/main", other+"/.git/refs/heads/main", os.Symlink)
		}, "has no commit"},
		"a link for HEAD":   {func(w worktree, other string) { w.replace(".git/HEAD", other+"/secret", os.Symlink) }, "no HEAD"},
		"a .git of another": {func(w worktree, other string) { w.replace(".git", "gitdir: "+other+"/.git", writeFile) }, "git worktree repair"},
		"a .git elsewhere": {func(w worktree, other string) {
			w.replace(".git", "gitdir: "+other+"/.git/worktrees/x", writeFile)
		}, "--mount-allow"},
		"alternates":           {func(w worktree, other string) { w.write(".git/objects/info/alternates", other+"/.git/objects\n") }, "alternates"},
		"a FIFO for HEAD":      {func(w worktree, _ string) { w.replace(".git/HEAD", "", fifo) }, "no HEAD"},
		"a FIFO for a ref":     {func(w worktree, _ string) { w.replace(".git/refs/heads/main", "", fifo) }, "not a regular file"},
		"a FIFO for .git":      {func(w worktree, _ string) { w.replace(".git", "", fifo) }, "not a directory"},
		"a FIFO for objects":   {func(w worktree, _ string) { w.replace(".git/objects/pack", "", fifo) }, "not a directory"},
		"a ref with a newline": {func(w worktree, _ string) { w.write(".git/HEAD", "ref: refs/heads/a\n[core]") }, "has no commit"},
		"a ref that leads out": {func(w worktree, _ string) { w.write(".git/HEAD", "ref: refs/../../../x") }, "has no commit"},
		"refs in a circle":     {func(w worktree, _ string) { w.write(".git/refs/heads/main", "ref: refs/heads/main") }, "other refs"},
		"SHA-256":              {func(w worktree, _ string) { w.write(".git/refs/heads/main", strings.Repeat("a", 64)) }, "no SHA-1"},
		"reftable":             {func(w worktree, _ string) { w.write(".git/reftable/tables.list", "") }, "reftable"},
		"no commit":            {func(w worktree, _ string) { w.git("symbolic-ref", "HEAD", "refs/heads/none") }, "has no commit"},
		"a damaged pack":       {func(w worktree, _ string) { w.write(".git/objects/pack/pack-x.pack", "PACK and no more than that") }, "damaged"},
		"a tip without object": {func(w worktree, _ string) { w.write(".git/refs/heads/main", strings.Repeat("2", 40)) }, "cannot be read"},
		"no repository": {func(w worktree, _ string) {
			w.replace(".git", "", func(_, at string) error { return os.Mkdir(at, 0o755) })
		}, "not a Git repository"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, other := newWorktree(t), newWorktree(t)
			other.commit("secret", "secret of another")
			test.change(w, other.dir)
			wantRefused(t, w.store, gitmirror.Source{URL: "file://" + w.dir}, test.says)
			wantNowhere(t, w.store.Dir, "secret of another")
		})
	}
}

// replace replaces a file with something else.
func (w worktree) replace(name, content string, put func(content, at string) error) {
	w.Helper()
	at := filepath.Join(w.dir, name)
	if err := errors.Join(os.RemoveAll(at), put(content, at)); err != nil {
		w.Fatal(err)
	}
}

func writeFile(content, at string) error { return os.WriteFile(at, []byte(content), 0o644) }

func fifo(_, at string) error { return syscall.Mkfifo(at, 0o644) }

// A sandbox that may write to one worktree must not choose another repository of the allowed directory.
func TestAWorktreeDoesNotLeadToARepositoryThatDoesNotKnowIt(t *testing.T) {
	t.Parallel()
	w := newWorktree(t)
	other := filepath.Join(w.allowed, "other")
	gittest.Git(t, "", nil, "clone", "--quiet", w.dir, other)
	linked := filepath.Join(w.allowed, "linked")
	gittest.Git(t, other, nil, "worktree", "add", "--quiet", "-b", "side", linked)
	for name, row := range map[string]struct{ target, says string }{
		"its directory":            {other + "/.git", "git worktree repair"},
		"another's worktree":       {other + "/.git/worktrees/linked", "git worktree repair"},
		"a made one":               {w.dir + "/made", "git worktree repair"},
		"one in a made repository": {w.dir + "/made/worktrees/x", "no HEAD or no objects"},
		"a link to another's":      {w.dir + "/link/worktrees/linked", "git worktree repair"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dir := range []string{"made", "made/worktrees/x"} {
				w.write(dir+"/HEAD", "ref: refs/heads/main")
				w.write(dir+"/gitdir", w.dir+"/.git")
				w.write(dir+"/commondir", other+"/.git")
			}
			w.replace(".git", "gitdir: "+row.target, writeFile)
			w.replace("link", other+"/.git", os.Symlink)
			wantRefused(t, w.store, gitmirror.Source{URL: "file://" + w.dir}, row.says)
		})
	}
	if problem := w.store.Check("file://" + linked); problem != "" {
		t.Errorf("a worktree that its repository knows is refused: %s", problem)
	}
	w.replace(".git", "", func(_, at string) error { return os.MkdirAll(filepath.Join(at, "objects"), 0o755) })
	w.write(".git/HEAD", "ref: refs/heads/main")
	w.write(".git/commondir", other+"/.git")
	wantRefused(t, w.store, gitmirror.Source{URL: "file://" + w.dir}, "has no commit")
}

func TestARepositoryOfTheMachineHasTheBoundsOfOthers(t *testing.T) {
	t.Parallel()
	for says, limits := range map[string]gitmirror.Limits{
		"the repository: more than the limit of 100 bytes": {PackBytes: 100},
		"more than the limit of 2 objects":                 {Objects: 2},
		"an object: more than the limit of 1000 bytes":     {ObjectBytes: 1000},
		"its tree: more than the limit of 1 files":         {Files: 1},
	} {
		for _, packed := range []bool{false, true} {
			w := newWorktree(t, func(c *gitmirror.Config) { c.Limits = limits })
			w.commit("large", strings.Repeat("large ", 1000))
			if packed {
				w.git("gc", "--quiet")
			}
			wantRefused(t, w.store, gitmirror.Source{URL: "file://" + w.dir}, says)
		}
	}
}

func TestARepositoryThatIsNotAllowedIsRefused(t *testing.T) {
	t.Parallel()
	w, other := newWorktree(t), newWorktree(t)
	err := errors.Join(os.Symlink(other.dir, filepath.Join(w.allowed, "link")), fifo("", filepath.Join(w.allowed, "fifo")))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{other.dir, w.allowed + "/link", "/", "/etc", w.allowed + "/none", w.allowed + "/fifo"} {
		if problem := w.store.Check("file://" + dir); problem == "" {
			t.Errorf("%s is allowed", dir)
		}
		wantRefused(t, w.store, gitmirror.Source{URL: "file://" + dir}, "")
	}
	var none *gitmirror.Store
	for _, s := range []*gitmirror.Store{none, newStore(t, nil)} {
		if problem := s.Check("file://" + w.dir); !strings.Contains(problem, "--mount-allow") {
			t.Errorf("without allowed directories, the problem is %q", problem)
		}
	}
	// The repository of a server cannot name one of the machine.
	w.write(".gitmodules", "[submodule \"a\"]\n\tpath = a\n\turl = file://"+w.dir+"\n[submodule \"b\"]\n\tpath = b\n\turl = ../app")
	w.git("add", ".gitmodules")
	for _, name := range []string{"a", "b"} {
		w.git("update-index", "--add", "--cacheinfo", "160000,"+w.git("rev-parse", "HEAD")+","+name)
		w.git("commit", "--quiet", "--message", "submodule")
		wantRefused(t, w.store, gitmirror.Source{URL: "file://" + w.dir, Submodules: true}, "is not allowed")
		w.git("update-index", "--force-remove", name)
	}
}
