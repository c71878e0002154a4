package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The names of the cookie that holds a log-in's id. The first is the one over TLS: a browser takes a name with
// this prefix only with Secure, for this host alone and all of its paths.
const (
	secureCookie = "__Host-sandbox_login"
	clearCookie  = "sandbox_login"
)

// csrfField is the form field that must hold csrfOf the log-in.
const csrfField = "csrf"

// csrfOf returns what forms must carry: it is known only to readers of the log-in's cookie or of a page.
func csrfOf(login string) string {
	mac := hmac.New(sha256.New, []byte(login))
	mac.Write([]byte("csrf"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// checkCSRF refuses a form without its token. Errors: Forbidden, Invalid.
func checkCSRF(r *http.Request, want string) error {
	if err := r.ParseForm(); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "reading the form: %w", err)
	}
	if !hmac.Equal([]byte(r.PostForm.Get(csrfField)), []byte(want)) {
		return sandbox.Errorf(sandbox.Forbidden, "the form does not carry the token of this log-in, and was refused: open the page again and send it from there")
	}
	return nil
}

func (d *Dashboard) cookieName(r *http.Request) string {
	if d.gate.Secure(r) {
		return secureCookie
	}
	return clearCookie
}

// setCookie has the browser keep a log-in's id for so many seconds; below 0 it is to forget it.
func (d *Dashboard) setCookie(w http.ResponseWriter, r *http.Request, id string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: d.cookieName(r), Value: id, Path: "/", MaxAge: seconds,
		Secure: d.gate.Secure(r), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// loginOf returns the id of the log-in that a request carries, "" for none.
func (d *Dashboard) loginOf(r *http.Request) string {
	cookie, err := r.Cookie(d.cookieName(r))
	if err != nil { // there is none
		return ""
	}
	return cookie.Value
}

// enter returns who has logged in, and the request on their behalf. Others are led to the log-in.
func (d *Dashboard) enter(w http.ResponseWriter, r *http.Request) (id string, as *http.Request, caller api.Caller, ok bool) {
	if id = d.loginOf(r); id == "" {
		d.leadToLogin(w, r)
		return "", nil, caller, false
	}
	as, caller, err := d.gate.LoggedIn(r, id)
	switch {
	case api.IsUnauthenticated(err):
		d.setCookie(w, r, "", -1)
		d.leadToLogin(w, r)
	case err != nil:
		d.fail(w, r, err)
	default:
		return id, as, caller, true
	}
	return "", nil, caller, false
}

// leadToLogin leads a browser to the log-in, from where it comes back. A script is told that it has to.
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

// loginPage is what the log-in shows.
type loginPage struct {
	Next    string
	Problem string
	Clear   bool // the connection is not encrypted
}

func (d *Dashboard) showLogin(w http.ResponseWriter, r *http.Request) {
	d.renderLogin(w, r, http.StatusOK, loginPage{Next: ownPath(r.URL.Query().Get("next"))})
}

func (d *Dashboard) renderLogin(w http.ResponseWriter, r *http.Request, status int, p loginPage) {
	p.Clear = !d.gate.Secure(r)
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
		status, header, _, detail := d.gate.Fail(r, err)
		if after := header.Get("Retry-After"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		d.renderLogin(w, r, status, loginPage{Next: next, Problem: detail})
		return
	}
	d.setCookie(w, r, id, int(access.LoginLifetime.Seconds()))
	http.Redirect(w, r, next, http.StatusSeeOther)
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
		d.setCookie(w, r, "", -1)
	}
	http.Redirect(w, r, Root+"login", http.StatusSeeOther)
}

// ownPath returns the address if it is one of the dashboard's pages, and its root otherwise: no link leads to
// another site by a link to the log-in.
func ownPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, Root) || strings.HasPrefix(u.Path, Root+"log") || strings.ContainsAny(next, "\\\r\n\t") {
		return Root
	}
	return u.RequestURI()
}
