// Package login lets browsers into the dashboard: with a token of the API, or at an OpenID Connect provider. A cookie
// identifies the login of a browser.
package login

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/oidc"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The names of the cookie with the login id. The first one is for TLS: browsers accept this prefix only with Secure,
// for this host and all paths.
const (
	secureCookie = "__Host-sandbox_login"
	clearCookie  = "sandbox_login"
)

// Logins are the logins of browsers into a dashboard.
type Logins struct {
	// Gate authenticates browsers.
	Gate api.Gate
	// Provider logs users in, in addition to tokens; nil means none.
	Provider *oidc.Provider
	// Now is the clock.
	Now    func() time.Time
	Logger *slog.Logger
	// Show sends a page of a login: its template, title and data.
	Show func(w http.ResponseWriter, status int, template, title string, data any) error
	// Fail sends the page of an error.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
}

// Mount adds the pages of logins.
func (l Logins) Mount(mux *http.ServeMux) {
	mux.HandleFunc("GET /ui/login", l.showLogin)
	mux.HandleFunc("POST /ui/login", l.logIn)
	mux.HandleFunc("POST /ui/logout", l.logOut)
	if l.Provider != nil {
		mux.HandleFunc("GET /ui/login/oidc", l.beginLogin)
		mux.HandleFunc("GET "+oidc.CallbackPath, l.finishLogin)
	}
}

// csrfField is the form field for the CSRF token of the login.
const csrfField = "csrf"

// CSRF returns the CSRF token of a login. Only readers of the cookie or of a page know it.
func CSRF(login string) string {
	mac := hmac.New(sha256.New, []byte(login))
	mac.Write([]byte("csrf"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// CheckCSRF checks the CSRF token of a form. Errors: Forbidden, Invalid.
func CheckCSRF(r *http.Request, want string) error {
	if err := r.ParseForm(); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "reading the form: %w", err)
	}
	if !hmac.Equal([]byte(r.PostForm.Get(csrfField)), []byte(want)) {
		return sandbox.Errorf(sandbox.Forbidden,
			"the form lacks the CSRF token of this login and was rejected: open the page again and submit it there")
	}
	return nil
}

func (l Logins) cookieName(r *http.Request) string {
	if l.Gate.Secure(r) {
		return secureCookie
	}
	return clearCookie
}

// setCookie sets the login cookie. A lifetime that is not positive deletes it.
func (l Logins) setCookie(w http.ResponseWriter, r *http.Request, id string, lifetime time.Duration) {
	l.keep(w, r, l.cookieName(r), id, lifetime, http.SameSiteStrictMode)
}

// keep sets a cookie that scripts cannot read.
func (l Logins) keep(w http.ResponseWriter, r *http.Request, name, value string, lifetime time.Duration,
	site http.SameSite) {
	seconds := int(lifetime / time.Second)
	if seconds < 1 {
		seconds = -1 // zero would mean no limit
	}
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: seconds,
		Secure: l.Gate.Secure(r), HttpOnly: true, SameSite: site,
	})
}

// loginOf returns the login id of a request, "" for none.
func (l Logins) loginOf(r *http.Request) string {
	cookie, err := r.Cookie(l.cookieName(r))
	if err != nil { // no cookie
		return ""
	}
	return cookie.Value
}

// Enter returns the caller, and the request with the caller in its context. It redirects others to the login.
func (l Logins) Enter(w http.ResponseWriter,
	r *http.Request) (id string, as *http.Request, caller api.Caller, ok bool) {
	if id = l.loginOf(r); id == "" {
		l.leadToLogin(w, r)
		return "", nil, caller, false
	}
	as, caller, err := l.Gate.LoggedIn(r, id)
	switch {
	case api.IsUnauthenticated(err):
		l.setCookie(w, r, "", 0)
		l.leadToLogin(w, r)
	case err != nil:
		l.Fail(w, r, err)
	default:
		return id, as, caller, true
	}
	return "", nil, caller, false
}

// leadToLogin redirects a browser to the login, which leads back to the page. A script gets 401.
func (l Logins) leadToLogin(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == link.Root+"live" {
		http.Error(w, "log in first", http.StatusUnauthorized)
		return
	}
	next := ""
	if r.Method == http.MethodGet && r.URL.Path != link.Root {
		next = r.URL.RequestURI()
	}
	http.Redirect(w, r, link.To(link.Root+"login", "next", next), http.StatusSeeOther)
}

// loginPage is the login page.
type loginPage struct {
	Next    string
	Problem string
	Clear   bool // the connection is not encrypted
	// Provider is the host of the OpenID Connect provider, "" for none, and Begin the path that starts a login there.
	Provider, Begin string
}

func (l Logins) showLogin(w http.ResponseWriter, r *http.Request) {
	l.renderLogin(w, r, http.StatusOK, loginPage{Next: ownPath(r.URL.Query().Get("next"))})
}

func (l Logins) renderLogin(w http.ResponseWriter, r *http.Request, status int, p loginPage) {
	p.Clear = !l.Gate.Secure(r)
	if l.Provider != nil {
		p.Provider, p.Begin = l.Provider.Name(), link.To(beginPath, "next", p.Next)
	}
	if err := l.Show(w, status, "login", "Log in", p); err != nil {
		l.Fail(w, r, err)
	}
}

func (l Logins) logIn(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		l.Fail(w, r, sandbox.Errorf(sandbox.Invalid, "reading the form: %w", err))
		return
	}
	next := ownPath(r.PostForm.Get("next"))
	id, _, err := l.Gate.LogIn(r, r.PostForm.Get("token"))
	if err != nil {
		l.failLogin(w, r, next, err)
		return
	}
	l.setCookie(w, r, id, access.LoginLifetime)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// failLogin sends the login page with the reason of a failure.
func (l Logins) failLogin(w http.ResponseWriter, r *http.Request, next string, err error) {
	status, header, _, detail := l.Gate.Fail(r, err)
	if after := header.Get("Retry-After"); after != "" {
		w.Header().Set("Retry-After", after)
	}
	l.renderLogin(w, r, status, loginPage{Next: next, Problem: detail})
}

func (l Logins) logOut(w http.ResponseWriter, r *http.Request) {
	id := l.loginOf(r)
	if id != "" {
		if err := CheckCSRF(r, CSRF(id)); err != nil {
			l.Fail(w, r, err)
			return
		}
		if err := l.Gate.LogOut(r.Context(), id); err != nil {
			l.Fail(w, r, err)
			return
		}
		l.setCookie(w, r, "", 0)
	}
	http.Redirect(w, r, link.Root+"login", http.StatusSeeOther)
}

// ownPath returns the path if it belongs to the dashboard, and link.Root otherwise. This prevents redirects to other
// sites.
func ownPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, link.Root) ||
		slices.Contains(strings.Split(u.Path, "/"), "..") || // a browser would leave the dashboard
		strings.HasPrefix(u.Path, link.Root+"log") || strings.ContainsAny(next, "\\\r\n\t") {
		return link.Root
	}
	return u.RequestURI()
}
