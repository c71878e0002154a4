package gitmirror_test

import (
	"archive/tar"
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// dotGit packs .git of a directory, as a sandbox sends it.
func dotGit(t *testing.T, dir string, more ...[2]string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	write := func(name string, content []byte) error {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))})
		_, writeErr := w.Write(content)
		return errors.Join(err, writeErr)
	}
	err := filepath.WalkDir(filepath.Join(dir, ".git"), func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(p)
		name, relErr := filepath.Rel(dir, p)
		return errors.Join(err, relErr, write(filepath.ToSlash(name), content))
	})
	for _, file := range more {
		err = errors.Join(err, write(file[0], []byte(file[1])))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return &b
}

// work is a checkout in which an agent has committed.
type work struct {
	*testing.T
	repo   gittest.Repository
	dir    string
	branch string
	base   string
}

func newWork(t *testing.T, depth int) work {
	t.Helper()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "one\n", "gone": "old\n", "dir/same": "same\n"})
	repo.Commit("main", map[string]string{"a": "one\ntwo\n"})
	c := checkout(t, newStore(t, server), gitmirror.Source{URL: repo.URL, Depth: depth})
	dir, _ := unpack(t, c, "sandbox/ann/1")
	return work{t, repo, dir, "sandbox/ann/1", c.Commit}
}

func (w work) commit(files map[string]string) string {
	w.Helper()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o644); err != nil {
			w.Fatal(err)
		}
	}
	gittest.Git(w, w.dir, nil, "add", "--all")
	gittest.Git(w, w.dir, nil, "commit", "--quiet", "--message", "work")
	return gittest.Git(w, w.dir, nil, "rev-parse", "HEAD")
}

func (w work) collect(in io.Reader, l gitmirror.Limits) (*gitmirror.Collected, error) {
	w.Helper()
	c, err := gitmirror.Collect(w.Context(), in, w.branch, w.base, l)
	if err == nil {
		w.Cleanup(c.Close)
	}
	return c, err
}

func TestCommitsOfASandboxComeOutAsABundleAndADiff(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{0, 1} {
		for name, pack := range map[string]bool{"loose": false, "packed": true} {
			t.Run(fmt.Sprint(name, depth), func(t *testing.T) {
				t.Parallel()
				w := newWork(t, depth)
				w.commit(map[string]string{"a": "one\ntwo\nthree\n", "new": "new\n"})
				if err := os.Remove(filepath.Join(w.dir, "gone")); err != nil {
					t.Fatal(err)
				}
				tip := w.commit(map[string]string{"z-binary": "\x00\x01"})
				if pack {
					gittest.Git(t, w.dir, nil, "gc", "--quiet", "--prune=now")
				}
				c, err := w.collect(dotGit(t, w.dir), gitmirror.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				if c.Commits != 2 || c.Tip.String() != tip {
					t.Errorf("%d commits up to %s are collected, want 2 up to %s", c.Commits, c.Tip, tip)
				}
				var bundle, diff bytes.Buffer
				if err := errors.Join(c.Bundle(&bundle), c.Diff(t.Context(), &diff)); err != nil {
					t.Fatal(err)
				}
				file, clone := filepath.Join(t.TempDir(), "work.bundle"), t.TempDir()
				if err := os.WriteFile(file, bundle.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
				gittest.Git(t, "", nil, "clone", "--quiet", w.repo.Path, clone)
				gittest.Git(t, clone, nil, "bundle", "verify", file)
				gittest.Git(t, clone, nil, "-c", "fetch.fsckObjects=true", "fetch", "--quiet", file, "refs/heads/*:refs/heads/*")
				if got := gittest.Git(t, clone, nil, "rev-parse", w.branch); got != tip {
					t.Errorf("the bundle has %s", got)
				}
				gittest.Git(t, clone, nil, "fsck", "--strict")
				// Applying the diff gives the same tree.
				text := strings.Split(diff.String(), "diff --git a/z-binary")[0]
				gittest.Git(t, clone, []byte(text), "apply", "--index", "-")
				gittest.Git(t, clone, nil, "diff", "--cached", "--exit-code", tip, "--", "a", "new", "gone")
			})
		}
	}
}

func TestABranchWithoutCommitsHasNoBundleAndAnEmptyDiff(t *testing.T) {
	t.Parallel()
	w := newWork(t, 0)
	c, err := w.collect(dotGit(t, w.dir), gitmirror.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var diff bytes.Buffer
	if err := c.Diff(t.Context(), &diff); err != nil || diff.Len() != 0 {
		t.Errorf("the diff is %q: %v", diff.String(), err)
	}
	if err := c.Bundle(io.Discard); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("the error is %v", err)
	}
}

func TestARepositoryOfASandboxIsReadAsData(t *testing.T) {
	t.Parallel()
	w := newWork(t, 0)
	w.commit(map[string]string{"a": "work\n"})
	mark := filepath.Join(t.TempDir(), "ran")
	outside := t.TempDir()
	in := dotGit(t, w.dir, [2]string{".git/config", "[core]\n\tfsmonitor = touch " + mark + "\n\tworktree = " + outside},
		[2]string{".git/hooks/post-checkout", "#!/bin/sh\ntouch " + mark}, [2]string{".git/objects/info/alternates", w.repo.Path},
		[2]string{".git/../../../../" + outside + "/x", "x"}, [2]string{".git/objects/pack/../../../x.pack", "no pack"},
		[2]string{".git/objects/ab/" + strings.Repeat("0", 38), "no object"})
	c, err := w.collect(in, gitmirror.Limits{})
	if err != nil || c.Commits != 1 {
		t.Fatal(err)
	}
	if err := errors.Join(c.Bundle(io.Discard), c.Diff(t.Context(), io.Discard)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); !os.IsNotExist(err) {
		t.Error("a program of the sandbox was run")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("outside is %v: %v", entries, err)
	}
}

// loose is an object as a file of .git.
func loose(t *testing.T, header, content string) string {
	t.Helper()
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, err := z.Write([]byte(header + "\x00" + content))
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A header without end costs no memory, and its object is left out.
func TestAHeaderWithoutEndIsNotKept(t *testing.T) {
	const much = 64 << 20
	w := newWork(t, 0)
	w.commit(map[string]string{"a": "work\n"})
	in := dotGit(t, w.dir, [2]string{".git/objects/ab/" + strings.Repeat("0", 38), loose(t, strings.Repeat("a", much), "")})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := w.collect(in, gitmirror.Limits{})
	runtime.ReadMemStats(&after)
	if err != nil || c.Commits != 1 {
		t.Fatal(err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > much/4 {
		t.Errorf("a header of %d bytes took %d bytes of memory", much, took)
	}
}

func TestHostileRepositoriesOfSandboxesAreRefused(t *testing.T) {
	t.Parallel()
	object := ".git/objects/ab/" + strings.Repeat("0", 38)
	for name, test := range map[string]struct {
		more   [][2]string
		limits gitmirror.Limits
		change func(w *work)
		says   string
	}{
		"bomb": {more: [][2]string{{object, loose(t, "blob 300000000", "x")}}, says: "an object: more than"},
		"lying size": {more: [][2]string{{object, loose(t, "blob 1", strings.Repeat("x", 1<<20))}},
			change: func(w *work) { w.branch = "none" }, says: `no branch "none"`},
		"pack":      {more: [][2]string{{".git/objects/pack/pack-x.pack", "PACK and no more"}}, says: "damaged"},
		"stream":    {limits: gitmirror.Limits{PackBytes: 1 << 10}, says: "more than the limit of 1024 bytes"},
		"objects":   {limits: gitmirror.Limits{Objects: 2}, says: "more than the limit of 2 objects"},
		"no branch": {change: func(w *work) { w.branch = "other" }, says: `no branch "other"`},
		"no base":   {change: func(w *work) { w.base = strings.Repeat("1", 40) }, says: "the commit that it began with"},
		"tip": {more: [][2]string{{".git/refs/heads/sandbox/ann/1", strings.Repeat("2", 40)}},
			says: "is missing or damaged"},
		// A file with the name of one object and the content of another does not count as the first.
		"swapped": {change: func(w *work) {
			tip := gittest.Git(w, w.dir, nil, "rev-parse", "HEAD")
			at := filepath.Join(w.dir, ".git/objects", tip[:2], tip[2:])
			_ = os.Remove(at)
			if err := os.WriteFile(at, []byte(loose(w.T, "blob 1", "x")), 0o644); err != nil {
				w.Fatal(err)
			}
		}, says: "is missing or damaged"},
		"name": {change: func(w *work) {
			blob := gittest.Git(w, w.dir, []byte("x"), "hash-object", "-w", "--stdin")
			tree := gittest.Git(w, w.dir, treeOf([3]string{"100644", ".git", blob}), "hash-object", "-w", "--literally", "-t",
				"tree", "--stdin")
			commit := gittest.Git(w, w.dir, nil, "commit-tree", "-p", "HEAD", "-m", "hostile", tree)
			gittest.Git(w, w.dir, nil, "update-ref", "refs/heads/"+w.branch, commit)
		}, says: "as git fsck does"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, 0)
			w.commit(map[string]string{"a": "work\n"})
			if test.change != nil {
				test.change(&w)
			}
			_, err := w.collect(dotGit(t, w.dir, test.more...), test.limits)
			if code := sandbox.CodeOf(err); code != sandbox.Failed && code != sandbox.NotFound ||
				!strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v, want one with %q", err, test.says)
			}
		})
	}
}

// withEntries puts entries without content before those of a stream.
func withEntries(t *testing.T, stream *bytes.Buffer, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var err error
	for _, h := range headers {
		err = errors.Join(err, w.WriteHeader(&h))
	}
	if err := errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	b.Write(stream.Bytes())
	return &b
}

func TestOnlyRegularFilesOfARepositoryAreRead(t *testing.T) {
	t.Parallel()
	w := newWork(t, 0)
	tip := w.commit(map[string]string{"a": "work\n"})
	var odd []tar.Header
	for _, kind := range []byte{tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeBlock, tar.TypeFifo} {
		for _, name := range []string{"refs/heads/sandbox/ann/1", "packed-refs", "objects/pack/pack-x.pack", "objects/ab/" +
			strings.Repeat("0", 38), "HEAD", "objects"} {
			odd = append(odd, tar.Header{Typeflag: kind, Name: ".git/" + name, Linkname: "/etc/passwd"})
		}
	}
	for _, name := range []string{"new\nline", "b\xff\xfe", "../../x", "-rf", `a\b`, strings.Repeat("d/", 3000) + "x", "/etc/x", "."} {
		odd = append(odd, tar.Header{Typeflag: tar.TypeReg, Name: ".git/" + name})
	}
	for range 50_000 {
		odd = append(odd, tar.Header{Typeflag: tar.TypeReg, Name: ".git/many/x"})
	}
	c, err := w.collect(withEntries(t, dotGit(t, w.dir), odd...), gitmirror.Limits{})
	if err != nil || c.Commits != 1 || c.Tip.String() != tip {
		t.Errorf("collected %+v: %v", c, err)
	}
	empty := t.TempDir()
	if err := os.Mkdir(filepath.Join(empty, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]*bytes.Buffer{
		"a link": withEntries(t, dotGit(t, empty), tar.Header{Typeflag: tar.TypeSymlink, Name: ".git", Linkname: w.dir + "/.git"}),
		"a FIFO": withEntries(t, dotGit(t, empty), tar.Header{Typeflag: tar.TypeFifo, Name: ".git"}),
		"a file": dotGit(t, empty, [2]string{".git", "gitdir: " + w.dir + "/.git"}),
	} {
		if _, err := w.collect(in, gitmirror.Limits{}); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("where .git is %s, the error is %v", name, err)
		}
	}
}

func TestAStreamThatIsCutOffIsNotTakenForWhole(t *testing.T) {
	t.Parallel()
	w := newWork(t, 0)
	w.commit(map[string]string{"a": "work\n"})
	whole := dotGit(t, w.dir).Bytes()
	for _, n := range []int{100, len(whole) / 2, len(whole) - 1100} { // the end has 1024 bytes
		if _, err := w.collect(bytes.NewReader(whole[:n]), gitmirror.Limits{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d of %d bytes, the error is %v", n, len(whole), err)
		}
	}
}

func TestALargeFileIsOnlyNamedInADiff(t *testing.T) {
	t.Parallel()
	w := newWork(t, 0)
	w.commit(map[string]string{"a": strings.Repeat("line\n", 20_000), "b": "small\n"})
	c, err := w.collect(dotGit(t, w.dir), gitmirror.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var diff bytes.Buffer
	if err := c.Diff(t.Context(), &diff); err != nil || !strings.Contains(diff.String(), "too large for a diff") ||
		!strings.Contains(diff.String(), "+small") || diff.Len() > 1000 {
		t.Errorf("the diff is %.1000q: %v", diff.String(), err)
	}
}

func TestCommitsArePushedForwardOnly(t *testing.T) {
	t.Parallel()
	w := newWork(t, 1)
	w.repo.Require("x", token)
	store := newStore(t, w.repo.Server)
	src := gitmirror.Source{URL: w.repo.URL, Username: "x", Secret: token}
	const branch = "agents/sandbox/ann/1"
	push := func(src gitmirror.Source) error {
		c, err := w.collect(dotGit(t, w.dir), gitmirror.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return store.Push(t.Context(), src, c, branch)
	}
	wantPushed := func(err error, tip string) {
		t.Helper()
		if got := gittest.Git(t, w.repo.Path, nil, "rev-parse", "refs/heads/"+branch); err != nil || got != tip {
			t.Errorf("the branch is %s, want %s: %v", got, tip, err)
		}
	}
	if err := push(src); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("without commits, the error is %v", err)
	}
	first := w.commit(map[string]string{"a": "first\n"})
	wantPushed(push(src), first)
	wantPushed(push(src), first)
	second := w.commit(map[string]string{"a": "second\n"})
	wantPushed(push(src), second)
	gittest.Git(t, w.repo.Path, nil, "fsck", "--strict")
	// A push never overwrites the commits of others on the branch, nor the agent's own.
	gittest.Git(t, w.dir, nil, "reset", "--quiet", "--hard", first)
	if err := push(src); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("a push that removes a commit ends with %v", err)
	}
	wantPushed(nil, second)
	w.commit(map[string]string{"a": "another\n"})
	if err := push(src); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("a push over other commits ends with %v", err)
	}
	wantPushed(nil, second)
	err := push(gitmirror.Source{URL: w.repo.URL, Username: "x", Secret: "wrong-" + token})
	if sandbox.CodeOf(err) != sandbox.Failed || strings.Contains(err.Error(), token) {
		t.Errorf("with another credential, the error is %v", err)
	}
	if err := push(gitmirror.Source{URL: "http://127.0.0.1:1/app"}); sandbox.CodeOf(err) != sandbox.Failed {
		t.Errorf("to a host that is not allowed, the error is %v", err)
	}
}
