package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The names of the cookie with the login id. The first one is for TLS: browsers accept this prefix only with Secure,
// for this host and all paths.
const (
	secureCookie = "__Host-sandbox_login"
	clearCookie  = "sandbox_login"
)

// csrfField is the form field for the CSRF token of the login.
const csrfField = "csrf"

// csrfOf returns the CSRF token of a login. Only readers of the cookie or of a page know it.
func csrfOf(login string) string {
	mac := hmac.New(sha256.New, []byte(login))
	mac.Write([]byte("csrf"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// checkCSRF checks the CSRF token of a form. Errors: Forbidden, Invalid.
func checkCSRF(r *http.Request, want string) error {
	if err := r.ParseForm(); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "reading the form: %w", err)
	}
	if !hmac.Equal([]byte(r.PostForm.Get(csrfField)), []byte(want)) {
		return sandbox.Errorf(sandbox.Forbidden,
			"the form lacks the CSRF token of this login and was rejected: open the page again and submit it there")
	}
	return nil
}

func (d *Dashboard) cookieName(r *http.Request) string {
	if d.gate.Secure(r) {
		return secureCookie
	}
	return clearCookie
}

// setCookie sets the login cookie. A lifetime that is not positive deletes it.
func (d *Dashboard) setCookie(w http.ResponseWriter, r *http.Request, id string, lifetime time.Duration) {
	d.keep(w, r, d.cookieName(r), id, lifetime, http.SameSiteStrictMode)
}

// keep sets a cookie that scripts cannot read.
func (d *Dashboard) keep(w http.ResponseWriter, r *http.Request, name, value string, lifetime time.Duration,
	site http.SameSite) {
	seconds := int(lifetime / time.Second)
	if seconds < 1 {
		seconds = -1 // zero would mean no limit
	}
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: seconds,
		Secure: d.gate.Secure(r), HttpOnly: true, SameSite: site,
	})
}

// loginOf returns the login id of a request, "" for none.
func (d *Dashboard) loginOf(r *http.Request) string {
	cookie, err := r.Cookie(d.cookieName(r))
	if err != nil { // no cookie
		return ""
	}
	return cookie.Value
}

// enter returns the caller, and the request with the caller in its context. It redirects others to the login.
func (d *Dashboard) enter(w http.ResponseWriter,
	r *http.Request) (id string, as *http.Request, caller api.Caller, ok bool) {
	if id = d.loginOf(r); id == "" {
		d.leadToLogin(w, r)
		return "", nil, caller, false
	}
	as, caller, err := d.gate.LoggedIn(r, id)
	switch {
	case api.IsUnauthenticated(err):
		d.setCookie(w, r, "", 0)
		d.leadToLogin(w, r)
	case err != nil:
		d.fail(w, r, err)
	default:
		return id, as, caller, true
	}
	return "", nil, caller, false
}

// leadToLogin redirects a browser to the login, which leads back to the page. A script gets 401.
func (d *Dashboard) leadToLogin(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == Root+"live" {
		http.Error(w, "log in first", http.StatusUnauthorized)
		return
	}
	next := ""
	if r.Method == http.MethodGet && r.URL.Path != Root {
		next = r.URL.RequestURI()
	}
	http.Redirect(w, r, address(Root+"login", "next", next), http.StatusSeeOther)
}

// loginPage is the login page.
type loginPage struct {
	Next    string
	Problem string
	Clear   bool // the connection is not encrypted
	// Provider is the host of the OpenID Connect provider, "" for none, and Begin the path that starts a login there.
	Provider, Begin string
}

func (d *Dashboard) showLogin(w http.ResponseWriter, r *http.Request) {
	d.renderLogin(w, r, http.StatusOK, loginPage{Next: ownPath(r.URL.Query().Get("next"))})
}

func (d *Dashboard) renderLogin(w http.ResponseWriter, r *http.Request, status int, p loginPage) {
	p.Clear = !d.gate.Secure(r)
	if d.provider != nil {
		p.Provider, p.Begin = d.provider.Name(), address(beginPath, "next", p.Next)
	}
	if err := d.render(w, status, "login", &frame{Title: "Log in", Page: p}); err != nil {
		d.fail(w, r, err)
	}
}

func (d *Dashboard) logIn(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		d.fail(w, r, sandbox.Errorf(sandbox.Invalid, "reading the form: %w", err))
		return
	}
	next := ownPath(r.PostForm.Get("next"))
	id, _, err := d.gate.LogIn(r, r.PostForm.Get("token"))
	if err != nil {
		d.failLogin(w, r, next, err)
		return
	}
	d.setCookie(w, r, id, access.LoginLifetime)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// failLogin sends the login page with the reason of a failure.
func (d *Dashboard) failLogin(w http.ResponseWriter, r *http.Request, next string, err error) {
	status, header, _, detail := d.gate.Fail(r, err)
	if after := header.Get("Retry-After"); after != "" {
		w.Header().Set("Retry-After", after)
	}
	d.renderLogin(w, r, status, loginPage{Next: next, Problem: detail})
}

func (d *Dashboard) logOut(w http.ResponseWriter, r *http.Request) {
	id := d.loginOf(r)
	if id != "" {
		if err := checkCSRF(r, csrfOf(id)); err != nil {
			d.fail(w, r, err)
			return
		}
		if err := d.gate.LogOut(r.Context(), id); err != nil {
			d.fail(w, r, err)
			return
		}
		d.setCookie(w, r, "", 0)
	}
	http.Redirect(w, r, Root+"login", http.StatusSeeOther)
}

// ownPath returns the path if it belongs to the dashboard, and Root otherwise. This prevents redirects to other sites.
func ownPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, Root) ||
		strings.HasPrefix(u.Path, Root+"log") || strings.ContainsAny(next, "\\\r\n\t") {
		return Root
	}
	return u.RequestURI()
}
