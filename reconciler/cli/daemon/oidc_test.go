package daemon_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/oidctest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/servetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/oidc"
)

// TestUsersLogInWithoutARestart: a reconciler starts while its provider is down. It lets a user in once the provider
// answers, and removes the role once the settings do.
func TestUsersLogInWithoutARestart(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t, time.Now)
	provider.SetDown(true)
	const origin = "http://127.0.0.1:1" // where the provider redirects to; the test does not
	s := servetest.New(t).Serve(func(c *reconciler.Config) {
		c.Dashboard = true
		c.OIDC = oidc.Config{Issuer: provider.URL, ClientID: oidctest.ClientID, RedirectURL: origin + oidc.CallbackPath,
			GroupsClaim: "groups", Roles: []string{"ops=admin"}}
		c.OIDC.SecretFile = strings.TrimSuffix(c.TokenFile, "tokens") + "oidc-secret"
		(&servetest.Install{T: t, Dir: strings.TrimSuffix(c.TokenFile, "/tokens")}).Write("oidc-secret", oidctest.Secret)
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer browser.CloseIdleConnections()
	get := func(path string) (status int, body, location string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text), resp.Header.Get("Location")
	}
	if status, body, _ := get("/ui/login/oidc"); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "does not answer") {
		t.Errorf("without the provider a login begins with %d: %s", status, body)
	}
	provider.SetDown(false)
	var redirect string
	testwait.Until(t, time.Minute, "a login begins at the provider", func() bool {
		_, _, redirect = get("/ui/login/oidc")
		return redirect != ""
	})
	back, err := url.Parse(provider.Visit(redirect).String())
	if err != nil {
		t.Fatal(err)
	}
	if status, body, _ := get(back.RequestURI()); status != http.StatusOK {
		t.Fatalf("the login ends with %d: %s", status, body)
	}
	if status, body, _ := get("/ui/"); status != http.StatusOK || !strings.Contains(body, "ann@example.com") {
		t.Errorf("logged in the user gets %d: %s", status, body)
	}
	s.Config.OIDC.Roles = []string{"others=admin"}
	s.Reload()
	if status, _, to := get("/ui/"); status != http.StatusSeeOther || to != "/ui/login" {
		t.Errorf("without a role the user gets %d", status)
	}
}
