package dashboard

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/oidc"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// beginPath is the path that starts a login at the OpenID Connect provider. It is a link and not a form, because the
// content policy forbids forms that lead to other sites.
const beginPath = Root + "login/oidc"

// The names of the cookie with the attempt to log in, see secureCookie. The provider's redirect comes from another
// site, so this cookie is SameSite=Lax and the login cookie is not.
const (
	secureAttempt = "__Host-sandbox_attempt"
	clearAttempt  = "sandbox_attempt"
)

func (d *Dashboard) attemptName(r *http.Request) string {
	if d.gate.Secure(r) {
		return secureAttempt
	}
	return clearAttempt
}

// beginLogin redirects the browser to the provider.
func (d *Dashboard) beginLogin(w http.ResponseWriter, r *http.Request) {
	next := ownPath(r.URL.Query().Get("next"))
	redirect, attempt, err := d.begin(r, next)
	if err != nil {
		d.failLogin(w, r, next, err)
		return
	}
	d.keep(w, r, d.attemptName(r), attempt, oidc.AttemptLifetime, http.SameSiteLaxMode)
	http.Redirect(w, r, redirect, http.StatusSeeOther)
}

func (d *Dashboard) begin(r *http.Request, next string) (redirect, attempt string, err error) {
	if err := d.gate.Limit(r); err != nil {
		return "", "", err
	}
	if d.provider.Secure() && !d.gate.Secure(r) { // the cookies would not be Secure
		return "", "", sandbox.Errorf(sandbox.Forbidden, "the provider leads back to %s, but this page came without TLS: "+
			"log in there; if a proxy ends TLS, its network must be a --trusted-proxy", d.provider.Home())
	}
	return d.provider.Begin(next)
}

// finishLogin receives the browser from the provider. The attempt ends, whatever the answer. The login cookie is
// SameSite=Strict: a browser would not send it after a redirect that another site began, so a page leads on.
func (d *Dashboard) finishLogin(w http.ResponseWriter, r *http.Request) {
	attempt, err := r.Cookie(d.attemptName(r))
	if err != nil { // no cookie
		attempt = &http.Cookie{}
	}
	d.keep(w, r, d.attemptName(r), "", 0, http.SameSiteLaxMode)
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	l, next, err := d.finish(ctx, r, attempt.Value)
	next = ownPath(next)
	if err == nil {
		var id string
		if id, _, err = d.gate.LogInUser(r, l.User, l.Until); err == nil {
			d.setCookie(w, r, id, l.Until.Sub(d.now()))
			w.Header().Set("Refresh", "0; url="+next)
			err = d.render(w, http.StatusOK, "loggedin", &frame{Title: "You are logged in", Page: next})
		}
	}
	if err != nil {
		d.failLogin(w, r, next, err)
	}
}

func (d *Dashboard) finish(ctx context.Context, r *http.Request, attempt string) (oidc.Login, string, error) {
	if err := d.gate.Limit(r); err != nil {
		return oidc.Login{}, "", err
	}
	l, next, err := d.provider.Finish(ctx, attempt, r.URL.Query())
	level, msg := slog.LevelInfo, "dashboard: a user has logged in"
	if err != nil {
		level, msg = slog.LevelWarn, "dashboard: a login was refused"
		err = d.gate.NoteFailure(r, err)
	}
	attrs := []slog.Attr{slog.String("user", l.Name), slog.String("subject", l.Subject),
		slog.Any("groups", l.Groups), slog.String("role", string(l.Role)), slog.Time("until", l.Until)}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	d.log.LogAttrs(ctx, level, msg, attrs...)
	return l, next, err
}
