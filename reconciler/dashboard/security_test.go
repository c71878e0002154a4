package dashboard_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestEveryAnswerForbidsWhatItDoesNotNeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, exec := w.game()
	b := w.loggedIn(w.token("ops", sandbox.ScopeAdmin))
	paths := []string{"/ui/login", "/ui/nothing", "/ui/static/style.css", "/ui/static/nothing"}
	for page := range pages {
		paths = append(paths, w.pathOf(page, l, exec))
	}
	for page := range doings {
		paths = append(paths, w.pathOf(page, l, exec))
	}
	for _, path := range paths {
		a := b.get(path)
		csp := a.Header.Get("Content-Security-Policy")
		for _, part := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'", "base-uri 'none'",
			"frame-ancestors 'none'",
		} {
			if !strings.Contains(csp, part+";") {
				t.Errorf("%s has the policy %q, want %s", path, csp, part)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
			t.Errorf("%s has the policy %q", path, csp)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Referrer-Policy":              "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-store",
		} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s has %s %q, want %q", path, name, got, want)
			}
		}
		for _, inline := range []string{
			" style=", "<style", " onclick", " onload", "javascript:", "http://", "https://", "//cdn",
		} {
			if strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") && strings.Contains(a.body, inline) {
				t.Errorf("%s has %q in it", path, inline)
			}
		}
	}
}

func TestStaticFilesAreKeptUnderTheirVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	page := w.browser().get("/ui/login").body
	_, link, _ := strings.Cut(page, `rel="stylesheet" href="`)
	link, _, _ = strings.Cut(link, `"`)
	a := w.browser().get(link)
	if a.StatusCode != 200 || a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
		!strings.HasPrefix(a.Header.Get("Content-Type"), "text/css") {
		t.Errorf("%s is answered with %d %v", link, a.StatusCode, a.Header)
	}
}

func TestTheCookieIsForThisSiteAndNoScript(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(a *api.Config, _ *dashboard.Config) { a.TrustedProxies = proxies("127.0.0.1/32") })
	token := w.token("ops", sandbox.ScopeRead)
	for scheme, name := range map[string]string{"http": "sandbox_login", "https": "__Host-sandbox_login"} {
		a := w.browser().logIn(token, "X-Forwarded-Proto", scheme)
		cookies := a.Cookies()
		if len(cookies) != 1 {
			t.Fatalf("the log-in sets %v", cookies)
		}
		c := cookies[0]
		if c.Name != name || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure != (scheme == "https") ||
			c.Path != "/" || c.Domain != "" || c.MaxAge != int(access.LoginLifetime.Seconds()) {
			t.Errorf("over %s the cookie is %s", scheme, c)
		}
		if len(c.Value) < 43 || strings.Contains(token, c.Value) {
			t.Errorf("the cookie holds %q", c.Value)
		}
	}
}

// TestWhatAProxyClaimsIsBelievedOfTrustedOnesOnly: otherwise any client could get a Secure cookie over plain HTTP,
// which the browser would not return.
func TestWhatAProxyClaimsIsBelievedOfTrustedOnesOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.browser().logIn(w.token("ops", sandbox.ScopeRead), "X-Forwarded-Proto", "https")
	if c := a.Cookies(); len(c) != 1 || c[0].Secure {
		t.Errorf("the cookies are %v", c)
	}
}

func TestALogInEndsWithItsTokenAndItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	in := func(b *browser) bool { return b.get("/ui/").StatusCode == 200 }

	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	if _, err := w.registry.RevokeToken(t.Context(), "ops"); err != nil {
		t.Fatal(err)
	}
	w.Pass(access.Staleness)
	if in(b) || b.cookies["sandbox_login"] != "" {
		t.Error("the login continues with a revoked token")
	}

	made, err := w.registry.CreateToken(t.Context(),
		sandbox.CreateToken{Name: "short", Scopes: []sandbox.Scope{sandbox.ScopeRead}, ExpiresAt: w.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	b = w.loggedIn(string(made.Text))
	w.Pass(time.Hour)
	if in(b) {
		t.Error("the login continues with an expired token")
	}

	b = w.loggedIn(w.token("long", sandbox.ScopeRead))
	w.Pass(access.LoginLifetime - time.Second)
	if !in(b) {
		t.Error("the log-in ends too early")
	}
	w.Pass(time.Second)
	if in(b) {
		t.Error("the login never ends")
	}
}

func TestLoggingOutEndsTheLogInEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	kept := b.cookies["sandbox_login"]
	if a := b.post("/ui/logout", url.Values{"csrf": {"wrong"}}); a.StatusCode != http.StatusForbidden ||
		b.get("/ui/").StatusCode != 200 {
		t.Errorf("logging out without the form's token is answered with %d", a.StatusCode)
	}
	if a := b.post("/ui/logout", url.Values{"csrf": {b.csrf}}); a.StatusCode != http.StatusSeeOther {
		t.Errorf("logging out is answered with %d", a.StatusCode)
	}
	b.cookies["sandbox_login"] = kept
	if a := b.get("/ui/"); a.StatusCode != http.StatusSeeOther {
		t.Errorf("the cookie of the log-in that has ended is answered with %d", a.StatusCode)
	}
}

func TestALogInNeedsATokenThatMayRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if a := w.browser().logIn("sbl_wrong"); a.StatusCode != http.StatusUnauthorized || len(a.Cookies()) != 0 ||
		!strings.Contains(a.body, "unknown token") {
		t.Errorf("a wrong token is answered with %d: %s", a.StatusCode, a.body)
	}
	if a := w.browser().logIn(""); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("no token is answered with %d", a.StatusCode)
	}
	if a := w.browser().logIn(w.token("game", sandbox.ScopeConditions)); a.StatusCode != http.StatusForbidden ||
		len(a.Cookies()) != 0 {
		t.Errorf("a token that may only send conditions is answered with %d", a.StatusCode)
	}
}

func TestLogInsThatFailAreThrottledByAddressAsTheAPIsAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(a *api.Config, _ *dashboard.Config) { a.Limits.Failures = 5 })
	good := w.token("ops", sandbox.ScopeRead)
	for i := range 5 {
		if a := w.browser().logIn(fmt.Sprint("sbl_wrong", i)); a.StatusCode != http.StatusUnauthorized {
			t.Fatalf("failure %d is answered with %d", i, a.StatusCode)
		}
	}
	a := w.browser().logIn("sbl_wrong again")
	if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" || len(a.Cookies()) != 0 {
		t.Errorf("after five failures another is answered with %d %v", a.StatusCode, a.Header)
	}
	resp := w.browser().get("/v1/environments", "Authorization", "Bearer sbl_wrong")
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the API counts for itself: %d", resp.StatusCode)
	}
	guess := w.browser()
	guess.cookies["sandbox_login"] = strings.Repeat("x", 43)
	if a := guess.get("/ui/"); a.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a guessed log-in is answered with %d", a.StatusCode)
	}
	if a := w.browser().logIn(good); a.StatusCode != http.StatusSeeOther {
		t.Errorf("after failures of its address, a good token's log-in is answered with %d", a.StatusCode)
	}
	w.Pass(time.Minute)
	if a := w.browser().logIn("sbl_wrong"); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("a minute later a failure is answered with %d", a.StatusCode)
	}
}

// TestFormsOfOtherSitesAreRefused sends what another site could make a browser send with the cookie, if the browser
// ignored SameSite.
func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, exec := w.game()
	token := w.token("ops", sandbox.ScopeAdmin)
	b := w.loggedIn(token)
	path := w.pathOf("{lease}/expire", l, exec)
	b.get(path)
	form := url.Values{"csrf": {b.csrf}, "generation": {"1"}}
	for what, header := range map[string][]string{
		"another site":              {"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"},
		"a neighbour":               {"Sec-Fetch-Site", "same-site", "Origin", "http://other.example"},
		"a browser that tells less": {"Sec-Fetch-Site", "", "Origin", "https://evil.example"},
		"an unknown origin":         {"Sec-Fetch-Site", "", "Origin", "null"},
	} {
		if a := b.post(path, form, header...); a.StatusCode != http.StatusForbidden {
			t.Errorf("a form of %s is answered with %d", what, a.StatusCode)
		}
		if a := w.browser().logIn(token, header...); a.StatusCode != http.StatusForbidden || len(a.Cookies()) != 0 {
			t.Errorf("a log-in from %s is answered with %d", what, a.StatusCode)
		}
	}
	other := w.loggedIn(token)
	for what, csrf := range map[string]string{"none": "", "another": other.csrf, "a cut one": b.csrf[1:]} {
		if a := b.post(path, url.Values{"csrf": {csrf}, "generation": {"1"}}); a.StatusCode != http.StatusForbidden {
			t.Errorf("a form with %s is answered with %d", what, a.StatusCode)
		}
	}
	if a := b.get(path + "?csrf=" + b.csrf + "&generation=1"); a.StatusCode != 200 {
		t.Errorf("asking is answered with %d", a.StatusCode)
	}
	if now, err := w.Service.GetLease(t.Context(), l.ID); err != nil || now.Status != sandbox.LeaseActive {
		t.Fatalf("%+v, %v", now, err)
	}
	if a := b.post(path, form); a.StatusCode != http.StatusSeeOther {
		t.Errorf("its own form is answered with %d: %s", a.StatusCode, a.body)
	}
}

func TestFormsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if a := w.browser().logIn(strings.Repeat("x", 1<<20)); a.StatusCode < 400 || a.StatusCode >= 500 {
		t.Errorf("a form of a megabyte is answered with %d", a.StatusCode)
	}
}

// TestNoSecretIsShownKeptOrLogged looks for a token, a login's id and a secret's value where they must not be.
func TestNoSecretIsShownKeptOrLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const value = "a-secret-value-of-the-environment"
	w.environment("catan-7", func(p *sandbox.PutEnvironment) {
		p.Secrets, p.SecretValues = []string{"key"}, map[string]sandbox.Secret{"key": value}
	})
	l := w.acquire("did:plc:ann", "catan-7")
	r, err := w.Service.Exec(t.Context(), sandbox.LeaseRef{ID: l.ID},
		sandbox.ExecRequest{Command: []string{"echo", "x"}, Env: map[string]string{"PASSWORD": value}})
	if err != nil {
		t.Fatal(err)
	}
	token := w.token("ops", sandbox.ScopeAdmin)
	b := w.loggedIn(token)
	id := b.cookies["sandbox_login"]
	hash := sha256.Sum256([]byte(id))
	seen := w.log.String()
	for page := range pages {
		seen += b.get(w.pathOf(page, l, r.ExecID)).body
	}
	seen += b.get("/ui/login?next=/ui/").body + w.browser().logIn(token[:len(token)-1]).body + w.log.String()
	for what, secret := range map[string]string{
		"the token":         token,
		"the log-in":        id,
		"the log-in's hash": fmt.Sprintf("%x", hash),
		"the secret":        value,
	} {
		if strings.Contains(seen, secret) {
			t.Errorf("%s is shown", what)
		}
	}
	if !strings.Contains(seen, "PASSWORD") {
		t.Error("the test proves nothing: not even the name of the variable is shown")
	}
}
