package gitmirror_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// overSSH makes a repository behind ssh, a store that allows its server, and its source.
func overSSH(t *testing.T) (gittest.Repository, *gitmirror.Store, gitmirror.Source) {
	t.Helper()
	server := gittest.NewSSH(t)
	repo := gittest.New(t).Repository("team/app.git", map[string]string{"README": "hello"})
	store := newStore(t, nil, func(c *gitmirror.Config) { c.Allow = []string{"ssh://" + server.Host} })
	return repo, store, gitmirror.Source{URL: server.URL(repo.Path), Secret: sandbox.Secret(server.Key),
		KnownHosts: server.KnownHosts}
}

func TestARepositoryIsFetchedAndPushedToOverSSH(t *testing.T) {
	t.Parallel()
	repo, store, src := overSSH(t)
	c := checkout(t, store, src)
	dir, all := unpack(t, c, "agents/ann")
	gittest.Git(t, dir, nil, "fsck", "--strict")
	if got := gittest.Git(t, dir, nil, "remote", "get-url", "origin"); got != src.URL ||
		strings.Contains(string(all), "PRIVATE KEY") {
		t.Errorf("its origin is %s", got)
	}
	wantNowhere(t, store.Dir, "PRIVATE KEY")
	// A later commit is fetched with what the mirror has.
	head := repo.Commit("main", map[string]string{"b": "two"})
	if again := checkout(t, store, src); again.Commit != head {
		t.Errorf("the commit is %s, want %s", again.Commit, head)
	}
	shallow := src
	shallow.Depth = 1
	if c := checkout(t, store, shallow); c.Commit != head {
		t.Errorf("with a depth, the commit is %s", c.Commit)
	}
	// The commits are pushed, and pushing again changes nothing.
	w := work{t, repo, dir, "agents/ann", c.Commit}
	tip := w.commit(map[string]string{"README": "changed"})
	collected, err := w.collect(dotGit(t, dir), gitmirror.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := store.Push(t.Context(), src, collected, "agents/ann"); err != nil {
			t.Fatal(err)
		}
	}
	if got := gittest.Git(t, repo.Path, nil, "rev-parse", "refs/heads/agents/ann"); got != tip {
		t.Errorf("the branch is at %s, want %s", got, tip)
	}
}

func TestOnlyKnownKeysAndAcceptedKeysAreUsed(t *testing.T) {
	t.Parallel()
	repo, store, src := overSSH(t)
	other := gittest.NewSSH(t)
	for name, test := range map[string]struct {
		change func(s *gitmirror.Source)
		says   string
	}{
		"unknown":        {func(s *gitmirror.Source) { s.KnownHosts = "" }, "is in no known_hosts"},
		"another server": {func(s *gitmirror.Source) { s.KnownHosts = other.KnownHosts }, "is in no known_hosts"},
		"another key": {func(s *gitmirror.Source) {
			host, _, _ := strings.Cut(s.KnownHosts, " ")
			_, key, _ := strings.Cut(other.KnownHosts, " ")
			s.KnownHosts = host + " " + key
		}, "is not the one in known_hosts"},
		"another kind of key": {func(s *gitmirror.Source) {
			host, _, _ := strings.Cut(s.KnownHosts, " ")
			s.KnownHosts = host + " " + ecdsaKey(t)
		}, "no key of the kinds in known_hosts"},
		"no lines":      {func(s *gitmirror.Source) { s.KnownHosts = "what is this" }, "known_hosts cannot be read"},
		"not accepted":  {func(s *gitmirror.Source) { s.Secret = sandbox.Secret(other.Key) }, "the key was not accepted"},
		"no key":        {func(s *gitmirror.Source) { s.Secret = token }, "not a private key"},
		"no repository": {func(s *gitmirror.Source) { s.URL += "x" }, "no such repository"},
		"not allowed":   {func(s *gitmirror.Source) { s.URL = other.URL(repo.Path) }, "--workspace-allow ssh://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := src
			test.change(&s)
			wantRefused(t, store, s, test.says)
		})
	}
}

// ecdsaKey returns a public key of a kind that the server does not have.
func ecdsaKey(t *testing.T) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(ssh.MarshalAuthorizedKey(public))
}

func TestTheOperatorsFileOfKnownHostsIsUsed(t *testing.T) {
	t.Parallel()
	_, store, src := overSSH(t)
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte(src.KnownHosts), 0o600); err != nil {
		t.Fatal(err)
	}
	known := newStore(t, nil, func(c *gitmirror.Config) { c.Allow, c.KnownHosts = store.Allow, file })
	src.KnownHosts = ""
	if c := checkout(t, known, src); c.Commit == "" {
		t.Error("there is no commit")
	}
	_, err := gitmirror.New(gitmirror.Config{Dir: t.TempDir(), KnownHosts: file + ".missing"})
	if sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("without the file, the error is %v", err)
	}
}

// A program of git may end, and its channel close, before the client has closed the input of that program.
func TestAProgramThatEndsFirstHasAnswered(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t).Repository("team/app.git", map[string]string{"README": "hello"})
	server := gittest.NewReplay(t)
	for range 10 {
		store := newStore(t, nil, func(c *gitmirror.Config) { c.Allow = []string{"ssh://" + server.Host} })
		c := checkout(t, store, gitmirror.Source{URL: server.URL(repo.Path), Secret: sandbox.Secret(server.Key),
			KnownHosts: server.KnownHosts})
		if head := gittest.Git(t, repo.Path, nil, "rev-parse", "main"); c.Commit != head {
			t.Errorf("the commit is %s, want %s", c.Commit, head)
		}
	}
}
