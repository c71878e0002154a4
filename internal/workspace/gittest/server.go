// Package gittest serves Git repositories to tests, with git's own server.
package gittest

import (
	"bytes"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Server serves bare repositories below a directory over HTTP.
type Server struct {
	*httptest.Server
	testing.TB
	Dir string
	// Packs counts the requests for packs.
	Packs atomic.Int64

	mu sync.Mutex
	// users are the passwords by user; without one, any user may read.
	users map[string]string
	// Authorizations are the headers that requests had.
	authorizations []string
}

// New starts a server. It skips the test if git cannot serve.
func New(t testing.TB) *Server {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skip("needs git: ", err)
	}
	backend := filepath.Join(strings.TrimSpace(string(path)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("needs git-http-backend: ", err)
	}
	s := &Server{TB: t, Dir: t.TempDir()}
	handler := &cgi.Handler{Path: backend, Env: []string{
		"GIT_PROJECT_ROOT=" + s.Dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=tester", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_0=http.receivepack", "GIT_CONFIG_VALUE_0=true",
		"GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*",
		"GIT_CONFIG_KEY_2=uploadpack.allowReachableSHA1InWant", "GIT_CONFIG_VALUE_2=true",
	}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.admits(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "a secret body: "+r.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			s.Packs.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *Server) admits(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := r.Header.Get("Authorization"); text != "" {
		s.authorizations = append(s.authorizations, text)
	}
	if s.users == nil {
		return true
	}
	user, password, ok := r.BasicAuth()
	want, known := s.users[user]
	return ok && known && want == password
}

// Require admits only a user with a password from now on.
func (s *Server) Require(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = map[string]string{user: password}
}

// Authorizations returns the credentials that requests had.
func (s *Server) Authorizations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.authorizations...)
}

// Repository is a bare repository of a server.
type Repository struct {
	*Server
	Path, URL string
}

// Repository makes a repository whose branch main has some files in one commit.
func (s *Server) Repository(name string, files map[string]string) Repository {
	s.Helper()
	r := Repository{s, filepath.Join(s.Dir, name), s.URL + "/" + name}
	Git(s, "", nil, "init", "--quiet", "--bare", "--initial-branch=main", r.Path)
	if files != nil {
		r.Commit("main", files)
	}
	return r
}

// Commit adds a commit to a branch, which it creates if it is missing, and returns its hash.
func (r Repository) Commit(branch string, files map[string]string) string {
	r.Helper()
	dir := r.TempDir()
	Git(r, "", nil, "clone", "--quiet", r.Path, dir)
	if _, err := exec.Command("git", "-C", dir, "checkout", "--quiet", branch).CombinedOutput(); err != nil {
		Git(r, dir, nil, "checkout", "--quiet", "-B", branch)
	}
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			r.Fatal(err)
		}
		if target, isLink := strings.CutPrefix(content, "-> "); isLink {
			if err := os.Symlink(target, at); err != nil {
				r.Fatal(err)
			}
		} else if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			r.Fatal(err)
		}
	}
	Git(r, dir, nil, "add", "--all")
	Git(r, dir, nil, "commit", "--quiet", "--message", "change")
	Git(r, dir, nil, "push", "--quiet", "origin", branch)
	return Git(r, dir, nil, "rev-parse", "HEAD")
}

// Object writes an object without checking it, and returns its hash.
func (r Repository) Object(kind string, content []byte) string {
	r.Helper()
	return Git(r, r.Path, content, "hash-object", "-w", "--literally", "-t", kind, "--stdin")
}

// CommitTree makes a tree the only commit of a branch.
func (r Repository) CommitTree(branch, tree string) string {
	r.Helper()
	commit := Git(r, r.Path, nil, "commit-tree", "-m", "hostile", tree)
	Git(r, r.Path, nil, "update-ref", "refs/heads/"+branch, commit)
	return commit
}

// Git runs git in a directory and returns what it wrote.
func Git(t testing.TB, dir string, in []byte, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir, c.Stdin = dir, bytes.NewReader(in)
	c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_TERMINAL_PROMPT=0")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
