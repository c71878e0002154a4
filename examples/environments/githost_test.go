package environments_test

import (
	"encoding/json"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gitToken is the token that may push to the git host; no sandbox has it.
const gitToken = "token-of-the-example"

// gitHost is a fake host of repositories. Everyone may clone; the holder of the token may push and open pull requests.
type gitHost struct {
	url, host string
	// bare is the repository acme/parser.
	bare string
	// git serves repositories over HTTP, as git itself does.
	git *cgi.Handler

	mu    sync.Mutex // guards the fields below
	pulls []pull
}

// pull is an opened pull request.
type pull struct {
	Title string `json:"title"`
	Head  string `json:"head"`
	Base  string `json:"base"`
	Body  string `json:"body"`
}

// startGitHost starts a host with a repository that has these files, in one commit on main.
func startGitHost(t *testing.T, o outside, files map[string]string) *gitHost {
	t.Helper()
	root := t.TempDir()
	g := &gitHost{bare: filepath.Join(root, "acme", "parser.git")}
	tree := t.TempDir()
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(tree, name), []byte(content), 0o600))
	}
	g.run(t, tree, "init", "--quiet", "--initial-branch", "main")
	g.run(t, tree, "add", "--all")
	g.run(t, tree, "-c", "user.name=acme", "-c", "user.email=acme@localhost", "commit", "--quiet",
		"--message", "parser: begin")
	g.run(t, tree, "clone", "--quiet", "--bare", ".", g.bare)
	backend := filepath.Join(strings.TrimSpace(g.run(t, tree, "--exec-path")), "git-http-backend")
	g.git = &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}}
	g.url, g.host = o.serve(t, "git.test", g)
	return g
}

// run runs git, which must succeed, and returns its output.
func (g *gitHost) run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (g *gitHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/repos/acme/parser/pulls" {
		g.open(w, r)
		return
	}
	backend := *g.git
	if user, password, _ := r.BasicAuth(); user == "x-access-token" && password == gitToken {
		backend.Env = append(backend.Env[:len(backend.Env):len(backend.Env)], "REMOTE_USER=pusher") // allows it to push
	}
	backend.ServeHTTP(w, r)
}

func (g *gitHost) open(w http.ResponseWriter, r *http.Request) {
	var p pull
	if r.Header.Get("Authorization") != "Bearer "+gitToken {
		http.Error(w, "who are you", http.StatusUnauthorized)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pulls = append(g.pulls, p)
	w.WriteHeader(http.StatusCreated)
	// The client may have disconnected.
	_ = json.NewEncoder(w).Encode(map[string]any{"number": len(g.pulls), "html_url": g.url + "/acme/parser/pull/1"})
}

// opened returns the pull requests so far.
func (g *gitHost) opened() []pull {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pulls
}
