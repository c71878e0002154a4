package gitmirror_test

import (
	"archive/tar"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// treeOf returns the raw content of a tree object.
func treeOf(entries ...[3]string) []byte {
	var b bytes.Buffer
	for _, e := range entries {
		hash, err := hex.DecodeString(e[2])
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "%s %s\x00%s", e[0], e[1], hash)
	}
	return b.Bytes()
}

func TestNamesThatGitFsckRefusesAreRefused(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "one"})
	store := newStore(t, server)
	blob := repo.Object("blob", []byte("hostile"))
	inner := repo.Object("tree", treeOf([3]string{"100755", "pre-commit", blob}))
	for i, name := range []string{
		"..", ".", ".git", ".GIT", ".Git", "git~1", "GIT~1", ".git ", ".git.", ".git. .", ".git::$INDEX_ALLOCATION",
		".g\u200cit", ".\u200dgit", "\ufeff.git", "a/b", "../../etc/passwd", "/etc/passwd", `a\..\b`, "line\nbreak", "\x1b[2J", "",
	} {
		for kind, entry := range map[string][3]string{
			"file": {"100644", name, blob}, "directory": {"40000", name, inner}, "link": {"120000", name, blob},
			"submodule": {"160000", name, blob},
		} {
			branch := fmt.Sprintf("name-%d-%s", i, kind)
			repo.CommitTree(branch, repo.Object("tree", treeOf(entry)))
			says := "as git fsck does"
			if name == "" { // git's server refuses it too
				says = ""
			}
			wantRefused(t, store, gitmirror.Source{URL: repo.URL, Ref: branch}, says)
		}
	}
	for branch, tree := range map[string][]byte{
		"twice":      treeOf([3]string{"100644", "a", blob}, [3]string{"100644", "a", blob}),
		"link-first": treeOf([3]string{"120000", "a", blob}, [3]string{"40000", "a", inner}),
		"modules":    treeOf([3]string{"120000", ".gitmodules", blob}),
		"missing":    treeOf([3]string{"100644", "a", strings.Repeat("12", 20)}),
	} {
		repo.CommitTree(branch, repo.Object("tree", tree))
		c, err := store.Checkout(t.Context(), gitmirror.Source{URL: repo.URL, Ref: branch})
		if err == nil {
			c.Close()
		}
		if sandbox.CodeOf(err) != sandbox.Failed {
			t.Errorf("%s: the error is %v", branch, err)
		}
	}
}

func TestModesOfATreeBecomeOrdinaryOnes(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "one"})
	blob := repo.Object("blob", []byte("hostile"))
	repo.CommitTree("modes", repo.Object("tree", treeOf([3]string{"104777", "a", blob}, [3]string{"100666", "b", blob},
		[3]string{"20666", "c", blob}, [3]string{"10644", "d", blob})))
	_, all := unpack(t, checkout(t, newStore(t, server), gitmirror.Source{URL: repo.URL, Ref: "modes"}), "b")
	entries := tar.NewReader(bytes.NewReader(all))
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		isFile := h.Typeflag == tar.TypeReg && (h.Mode == 0o644 || h.Mode == 0o755 || h.Mode == 0o444)
		if !isFile && (h.Typeflag != tar.TypeDir || h.Mode != 0o755) {
			t.Errorf("%s has the type %q and the mode %o", h.Name, h.Typeflag, h.Mode)
		}
	}
}

func TestLinksThatLeadOutAreNotWrittenAndStatusIsClean(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{
		"a": "one", "dir/in": "-> ../a", "out": "-> /etc/passwd", "dir/up": "-> ../../x", "git": "-> .git/hooks",
		"far": "-> dir/../../etc",
	})
	store := newStore(t, server)
	c := checkout(t, store, gitmirror.Source{URL: repo.URL})
	if c.SkippedLinks != 4 {
		t.Errorf("%d links are left out, want 4", c.SkippedLinks)
	}
	dir, _ := unpack(t, c, "b")
	if got := gittest.Git(t, dir, nil, "status", "--porcelain"); got != "" {
		t.Errorf("git status says %q", got)
	}
	for _, name := range []string{"out", "dir/up", "git", "far"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
}

func TestHooksAndConfigurationOfAServerAreNeverWritten(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "one", ".gitattributes": "* filter=evil", "hooks/post-checkout": "x"})
	mark := filepath.Join(t.TempDir(), "ran")
	hook := "#!/bin/sh\ntouch " + mark + "\n"
	for _, name := range []string{"post-checkout", "pre-commit", "post-merge"} {
		if err := os.WriteFile(filepath.Join(repo.Path, "hooks", name), []byte(hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, repo.Path, nil, "config", "core.fsmonitor", "touch "+mark)
	gittest.Git(t, repo.Path, nil, "config", "filter.evil.smudge", "touch "+mark)
	store := newStore(t, server)
	dir, _ := unpack(t, checkout(t, store, gitmirror.Source{URL: repo.URL}), "b")
	gittest.Git(t, dir, nil, "status")
	for _, name := range []string{mark, filepath.Join(dir, ".git/hooks")} {
		if _, err := os.Lstat(name); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
}

func TestSizesAreBounded(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	big := server.Repository("big", map[string]string{"zeros": strings.Repeat("\x00", 4<<20), "b": "b"})
	many := server.Repository("many", map[string]string{"a": "a"})
	// A tree of trees that has 8^6 paths and 7 objects.
	hash, mode := many.Object("blob", []byte("x")), "100644"
	for range 6 {
		var entries [][3]string
		for i := range 8 {
			entries = append(entries, [3]string{mode, fmt.Sprint(i), hash})
		}
		hash, mode = many.Object("tree", treeOf(entries...)), "40000"
	}
	many.CommitTree("bomb", hash)
	for name, test := range map[string]struct {
		limits gitmirror.Limits
		source gitmirror.Source
		says   string
	}{
		"object": {gitmirror.Limits{ObjectBytes: 1 << 20}, gitmirror.Source{URL: big.URL}, "an object: more than the limit"},
		"pack":   {gitmirror.Limits{PackBytes: 1 << 10}, gitmirror.Source{URL: big.URL}, "more than the limit of 1024"},
		"all": {gitmirror.Limits{UnpackedBytes: 1 << 20}, gitmirror.Source{URL: big.URL},
			"all objects together: more than the limit"},
		"objects": {gitmirror.Limits{Objects: 3}, gitmirror.Source{URL: big.URL}, "more than the limit of 3 objects"},
		"tree":    {gitmirror.Limits{TreeBytes: 1 << 20}, gitmirror.Source{URL: big.URL}, "its tree: more than the limit"},
		"files": {gitmirror.Limits{Files: 1000}, gitmirror.Source{URL: many.URL, Ref: "bomb"},
			"more than the limit of 1000 files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t, server, func(c *gitmirror.Config) { c.Limits = test.limits })
			wantRefused(t, store, test.source, test.says)
		})
	}
}

// packServer answers like a repository that sends the given pack.
func packServer(t *testing.T, pack []byte) string {
	line := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	commit := strings.Repeat("ab", 20)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			fmt.Fprint(w, line("# service=git-upload-pack\n")+"0000"+
				line(commit+" HEAD\x00ofs-delta symref=HEAD:refs/heads/main\n")+line(commit+" refs/heads/main\n")+"0000")
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		fmt.Fprint(w, line("NAK\n"))
		_, _ = w.Write(pack)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// packOf is a pack with objects of given types, declared sizes and contents.
func packOf(t *testing.T, objects ...packed) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("PACK")
	for _, n := range []uint32{2, uint32(len(objects))} {
		_ = binary.Write(&b, binary.BigEndian, n)
	}
	for _, o := range objects {
		size := o.declared
		first := byte(o.kind<<4) | byte(size&15)
		for size >>= 4; size > 0; size >>= 7 {
			b.WriteByte(first | 0x80)
			first = byte(size & 0x7f)
		}
		b.WriteByte(first)
		b.Write(o.base)
		z := zlib.NewWriter(&b)
		if _, err := z.Write(o.content); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

type packed struct {
	kind     int // 1 commit, 2 tree, 3 blob, 7 delta of a named object
	declared uint64
	base     []byte
	content  []byte
}

func TestHostilePacksAreRefusedBeforeTheyAreUnpacked(t *testing.T) {
	t.Parallel()
	blob := []byte("0123456789")
	id := sha1.Sum([]byte("blob 10\x00" + string(blob)))
	// A delta of a few bytes that claims, and copies, 200 MiB.
	delta := append([]byte{10}, binary.AppendUvarint(nil, 200<<20)...)
	for range 64 {
		delta = append(delta, 0x80|0x10, 10)
	}
	zeros := make([]byte, 8<<20)
	for name, test := range map[string]struct {
		pack []byte
		says string
	}{
		"delta bomb": {packOf(t, packed{3, 10, nil, blob}, packed{7, uint64(len(delta)), id[:], delta}), "an object: more than"},
		"declared":   {packOf(t, packed{3, 300 << 20, nil, blob}), "an object: more than"},
		"zip bomb":   {packOf(t, packed{3, 10, nil, zeros}), "damaged"},
		"negative":   {packOf(t, packed{3, 1 << 63, nil, blob}), ""},
		"count":      {append([]byte("PACK\x00\x00\x00\x02\xff\xff\xff\xff"), make([]byte, 20)...), "objects"},
		"cut":        {packOf(t, packed{3, 10, nil, blob})[:20], "damaged"},
		"no pack":    {[]byte("hello, this is no pack"), ""},
		"checksum":   {append(packOf(t, packed{3, 10, nil, blob})[:35], make([]byte, 40)...), ""},
		"unknown":    {packOf(t, packed{0, 10, nil, blob}), ""},
		"base":       {packOf(t, packed{7, 3, bytes.Repeat([]byte{1}, 20), []byte{1, 1, 0}}), ""},
		"other":      {packOf(t, packed{3, 10, nil, blob}), "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := packServer(t, test.pack)
			store := newStore(t, nil, func(c *gitmirror.Config) { c.Allow = []string{url} })
			wantRefused(t, store, gitmirror.Source{URL: url + "/app"}, test.says)
		})
	}
}

func TestOnlyAllowedHostsAreConnectedTo(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "one"})
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	for name, allow := range map[string][]string{
		"nothing": nil, "other": {"git.example.com"}, "other port": {"http://127.0.0.1:1"},
		"tls": {"127.0.0.1" + port}, "wildcard": {"http://*.0.0.1.example.com" + port},
	} {
		store := newStore(t, nil, func(c *gitmirror.Config) { c.Allow = allow })
		if problem := store.Check(repo.URL); !strings.Contains(problem, "--workspace-allow http://127.0.0.1"+port) {
			t.Errorf("%s: %q", name, problem)
		}
		wantRefused(t, store, gitmirror.Source{URL: repo.URL}, "--workspace-allow")
	}
	if problem := (*gitmirror.Store)(nil).Check(repo.URL); problem == "" {
		t.Error("without a store, a host is allowed")
	}
	if n := len(server.Authorizations()) + int(server.Packs.Load()); n != 0 {
		t.Errorf("the server had %d requests", n)
	}
}

func TestNamesThatLeadToThisMachineAreRefused(t *testing.T) {
	t.Parallel()
	// The resolver gives ip6-localhost and the machine's own names from /etc/hosts.
	for _, host := range []string{"ip6-localhost", "localhost.localdomain"} {
		store := newStore(t, nil, func(c *gitmirror.Config) { c.Allow = []string{"http://" + host + ":1"} })
		c, err := store.Checkout(t.Context(), gitmirror.Source{URL: "http://" + host + ":1/app"})
		if err == nil {
			c.Close()
			t.Errorf("%s was fetched from", host)
		}
		if code := sandbox.CodeOf(err); code != sandbox.Failed && code != sandbox.Unavailable {
			t.Errorf("%s: the error is %v", host, err)
		}
	}
}

func TestRedirectionsToOtherHostsAreNotFollowedAndGetNoCredential(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "one"})
	from := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, server.URL+r.URL.RequestURI()+"&echo="+r.Header.Get("Authorization"), http.StatusFound)
	}))
	t.Cleanup(from.Close)
	store := newStore(t, server, func(c *gitmirror.Config) { c.Allow = append(c.Allow, from.URL) })
	wantRefused(t, store, gitmirror.Source{URL: from.URL + "/app", Username: "x", Secret: token}, "redirects to another host")
	if got := server.Authorizations(); len(got) != 0 {
		t.Errorf("the other host got %q", got)
	}
	checkout(t, store, gitmirror.Source{URL: repo.URL})
}

func TestAServerThatRepeatsTheCredentialDoesNotBringItIntoErrors(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"body": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, r.Header.Get("Authorization"), http.StatusUnauthorized)
		},
		"server": func(w http.ResponseWriter, r *http.Request) { http.Error(w, token, 400) },
		"refs": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04xERR %s", len(token)+8, token)
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+token+".example.com/", http.StatusFound)
		},
	} {
		s := httptest.NewServer(http.HandlerFunc(answer))
		t.Cleanup(s.Close)
		store := newStore(t, nil, func(c *gitmirror.Config) { c.Allow = []string{s.URL} })
		t.Run(name, func(t *testing.T) {
			wantRefused(t, store, gitmirror.Source{URL: s.URL + "/app", Username: "x", Secret: token}, "")
		})
	}
}

func TestAServerThatHangsTakesNoLongerThanTheLimit(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(s.Close)
	store := newStore(t, nil, func(c *gitmirror.Config) {
		c.Allow, c.Limits.Time = []string{s.URL}, 100*time.Millisecond
	})
	_, err := store.Checkout(context.Background(), gitmirror.Source{URL: s.URL + "/app"})
	if sandbox.CodeOf(err) != sandbox.Timeout {
		t.Errorf("the error is %v", err)
	}
}

// withModule makes a branch with one submodule.
func withModule(repo gittest.Repository, branch, name, url, commit string) {
	file := repo.Object("blob", fmt.Appendf(nil, "[submodule \"%s\"]\n\tpath = sub\n\turl = %s\n", name, url))
	repo.CommitTree(branch, repo.Object("tree",
		treeOf([3]string{"100644", ".gitmodules", file}, [3]string{"160000", "sub", commit})))
}

func TestSubmodulesComeFromAllowedHostsOnly(t *testing.T) {
	t.Parallel()
	server, other := gittest.New(t), gittest.New(t)
	repo := server.Repository("team/app", map[string]string{"a": "one"})
	library := server.Repository("team/library", map[string]string{"lib": "here"})
	at := gittest.Git(t, library.Path, nil, "rev-parse", "main")
	foreign := other.Repository("foreign", map[string]string{"f": "there"})
	foreignAt := gittest.Git(t, foreign.Path, nil, "rev-parse", "main")
	withModule(repo, "relative", "library", "../library", at)
	withModule(repo, "foreign", "foreign", foreign.URL, foreignAt)
	server.Require("x", token)
	src := func(ref string) gitmirror.Source {
		return gitmirror.Source{URL: repo.URL, Ref: ref, Username: "x", Secret: token, Submodules: true}
	}
	store := newStore(t, server)
	dir, _ := unpack(t, checkout(t, store, src("relative")), "b")
	if text, err := os.ReadFile(filepath.Join(dir, "sub/lib")); err != nil || string(text) != "here" {
		t.Errorf("the submodule has %q: %v", text, err)
	}
	if got := gittest.Git(t, dir, nil, "status", "--porcelain") + gittest.Git(t, dir, nil, "submodule", "status"); !strings.HasPrefix(got, at+" sub") {
		t.Errorf("git says %q", got)
	}
	wantRefused(t, store, src("foreign"), "--workspace-allow")
	both := newStore(t, server, func(c *gitmirror.Config) { c.Allow = append(c.Allow, other.URL) })
	unpack(t, checkout(t, both, src("foreign")), "b")
	if got := other.Authorizations(); len(got) != 0 {
		t.Errorf("the other host got the credential: %q", got)
	}
	mark := filepath.Join(t.TempDir(), "ran")
	for i, m := range [][2]string{
		{"s", "file://" + library.Path}, {"s", library.Path}, {"s", "ext::sh -c touch% " + mark}, {"s", "--upload-pack=touch " + mark},
		{"s", "ssh://-oProxyCommand=touch/x"}, {"s", "git://127.0.0.1/x"}, {"s", "http://u:p@127.0.0.1/x"},
		{"../../hooks", "../library"}, {"..", "../library"}, {"a/../../b", "../library"}, {".git/x", "../library"},
		{"-x", "../library"}, {"s", "http://169.254.169.254/latest/meta-data"},
	} {
		branch := fmt.Sprintf("hostile-%d", i)
		withModule(repo, branch, m[0], m[1], at)
		wantRefused(t, store, src(branch), "")
	}
	if _, err := os.Stat(mark); !os.IsNotExist(err) {
		t.Error("a command of a repository was run")
	}
	// Without the setting, a submodule is an empty directory.
	plain := src("hostile-0")
	plain.Submodules = false
	dir, _ = unpack(t, checkout(t, store, plain), "b")
	if entries, err := os.ReadDir(filepath.Join(dir, "sub")); err != nil || len(entries) != 0 {
		t.Errorf("the submodule has %v: %v", entries, err)
	}
}

func TestASubmoduleOfItselfEnds(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "one"})
	file := repo.Object("blob", []byte("[submodule \"s\"]\n\tpath = sub\n\turl = ./\n"))
	first := repo.CommitTree("one", repo.Object("tree", treeOf([3]string{"100644", ".gitmodules", file})))
	for i := range 8 {
		first = repo.CommitTree(fmt.Sprint("level", i), repo.Object("tree",
			treeOf([3]string{"100644", ".gitmodules", file}, [3]string{"160000", "sub", first})))
	}
	wantRefused(t, newStore(t, server), gitmirror.Source{URL: repo.URL, Ref: "level7", Submodules: true},
		"submodules within each other")
}
