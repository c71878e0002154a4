package oidc_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/logtest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/oidctest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/oidc"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a client of a provider, and a clock for both.
type world struct {
	*testing.T
	provider *oidctest.Provider
	config   oidc.Config
	log      *logtest.Buffer

	mu  sync.Mutex // guards now
	now time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, log: &logtest.Buffer{}, now: time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)}
	w.provider = oidctest.New(t, w.Now)
	w.config = oidc.Config{
		Issuer: w.provider.URL, ClientID: oidctest.ClientID, SecretFile: w.secret(oidctest.Secret),
		RedirectURL: "https://sandbox.example" + oidc.CallbackPath, GroupsClaim: "groups", Scopes: []string{"email"},
		Roles: []string{"ops=admin", "players=lease", "CN=guests,DC=example=read"},
	}
	return w
}

func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) secret(text string) string {
	w.Helper()
	file := filepath.Join(w.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		w.Fatal(err)
	}
	return file
}

// client starts a client of the provider, which stops at the end of the test.
func (w *world) client(change ...func(*oidc.Config)) *oidc.Provider {
	w.Helper()
	config := w.config
	for _, c := range change {
		c(&config)
	}
	p, err := oidc.New(config, w.Now, slog.New(slog.NewJSONHandler(w.log, nil)))
	if err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	w.Cleanup(func() {
		stop()
		running.Wait()
	})
	return p
}

// ready is client, after the provider has answered.
func (w *world) ready() *oidc.Provider {
	w.Helper()
	p := w.client()
	w.eventually("the provider answers", p.Ready)
	return p
}

func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	testwait.Until(w, time.Minute, what, ok)
}

// begin starts a login, and logs the user in at the provider.
func (w *world) begin(p *oidc.Provider, next string) (cookie string, answer url.Values) {
	w.Helper()
	redirect, cookie, err := p.Begin(next)
	if err != nil {
		w.Fatal(err)
	}
	back := w.provider.Visit(redirect)
	if got := back.Scheme + "://" + back.Host + back.Path; got != w.config.RedirectURL {
		w.Fatalf("the provider leads back to %s", got)
	}
	return cookie, back.Query()
}

func (w *world) logIn(p *oidc.Provider) (oidc.Login, error) {
	w.Helper()
	cookie, answer := w.begin(p, "/ui/")
	l, _, err := p.Finish(w.Context(), cookie, answer)
	return l, err
}

// wantRefused fails the test unless the error is a refusal with a text.
func (w *world) wantRefused(what string, err error, says string) {
	w.Helper()
	if sandbox.CodeOf(err) != sandbox.Unauthenticated || !strings.Contains(err.Error(), says) {
		w.Errorf("%s: %v, want a refusal that says %q", what, err, says)
	}
}

func TestAUserHasTheStrongestRoleOfTheGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ready()
	for groups, role := range map[string]sandbox.Scope{
		"ops": sandbox.ScopeAdmin, "players": sandbox.ScopeLease, "CN=guests,DC=example": sandbox.ScopeRead,
		"players ops": sandbox.ScopeAdmin, "others CN=guests,DC=example players": sandbox.ScopeLease,
	} {
		w.provider.SetUser("248289", "ann@example.com", strings.Fields(groups)...)
		cookie, answer := w.begin(p, "/ui/leases?status=all")
		l, next, err := p.Finish(t.Context(), cookie, answer)
		if err != nil || next != "/ui/leases?status=all" || l.Role != role || l.Name != "ann@example.com" ||
			l.Subject != "248289" {
			t.Errorf("%s: %+v, %s, %v", groups, l, next, err)
		}
		token, err := p.TokenOf(l.User)
		if err != nil || token.Source() != "oidc:ann@example.com" || len(token.Scopes) != 1 || token.Scopes[0] != role ||
			token.Tenant() != nil {
			t.Errorf("%s: %+v, %v", groups, token, err)
		}
	}
	for _, groups := range [][]string{nil, {""}, {"others", "OPS", "ops ", "CN=guests"}} {
		w.provider.SetUser("248289", "ann@example.com", groups...)
		_, err := w.logIn(p)
		if sandbox.CodeOf(err) != sandbox.Forbidden || !strings.Contains(err.Error(), "ann@example.com") ||
			!strings.Contains(err.Error(), "none of your groups") {
			t.Errorf("%v: %v", groups, err)
		}
	}
}

func TestAUserIsNamedByAVerifiedEmailOrTheSubject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ready()
	for _, c := range []struct {
		claims map[string]any
		name   string // "" for a refusal
	}{
		{map[string]any{"email": "bob@example.com", "email_verified": true}, "bob@example.com"},
		{map[string]any{"email": "bob@example.com", "email_verified": "true"}, "bob@example.com"},
		{map[string]any{"email": "bob@example.com", "email_verified": false}, "ann"},
		{map[string]any{"email": "bob@example.com", "email_verified": nil}, "ann"},
		{map[string]any{"email": "", "email_verified": true}, "ann"},
		{map[string]any{"email": 7}, "ann"},
		{map[string]any{"groups": "ops"}, "ann@example.com"},
		{map[string]any{"groups": []any{7, nil, "ops"}}, "ann@example.com"},
		{map[string]any{"sub": ""}, ""},
		{map[string]any{"sub": strings.Repeat("a", 256), "email": ""}, ""},
		{map[string]any{"email": "bob\n@example.com"}, ""},
		{map[string]any{"email": "bob @example.com"}, ""},
		{map[string]any{"email": "bob\u202e@example.com"}, ""},
	} {
		w.provider.Answers(func(a *oidctest.Answer) {
			for name, value := range c.claims {
				a.Claims[name] = value
			}
		})
		l, err := w.logIn(p)
		if c.name == "" {
			w.wantRefused(fmt.Sprint(c.claims), err, "no usable subject or email")
		} else if err != nil || l.Name != c.name {
			t.Errorf("%v: %+v, %v", c.claims, l, err)
		}
	}
}

func TestALoginEndsWithTheIDTokenOrAfterEightHours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ready()
	for lifetime, want := range map[time.Duration]time.Duration{
		5 * time.Minute: 5 * time.Minute, 8*time.Hour + time.Second: 8 * time.Hour, 240 * time.Hour: 8 * time.Hour,
	} {
		w.provider.Answers(func(a *oidctest.Answer) { a.Claims["exp"] = w.Now().Add(lifetime).Unix() })
		if l, err := w.logIn(p); err != nil || !l.Until.Equal(w.Now().Add(want)) {
			t.Errorf("with an ID token of %s it ends at %s, %v", lifetime, l.Until, err)
		}
	}
}

// TestForgedIDTokensAreRefused: each row is an ID token that the provider did not issue for this login.
func TestForgedIDTokensAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ready()
	claim := func(name string, value any) func(*oidctest.Answer) {
		return func(a *oidctest.Answer) { a.Claims[name] = value }
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(oidctest.PublicKey())})
	for what, c := range map[string]struct {
		forge func(*oidctest.Answer)
		says  string
	}{
		"another issuer":       {claim("iss", "https://evil.example"), "issued by a different provider"},
		"another audience":     {claim("aud", "another client"), "expected audience"},
		"no audience":          {claim("aud", nil), "expected audience"},
		"another party":        {claim("azp", "another client"), "another client"},
		"several audiences":    {claim("aud", []string{oidctest.ClientID, "another client"}), "not to this one"},
		"another nonce":        {claim("nonce", "bm9uY2U"), "belongs to another login"},
		"no nonce":             {claim("nonce", nil), "belongs to another login"},
		"an expired one":       {claim("exp", w.Now().Add(-time.Second).Unix()), "expired"},
		"one that expires now": {claim("exp", w.Now().Unix()), "expired"},
		"no expiry":            {func(a *oidctest.Answer) { delete(a.Claims, "exp") }, "expired"},
		"one of the future":    {claim("nbf", w.Now().Add(time.Hour).Unix()), "not before"},
		"a foreign key":        {func(a *oidctest.Answer) { a.Key = oidctest.Foreign() }, "failed to verify"},
		"the public key as a secret": {func(a *oidctest.Answer) {
			a.Algorithm, a.Key = jose.HS256, public
		}, "unexpected signature algorithm"},
		"the client secret as the key": {func(a *oidctest.Answer) {
			a.Algorithm, a.Key = jose.HS256, append([]byte(oidctest.Secret), make([]byte, 32)...)
		}, "unexpected signature algorithm"},
		"no algorithm": {func(a *oidctest.Answer) {
			text, err := json.Marshal(a.Claims)
			if err != nil {
				t.Error(err)
			}
			a.Body["id_token"] = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
				base64.RawURLEncoding.EncodeToString(text) + "."
		}, "unexpected signature algorithm"},
		"other claims under a signature": {func(a *oidctest.Answer) { a.Body["id_token"] = "e30.e30.e30" }, "is not valid"},
		"not a text":                     {func(a *oidctest.Answer) { a.Body["id_token"] = 7 }, "no ID token"},
		"an error":                       {func(a *oidctest.Answer) { a.Status, a.Body["error"] = 400, "invalid_grant" }, "invalid_grant"},
	} {
		w.provider.Answers(c.forge)
		l, err := w.logIn(p)
		w.wantRefused(what, err, c.says)
		if l.User != "" {
			t.Errorf("%s: it returns the user %s", what, l.User)
		}
	}
	w.provider.Answers(nil)
	if _, err := w.logIn(p); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// TestAnswersOfOtherLoginsAreRefused: each row is an answer in a browser that did not start the login, or a repeated
// answer.
func TestAnswersOfOtherLoginsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ready()
	finish := func(cookie string, answer url.Values) error {
		t.Helper()
		_, _, err := p.Finish(t.Context(), cookie, answer)
		return err
	}
	mine, answer := w.begin(p, "/ui/")
	theirs, other := w.begin(p, "/ui/")
	with := func(name string, values ...string) url.Values {
		changed := url.Values{}
		for n, v := range answer {
			changed[n] = v
		}
		changed[name] = values
		return changed
	}
	w.wantRefused("no cookie", finish("", answer), "no login in progress")
	w.wantRefused("a broken cookie", finish(mine[1:], answer), "no login in progress")
	w.wantRefused("a cookie without a signature", finish(strings.Split(mine, ".")[0]+".", answer), "no login in progress")
	w.wantRefused("another's cookie", finish(theirs, answer), "belongs to another login")
	w.wantRefused("no state", finish(mine, with("state")), "belongs to another login")
	w.wantRefused("two states", finish(mine, with("state", answer.Get("state"), "x")), "two values of state")
	w.wantRefused("two codes", finish(mine, with("code", "x", answer.Get("code"))), "two values of code")
	w.wantRefused("no code", finish(mine, with("code")), "no code")
	w.wantRefused("the answer of another provider", finish(mine, with("iss", "https://evil.example")), "evil.example")
	w.wantRefused("an error", finish(mine, with("error", "access_denied")), "access_denied")
	w.wantRefused("the code of another login", finish(mine, with("code", other.Get("code"))), "invalid_grant") // PKCE
	if err := finish(mine, with("iss", w.provider.URL)); err != nil {
		t.Errorf("the good answer: %v", err)
	}
	w.wantRefused("the same answer again", finish(mine, answer), "invalid_grant")

	// A forged attempt, which another site of the domain could set.
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(mine, ".")[0])
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.Replace(string(text), `"next":"/ui/"`, `"next":"//evil"`, 1)
	w.wantRefused("a forged attempt", finish(
		base64.RawURLEncoding.EncodeToString([]byte(forged))+"."+strings.Split(mine, ".")[1], answer), "no login in progress")

	late, answer := w.begin(p, "/ui/")
	w.pass(oidc.AttemptLifetime)
	w.wantRefused("a late answer", finish(late, answer), "took longer")

	// A code from another user's login has another nonce, even if PKCE is ignored.
	calls := w.provider.Calls()
	w.wantRefused("garbage", finish("x.y", url.Values{"code": {"x"}, "state": {"x"}}), "no login in progress")
	if w.provider.Calls() != calls {
		t.Error("an answer without an attempt causes a request to the provider")
	}
}

func TestAProviderThatNamesItselfMustDoSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.Says("authorization_response_iss_parameter_supported", true)
	p := w.ready()
	_, err := w.logIn(p)
	w.wantRefused("no issuer", err, "comes from the provider")
	w.provider.Redirects(func(q url.Values) { q.Set("iss", w.provider.URL) })
	if _, err := w.logIn(p); err != nil {
		t.Error(err)
	}
}

func TestEveryReconcilerFinishesALogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	here, there := w.ready(), w.ready()
	cookie, answer := w.begin(here, "/ui/")
	l, _, err := there.Finish(t.Context(), cookie, answer)
	if err != nil || here.Credential() != there.Credential() {
		t.Fatalf("%+v, %v", l, err)
	}
	if token, err := here.TokenOf(l.User); err != nil || token.Name != l.Name {
		t.Errorf("%+v, %v", token, err)
	}
	if other := w.client(func(c *oidc.Config) { c.ClientID = "another" }); other.Credential() == here.Credential() {
		t.Error("logins of one client hold with another")
	}
}

func TestTheReconcilerStartsWithoutTheProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.SetDown(true)
	p := w.client()
	w.eventually("it says so", func() bool { return strings.Contains(w.log.String(), "the provider does not answer") })
	if _, _, err := p.Begin("/ui/"); sandbox.CodeOf(err) != sandbox.Unavailable || p.Ready() {
		t.Errorf("a login begins: %v", err)
	}
	w.provider.SetDown(false)
	w.eventually("it retries", p.Ready)
	if _, err := w.logIn(p); err != nil {
		t.Error(err)
	}
	cookie, answer := w.begin(p, "/ui/")
	w.provider.SetDown(true)
	if _, _, err := p.Finish(t.Context(), cookie, answer); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("without the provider a login ends with %v", err)
	}
}

// TestDiscoveryIsStrict: the client must use none of these documents.
func TestDiscoveryIsStrict(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{
		"issuer": "https://evil.example", "token_endpoint": "/token", "authorization_endpoint": "javascript:alert(1)",
		"jwks_uri": "", "padding": strings.Repeat("x", 2<<20),
	} {
		w := newWorld(t)
		w.provider.Says(name, value)
		p := w.client()
		w.eventually("it says so", func() bool { return strings.Contains(w.log.String(), "the provider does not answer") })
		if p.Ready() {
			t.Errorf("it takes the %s", name)
		}
		if len(w.log.String()) > 4096 {
			t.Errorf("with the %s it logs %d bytes", name, len(w.log.String()))
		}
	}
}

func TestTheSecretIsSentAsTheProviderWants(t *testing.T) {
	t.Parallel()
	for _, methods := range [][]string{{"client_secret_post"}, {"client_secret_post", "client_secret_basic"}} {
		w := newWorld(t)
		w.provider.Says("token_endpoint_auth_methods_supported", methods)
		if _, err := w.logIn(w.ready()); err != nil {
			t.Errorf("%v: %v", methods, err)
		}
	}
}

func TestAReloadTakesRolesAndTheSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ready()
	w.provider.SetUser("ann", "", "ops", "players")
	l, err := w.logIn(p)
	if err != nil {
		t.Fatal(err)
	}
	role := func() sandbox.Scope {
		t.Helper()
		token, err := p.TokenOf(l.User)
		if err != nil {
			w.wantRefused("a user without a role", err, "no group of ann has a role any more")
			return ""
		}
		return token.Scopes[0]
	}
	reload := func(roles ...string) error {
		config := w.config
		config.Roles = roles
		return p.Reload(config)
	}
	if err := reload("players=lease"); err != nil || role() != sandbox.ScopeLease {
		t.Errorf("without its strongest role the user has %s, %v", role(), err)
	}
	if err := reload("others=admin"); err != nil || role() != "" {
		t.Errorf("without any role the user has %s, %v", role(), err)
	}
	if err := reload("ops=root"); sandbox.CodeOf(err) != sandbox.Invalid || role() != "" {
		t.Errorf("a wrong role: %v", err)
	}
	w.config.SecretFile = w.secret("another client secret")
	if err := reload("ops=admin"); err != nil || role() != sandbox.ScopeAdmin {
		t.Errorf("%v", err)
	}
	_, err = w.logIn(p)
	w.wantRefused("another secret", err, "invalid_client")
	for _, text := range []string{"", "{}", `{"groups":["ops"]}`, `[]`} {
		if _, err := p.TokenOf(text); sandbox.CodeOf(err) != sandbox.Unauthenticated {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	readable := w.secret("a client secret for tests")
	if err := os.Chmod(readable, 0o644); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*oidc.Config){
		"need --oidc-issuer":            func(c *oidc.Config) { c.Issuer = "" },
		`--oidc-issuer "http://login`:   func(c *oidc.Config) { c.Issuer = "http://login.example.com" },
		`--oidc-issuer "login`:          func(c *oidc.Config) { c.Issuer = "login.example.com" },
		`--oidc-issuer "https://u:p@h"`: func(c *oidc.Config) { c.Issuer = "https://u:p@h" },
		"needs --oidc-client-id":        func(c *oidc.Config) { c.ClientID = "" },
		"needs --oidc-client-secret":    func(c *oidc.Config) { c.SecretFile = "" },
		`--oidc-redirect-url ""`:        func(c *oidc.Config) { c.RedirectURL = "" },
		"with the path /ui/login/oidc/": func(c *oidc.Config) { c.RedirectURL = "https://sandbox.example/" },
		"--oidc-groups-claim":           func(c *oidc.Config) { c.GroupsClaim = "" },
		"needs an --oidc-role":          func(c *oidc.Config) { c.Roles = nil },
		`--oidc-role "ops"`:             func(c *oidc.Config) { c.Roles = []string{"ops"} },
		`--oidc-role "=admin"`:          func(c *oidc.Config) { c.Roles = []string{"=admin"} },
		`--oidc-role "ops=conditions"`:  func(c *oidc.Config) { c.Roles = []string{"ops=conditions"} },
		`--oidc-role "CN=ops"`:          func(c *oidc.Config) { c.Roles = []string{"CN=ops", "DC=example=admin"} },
		`group "ops" has two roles`:     func(c *oidc.Config) { c.Roles = []string{"ops=admin", "ops=read"} },
		"reading credentials":           func(c *oidc.Config) { c.SecretFile = "/nowhere" },
		"at least 16 characters":        func(c *oidc.Config) { c.SecretFile = w.secret("short") },
		"on one line":                   func(c *oidc.Config) { c.SecretFile = w.secret("a client secret\nand another") },
		"only its owner":                func(c *oidc.Config) { c.SecretFile = readable },
	} {
		config := w.config
		change(&config)
		if _, err := oidc.New(config, nil, slog.New(slog.DiscardHandler)); sandbox.CodeOf(err) != sandbox.Invalid ||
			!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "and another") {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
}

// TestNoSecretIsLogged looks for secrets of the browser, the provider and this program.
func TestNoSecretIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ready()
	cookie, answer := w.begin(p, "/ui/")
	w.provider.Answers(func(a *oidctest.Answer) { a.Status = http.StatusInternalServerError })
	_, _, err := p.Finish(t.Context(), cookie, answer)
	all := w.log.String() + err.Error()
	for what, secret := range map[string]string{"secret": oidctest.Secret, "cookie": cookie, "code": answer.Get("code"),
		"state": answer.Get("state")} {
		if strings.Contains(all, secret) {
			t.Errorf("the %s is in %s", what, all)
		}
	}
}
