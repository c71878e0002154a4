package cli_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
)

// user is a user with a home, who may log in.
type user struct {
	*testing.T
	home string
	env  map[string]string
}

func newUser(t *testing.T) *user {
	home := t.TempDir()
	return &user{T: t, home: home, env: map[string]string{"HOME": home}}
}

func (u *user) run(stdin string, args ...string) result {
	u.Helper()
	return runWith(u.Context(), cli.Config{Getenv: func(name string) string { return u.env[name] }}, stdin, args...)
}

func (u *user) file() string { return filepath.Join(u.home, ".config", "sandbox", "contexts.json") }

// asked is a reconciler that accepts every token and remembers the last one.
func asked(t *testing.T, tls bool) (s *httptest.Server, token *string) {
	t.Helper()
	token = new(string)
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id": "ledger", "environments": []}`))
	}))
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, token
}

func TestLoginSavesATokenThatTheReconcilerKnows(t *testing.T) {
	t.Parallel()
	w, u := newWorld(t), newUser(t)
	token, err := access.ReadToken(w.tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	w.want(u.run("\n", "login", w.url), exit.Usage, "it is empty")
	w.want(u.run("sbl_unknown\n", "login", w.url), exit.Failed, "nothing was saved", "rejects the token: unknown token")
	for _, wrong := range []string{"127.0.0.1:18820", "sandboxes.example.com", "ftp://x", "https://"} {
		w.want(u.run(token, "login", wrong), exit.Usage, "must be http:// or https:// and a host, or unix:///path")
	}
	w.want(u.run(token, "login", "http://192.0.2.1"), exit.Usage, "plain text", "--insecure")
	if _, err := os.Stat(u.file()); !os.IsNotExist(err) {
		t.Errorf("a failed login left a file: %v", err)
	}
	r := u.run(token+"\n", "login", w.url)
	w.want(r, exit.Done, "Logged in to "+w.url)
	if strings.Contains(r.out+r.err, token) {
		t.Error("login prints the token")
	}
	for path, mode := range map[string]os.FileMode{u.file(): 0o600, filepath.Dir(u.file()): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, mode)
		}
	}
	w.want(u.run("", "env", "list"), exit.Done, "ENVIRONMENT")

	if err := os.Chmod(u.file(), 0o644); err != nil {
		t.Fatal(err)
	}
	w.want(u.run("", "env", "list"), exit.Usage, "chmod 600")
	if err := os.WriteFile(u.file(), []byte(`{"contexts": [], "currant": "x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(u.file(), 0o600); err != nil {
		t.Fatal(err)
	}
	w.want(u.run("", "env", "list"), exit.Usage, `unknown field "currant"`)
}

func TestATokenThatMayNotReadIsValid(t *testing.T) {
	t.Parallel()
	w, u := newWorld(t), newUser(t)
	made := w.run("token", "create", "games", "--scope", "conditions")
	w.want(made, exit.Done)
	w.want(u.run(made.out, "login", w.url), exit.Done)
}

func TestWhatGoesBeforeAContext(t *testing.T) {
	t.Parallel()
	w, u := &world{T: t}, newUser(t)
	one, oneAsked := asked(t, false)
	two, twoAsked := asked(t, false)
	w.want(u.run("token-1", "login", one.URL, "--name", "one"), exit.Done)
	w.want(u.run("token-2", "login", two.URL, "--name", "two"), exit.Done)
	file := filepath.Join(u.home, "token")
	if err := os.WriteFile(file, []byte("token-f"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		url      string // in the environment
		token    string // in the environment
		args     []string
		one, two string // the tokens that the two reconcilers receive
		code     int
	}{
		{"the current context", "", "", nil, "", "token-2", exit.Done},
		{"--context", "", "", []string{"--context", "one"}, "token-1", "", exit.Done},
		{"an unknown context", "", "", []string{"--context", "three"}, "", "", exit.Usage},
		{"variables", one.URL, "token-e", nil, "token-e", "", exit.Done},
		{"a variable for the token", "", "token-e", nil, "", "token-e", exit.Done},
		{"--context before variables", one.URL, "token-e", []string{"--context", "two"}, "", "token-2", exit.Done},
		{"--token-file", "", "token-e", []string{"--token-file", file}, "", "token-f", exit.Done},
		{"--url before the variable", two.URL, "token-e", []string{"--url", one.URL}, "token-e", "", exit.Done},
		{"a context's token is not for another URL", "", "", []string{"--url", one.URL}, "", "", exit.Usage},
		{"nor for that of a variable", one.URL, "", nil, "", "", exit.Usage},
		{"a context's token with its own URL", "", "",
			[]string{"--context", "one", "--url", one.URL}, "token-1", "", exit.Done},
	} {
		*oneAsked, *twoAsked = "", ""
		u.env["SANDBOX_RECONCILER_URL"], u.env["SANDBOX_RECONCILER_TOKEN"] = c.url, c.token
		r := u.run("", append([]string{"env", "list"}, c.args...)...)
		if r.code != c.code || *oneAsked != c.one || *twoAsked != c.two {
			t.Errorf("%s: exit code %d, tokens %q and %q; want %d, %q and %q\n%s",
				c.name, r.code, *oneAsked, *twoAsked, c.code, c.one, c.two, r.err)
		}
	}
	w.want(u.run("", "context", "list", "-o", "json"), exit.Done, `"name": "one"`)
	if r := u.run("", "context", "list", "-o", "json"); strings.Contains(r.out, "token-") {
		t.Errorf("the list of contexts shows tokens: %s", r.out)
	}
	w.want(u.run("", "logout"), exit.Done, "two")
	w.want(u.run("", "logout"), exit.Usage, "no current context")
	w.want(u.run("", "context", "use", "two"), exit.Usage, `no context "two"`)
	w.want(u.run("", "context", "use", "one"), exit.Done)
	text, err := os.ReadFile(u.file())
	var saved struct{ Current string }
	if err != nil || json.Unmarshal(text, &saved) != nil || saved.Current != "one" || strings.Contains(string(text), "token-2") {
		t.Errorf("after logout the file is %s, %v", text, err)
	}
}

// TestMistakesOfTLSAreNotTriedAgain: each exits with 1, not 75, and says what to do.
func TestMistakesOfTLSAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	w, u := &world{T: t}, newUser(t)
	secure, token := asked(t, true)
	plain, _ := asked(t, false)
	ca := filepath.Join(u.home, "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	u.env["SANDBOX_RECONCILER_TOKEN"] = "token"
	list := func(url string, args ...string) result {
		return u.run("", append([]string{"env", "list", "--url", url}, args...)...)
	}
	began := time.Now()
	w.want(list(secure.URL), exit.Failed, "not trusted here", "--ca-file")
	w.want(list(strings.Replace(secure.URL, "127.0.0.1", "localhost", 1), "--ca-file", ca), exit.Failed,
		"for other names")
	w.want(list(strings.Replace(secure.URL, "https:", "http:", 1)), exit.Failed, "use https://")
	w.want(list(strings.Replace(plain.URL, "http:", "https:", 1)), exit.Failed, "use http://")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("they take %s: are they retried?", took)
	}
	w.want(list(secure.URL, "--ca-file", ca), exit.Done)
	w.want(list(secure.URL, "--ca-file", filepath.Join(u.home, "none")), exit.Usage, "no such file")
	w.want(list(secure.URL, "--ca-file", u.home), exit.Usage, "reading the authority")

	w.want(u.run("token-s", "login", secure.URL, "--ca-file", ca), exit.Done)
	delete(u.env, "SANDBOX_RECONCILER_TOKEN")
	w.want(u.run("", "env", "list"), exit.Done)
	if *token != "token-s" {
		t.Errorf("the context's token is %q", *token)
	}
}
