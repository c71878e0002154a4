package dashboard_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/oidctest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/oidc"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// provided is a world whose users log in at a provider, through one or several reconcilers.
type provided struct {
	*world
	provider *oidctest.Provider
	others   []*world // reconcilers on the same ledger
}

// newProvidedLocally serves one reconciler at its own address.
func newProvidedLocally(t testing.TB) *provided {
	t.Helper()
	var handler atomic.Pointer[http.Handler]
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*handler.Load()).ServeHTTP(w, r)
	}))
	p := newProvided(t, front.URL, 1)
	handler.Store(&p.handler)
	t.Cleanup(p.server.Close)
	p.server = front
	return p
}

// newProvided serves reconcilers of one ledger behind the address origin.
func newProvided(t testing.TB, origin string, reconcilers int, change ...func(*api.Config)) *provided {
	t.Helper()
	env, store := inprocess.NewStored(t)
	return newProvidedOf(t, origin, slices.Repeat([]replica{{env, store}}, reconcilers), change...)
}

// replica is the service of one reconciler, and its connection to the ledger.
type replica struct {
	servicetest.Env
	store *ledger.Store
}

// newProvidedOf serves reconcilers of one ledger behind the address origin.
func newProvidedOf(t testing.TB, origin string, replicas []replica, change ...func(*api.Config)) *provided {
	t.Helper()
	p := &provided{provider: oidctest.New(t, replicas[0].Now)}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(oidctest.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range replicas {
		client, err := oidc.New(oidc.Config{
			Issuer: p.provider.URL, ClientID: oidctest.ClientID, SecretFile: secret,
			RedirectURL: origin + oidc.CallbackPath, GroupsClaim: "groups",
			Roles: []string{"ops=admin", "players=lease", "guests=read"},
		}, r.Now, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { client.Run(ctx) })
		t.Cleanup(func() {
			stop()
			running.Wait()
		})
		w := serve(t, r.Env, r.store, func(a *api.Config, d *dashboard.Config) {
			a.TrustedProxies, a.Users, d.Provider = proxies("127.0.0.1/32"), client, client
			for _, c := range change {
				c(a)
			}
		})
		w.eventually("the provider answers", client.Ready)
		if p.world == nil {
			p.world = w
		} else {
			p.others = append(p.others, w)
		}
	}
	return p
}

const site = "https://sandbox.example"

// secure are the headers of a proxy that terminates TLS.
var secure = []string{"X-Forwarded-Proto", "https"}

// begin starts a login in a browser, and returns the path to which the provider redirects.
func (p *provided) begin(b *browser, next string) string {
	p.Helper()
	a := b.get("/ui/login/oidc?next="+url.QueryEscape(next), secure...)
	if a.StatusCode != http.StatusSeeOther || !strings.HasPrefix(a.Header.Get("Location"), p.provider.URL+"/authorize?") {
		p.Fatalf("a login begins with %d %v: %s", a.StatusCode, a.Header, a.body)
	}
	back := p.provider.Visit(a.Header.Get("Location"))
	if back.Scheme+"://"+back.Host != site {
		p.Fatalf("the provider leads to %s", back)
	}
	return back.RequestURI()
}

// user returns a browser in which a user has logged in.
func (p *provided) user(groups ...string) *browser {
	p.Helper()
	p.provider.SetUser("248289", "ann@example.com", groups...)
	b := p.browser()
	if a := b.get(p.begin(b, "/ui/"), secure...); a.StatusCode != http.StatusOK {
		p.Fatalf("a login ends with %d: %s", a.StatusCode, a.body)
	}
	b.get("/ui/", secure...)
	return b
}

func TestAUserLogsInAtTheProviderAndActsInTheirOwnName(t *testing.T) {
	t.Parallel()
	p := newProvided(t, site, 1)
	l, _ := p.game()
	b := p.browser()
	page := b.get("/ui/login?next=/ui/leases", secure...).body
	if !strings.Contains(page, `href="/ui/login/oidc?next=%2Fui%2Fleases"`) ||
		!strings.Contains(page, "Log in with "+strings.TrimPrefix(p.provider.URL, "http://")) {
		t.Errorf("the log-in page does not lead to the provider: %s", page)
	}
	a := b.get(p.begin(b, "/ui/leases"), secure...)
	if a.StatusCode != http.StatusOK || a.Header.Get("Refresh") != "0; url=/ui/leases" ||
		!strings.Contains(a.body, `href="/ui/leases"`) {
		t.Fatalf("the login ends with %d %v: %s", a.StatusCode, a.Header, a.body)
	}
	cookies := map[string]*http.Cookie{}
	for _, c := range a.Cookies() {
		cookies[c.Name] = c
		if !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" {
			t.Errorf("it sets the cookie %s", c)
		}
	}
	if c := cookies["__Host-sandbox_login"]; c == nil || c.SameSite != http.SameSiteStrictMode || c.MaxAge != 3600 {
		t.Errorf("the log-in's cookie is %v", c)
	}
	if c := cookies["__Host-sandbox_attempt"]; c == nil || c.MaxAge != -1 {
		t.Errorf("the attempt's cookie is %v", c)
	}
	path := "/ui/leases/" + url.PathEscape(l.ID) + "/expire"
	if a := b.get(path, secure...); !strings.Contains(a.body, "ann@example.com") {
		t.Errorf("the page does not name the user: %s", a.body)
	}
	if a := b.post(path, url.Values{"csrf": {b.csrf}, "generation": {"1"}},
		append([]string{"Origin", site}, secure...)...); a.StatusCode != http.StatusSeeOther {
		t.Fatalf("the action ends with %d: %s", a.StatusCode, a.body)
	}
	events, err := p.Service.ListEvents(t.Context(), sandbox.EventFilter{EnvironmentID: "catan-7"})
	if err != nil {
		t.Fatal(err)
	}
	named := false
	for _, e := range events {
		named = named || e.Type == sandbox.EventEnded && e.Actor == "oidc:ann@example.com"
	}
	if !named {
		t.Errorf("no event names the user: %+v", events)
	}
	if !strings.Contains(p.log.String(), `"caller":"oidc:ann@example.com"`) {
		t.Error("the log does not name the user")
	}
}

func TestAUserSeesWhatTheRoleAllows(t *testing.T) {
	t.Parallel()
	p := newProvided(t, site, 1)
	l, _ := p.game()
	path := "/ui/leases/" + url.PathEscape(l.ID) + "/renew"
	for group, may := range map[string]bool{"guests": false, "players": true, "ops": true} {
		b := p.user(group)
		if a := b.get("/ui/leases", secure...); a.StatusCode != http.StatusOK {
			t.Errorf("%s: the leases are answered with %d", group, a.StatusCode)
		}
		a := b.get(path, secure...)
		if may && a.StatusCode != http.StatusOK || !may && (a.StatusCode != http.StatusForbidden ||
			!strings.Contains(a.body, "user ann@example.com has the role read, but the request needs lease")) {
			t.Errorf("%s: renewing is answered with %d: %s", group, a.StatusCode, a.body)
		}
	}
	p.provider.SetUser("1", "bob@example.com", "others")
	b := p.browser()
	a := b.get(p.begin(b, "/ui/"), secure...)
	if a.StatusCode != http.StatusForbidden || len(b.cookies) != 0 ||
		!strings.Contains(a.body, "as bob@example.com, but none of your groups there has a role here") {
		t.Errorf("a user without a role is answered with %d: %s", a.StatusCode, a.body)
	}
	if a := b.get("/ui/", secure...); a.StatusCode != http.StatusSeeOther {
		t.Errorf("without a role the user gets in: %d", a.StatusCode)
	}
}

func TestALoginOfAUserHoldsOnEveryReconcilerUntilItEnds(t *testing.T) {
	t.Parallel()
	p := newProvided(t, site, 2)
	there := p.others[0]
	p.logsInAndOutEverywhere()
	b := p.user("ops")
	in := func(w *world) bool {
		b.w = w
		return b.get("/ui/", secure...).StatusCode == http.StatusOK
	}
	kept := b.cookies["__Host-sandbox_login"]
	p.Pass(time.Hour - time.Second)
	if !in(there) {
		t.Error("the login ends before the ID token")
	}
	p.Pass(time.Second)
	b.cookies["__Host-sandbox_login"] = kept
	if in(p.world) || in(there) {
		t.Error("the login holds beyond the ID token")
	}
	p.provider.Answers(func(a *oidctest.Answer) { a.Claims["exp"] = p.Now().Add(1000 * time.Hour).Unix() })
	b = p.user("ops")
	p.Pass(oidc.MaxSession - time.Second)
	if !in(p.world) {
		t.Error("the login ends before eight hours")
	}
	p.Pass(time.Second)
	if in(p.world) {
		t.Error("the login holds beyond eight hours")
	}
}

// Replicas on PostgreSQL only share the ledger and the client secret.
func TestALoginBeginsAtOneReplicaOnPostgreSQLAndEndsAtAnother(t *testing.T) {
	t.Parallel()
	url := postgrestest.New(t)
	var replicas []replica
	for range 2 {
		env, store := inprocess.NewStoredOn(t, url)
		replicas = append(replicas, replica{env, store})
	}
	newProvidedOf(t, site, replicas).logsInAndOutEverywhere()
}

// logsInAndOutEverywhere starts a login at the first reconciler and finishes it at the second one, and logs out there.
func (p *provided) logsInAndOutEverywhere() {
	t := p.TB
	t.Helper()
	b, there := p.browser(), p.others[0]
	back := p.begin(b, "/ui/")
	b.w = there // the load balancer selects another reconciler
	if a := b.get(back, secure...); a.StatusCode != http.StatusOK {
		t.Fatalf("the other reconciler answers %d: %s", a.StatusCode, a.body)
	}
	in := func(w *world) bool {
		b.w = w
		return b.get("/ui/", secure...).StatusCode == http.StatusOK
	}
	if !in(p.world) || !in(there) {
		t.Error("the login does not hold everywhere")
	}
	kept := b.cookies["__Host-sandbox_login"]
	if a := b.post("/ui/logout", url.Values{"csrf": {b.csrf}}, append([]string{"Origin", site}, secure...)...); a.StatusCode !=
		http.StatusSeeOther {
		t.Errorf("logging out is answered with %d", a.StatusCode)
	}
	b.cookies["__Host-sandbox_login"] = kept
	if in(p.world) || in(there) {
		t.Error("the login holds after the log-out")
	}
}

// TestACookieOfAnotherUserIsUnknown changes the user in a cookie, and its kind.
func TestACookieOfAnotherUserIsUnknown(t *testing.T) {
	t.Parallel()
	p := newProvided(t, site, 1)
	id := p.user("guests").cookies["__Host-sandbox_login"]
	random, said, _ := strings.Cut(id, ".")
	root := p.user("ops").cookies["__Host-sandbox_login"]
	token := p.browser()
	token.logIn(p.token("reader", sandbox.ScopeRead), secure...)
	for what, cookie := range map[string]string{
		"the user of another": random + "." + strings.Split(root, ".")[1], "no user": random, "a longer one": id + "A",
		"a token's with a user": token.cookies["__Host-sandbox_login"] + "." + said,
	} {
		b := p.browser()
		b.cookies["__Host-sandbox_login"] = cookie
		if a := b.get("/ui/", secure...); a.StatusCode != http.StatusSeeOther {
			t.Errorf("a cookie with %s is answered with %d", what, a.StatusCode)
		}
	}
}

// TestNoLoginIsForced: another site can neither log a browser in as its own user, nor keep an earlier cookie valid.
func TestNoLoginIsForced(t *testing.T) {
	t.Parallel()
	p := newProvided(t, site, 1)
	attacker, victim := p.browser(), p.browser()
	answer := p.begin(attacker, "/ui/")
	if a := victim.get(answer, secure...); a.StatusCode != http.StatusUnauthorized || len(victim.cookies) != 0 ||
		!strings.Contains(a.body, "no login in progress") {
		t.Errorf("the answer of another browser ends with %d: %s", a.StatusCode, a.body)
	}
	p.begin(victim, "/ui/")
	if a := victim.get(answer, secure...); a.StatusCode != http.StatusUnauthorized || len(victim.cookies) != 0 {
		t.Errorf("the answer of another login ends with %d %v", a.StatusCode, victim.cookies)
	}
	// The attempt has ended, so even its own answer is rejected.
	mine := p.begin(victim, "/ui/")
	victim.get(answer, secure...)
	if a := victim.get(mine, secure...); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("after a wrong answer the right one ends with %d", a.StatusCode)
	}
	// The login has a new id, whatever cookie the browser sent.
	victim.cookies["__Host-sandbox_login"] = "fixed"
	if a := victim.get(p.begin(victim, "/ui/"), secure...); a.StatusCode != http.StatusOK ||
		len(victim.cookies["__Host-sandbox_login"]) < 43 {
		t.Errorf("the login ends with %d %v", a.StatusCode, victim.cookies)
	}
}

func TestALoginLeadsOnlyToTheDashboard(t *testing.T) {
	t.Parallel()
	p := newProvided(t, site, 1)
	for next, want := range map[string]string{
		"https://evil.example/ui/": "/ui/", "//evil.example/ui/": "/ui/", "/\\evil.example": "/ui/", "/v1/leases": "/ui/",
		"ui/": "/ui/", "/ui/logout": "/ui/", "/ui/login/oidc": "/ui/", "/ui/leases?status=all": "/ui/leases?status=all",
		"/ui/" + strings.Repeat("a", 2000): "/ui/", "": "/ui/",
	} {
		b := p.browser()
		if a := b.get(p.begin(b, next), secure...); a.Header.Get("Refresh") != "0; url="+want {
			t.Errorf("%q leads to %q, want %s", next, a.Header.Get("Refresh"), want)
		}
	}
}

func TestALoginNeedsTLSWhereTheProviderLeads(t *testing.T) {
	t.Parallel()
	p := newProvided(t, site, 1)
	if a := p.browser().get("/ui/login/oidc"); a.StatusCode != http.StatusForbidden || len(a.Cookies()) != 0 ||
		!strings.Contains(a.body, "https://sandbox.example/ui/") || !strings.Contains(a.body, "--trusted-proxy") {
		t.Errorf("without TLS a login begins with %d: %s", a.StatusCode, a.body)
	}
}

func TestLoginsAtTheProviderThatFailAreThrottled(t *testing.T) {
	t.Parallel()
	p := newProvided(t, site, 1, func(a *api.Config) { a.Limits = api.Limits{Failures: 3, PerAddress: 1000} })
	for i := range 4 {
		a := p.browser().get(fmt.Sprint("/ui/login/oidc/callback?state=x&code=", i), secure...)
		if want := http.StatusUnauthorized; i < 3 && a.StatusCode != want || i == 3 &&
			(a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "") {
			t.Errorf("failure %d is answered with %d", i, a.StatusCode)
		}
	}
}

func TestWithoutTheProviderTokensLogIn(t *testing.T) {
	t.Parallel()
	p := newProvided(t, site, 1)
	p.provider.SetDown(true)
	b := p.browser()
	if a := b.get("/ui/login", secure...); a.StatusCode != http.StatusOK {
		t.Errorf("the log-in page is answered with %d", a.StatusCode)
	}
	if a := b.logIn(p.token("ops", sandbox.ScopeRead), secure...); a.StatusCode != http.StatusSeeOther ||
		a.Cookies()[0].MaxAge != int(access.LoginLifetime.Seconds()) {
		t.Errorf("a token's log-in is answered with %d", a.StatusCode)
	}
	w := newWorld(t)
	for _, path := range []string{"/ui/login/oidc", oidc.CallbackPath} {
		if a := w.browser().get(path); a.StatusCode != http.StatusNotFound {
			t.Errorf("without a provider %s is answered with %d", path, a.StatusCode)
		}
	}
	if strings.Contains(w.browser().get("/ui/login").body, "oidc") {
		t.Error("without a provider the log-in page leads to one")
	}
}

// TestInChromiumAUserLogsInAtTheProvider: the provider is another site, so the browser enforces SameSite.
func TestInChromiumAUserLogsInAtTheProvider(t *testing.T) {
	t.Parallel()
	needsBrowser(t)
	axe := axeSource(t)
	p := newProvidedLocally(t)
	p.campaign()
	c := p.startChromium()
	for _, look := range []struct {
		name, scheme string
		width        int64
	}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"phone", "light", 390}} {
		c.theme(look.scheme, look.width)
		c.open("/ui/leases?environment=catan-7") // redirects to the login, and back
		c.run(chromedp.Evaluate(axe, nil))
		c.wantAccessible("{}", "login-oidc-"+look.name)
		c.wantNoSidewaysScroll("login-oidc-" + look.name)
		c.shoot("login-oidc-" + look.name)
	}
	c.click(`a[href^="/ui/login/oidc"]`)
	c.run(chromedp.WaitVisible("#leases table", chromedp.ByQuery))
	if got := c.text(".who .name"); got != "ann@example.com" {
		t.Errorf("the page names the user %q", got)
	}
	c.click(".who button")
	c.see("Log in with")
	p.provider.SetUser("1", "bob@example.com", "others")
	c.mu.Lock()
	c.quiet = true // the browser complains about the status
	c.mu.Unlock()
	c.click(`a[href^="/ui/login/oidc"]`)
	c.see("none of your groups")
	c.run(chromedp.Evaluate(axe, nil))
	c.wantAccessible("{}", "login-refused")
	c.shoot("login-refused")
}
