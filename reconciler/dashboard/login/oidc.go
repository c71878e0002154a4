package login

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/oidc"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// beginPath is the path that starts a login at the OpenID Connect provider. It is a link and not a form, because the
// content policy forbids forms that lead to other sites.
const beginPath = link.Root + "login/oidc"

// finishTimeout limits the requests to the provider at the end of a login.
const finishTimeout = 30 * time.Second

// The names of the cookie with the attempt to log in, see secureCookie. The provider's redirect comes from another
// site, so this cookie is SameSite=Lax and the login cookie is not.
const (
	secureAttempt = "__Host-sandbox_attempt"
	clearAttempt  = "sandbox_attempt"
)

func (l Logins) attemptName(r *http.Request) string {
	if l.Gate.Secure(r) {
		return secureAttempt
	}
	return clearAttempt
}

// beginLogin redirects the browser to the provider.
func (l Logins) beginLogin(w http.ResponseWriter, r *http.Request) {
	next := ownPath(r.URL.Query().Get("next"))
	redirect, attempt, err := l.begin(r, next)
	if err != nil {
		l.failLogin(w, r, next, err)
		return
	}
	l.keep(w, r, l.attemptName(r), attempt, oidc.AttemptLifetime, http.SameSiteLaxMode)
	http.Redirect(w, r, redirect, http.StatusSeeOther)
}

func (l Logins) begin(r *http.Request, next string) (redirect, attempt string, err error) {
	if err := l.Gate.Limit(r); err != nil {
		return "", "", err
	}
	if l.Provider.Secure() && !l.Gate.Secure(r) { // the cookies would not be Secure
		return "", "", sandbox.Errorf(sandbox.Forbidden, "the provider redirects to %s, but this page came without TLS: "+
			"log in there; if a proxy ends TLS, its network must be a --trusted-proxy", l.Provider.Home())
	}
	return l.Provider.Begin(next)
}

// finishLogin handles the redirect back from the provider. It ends the attempt, whatever the answer is. The login
// cookie is SameSite=Strict: a browser would not send it after a redirect from another site. So a page redirects the
// browser.
func (l Logins) finishLogin(w http.ResponseWriter, r *http.Request) {
	attempt, err := r.Cookie(l.attemptName(r))
	if err != nil { // no cookie
		attempt = &http.Cookie{}
	}
	l.keep(w, r, l.attemptName(r), "", 0, http.SameSiteLaxMode)
	ctx, cancel := context.WithTimeout(r.Context(), finishTimeout)
	defer cancel()
	user, next, err := l.finish(ctx, r, attempt.Value)
	next = ownPath(next)
	if err == nil {
		var id string
		if id, _, err = l.Gate.LogInUser(r, user.User, user.Until); err == nil {
			l.setCookie(w, r, id, user.Until.Sub(l.Now()))
			w.Header().Set("Refresh", "0; url="+next)
			err = l.Show(w, http.StatusOK, "loggedin", "You are logged in", next)
		}
	}
	if err != nil {
		l.failLogin(w, r, next, err)
	}
}

func (l Logins) finish(ctx context.Context, r *http.Request, attempt string) (oidc.Login, string, error) {
	if err := l.Gate.Limit(r); err != nil {
		return oidc.Login{}, "", err
	}
	user, next, err := l.Provider.Finish(ctx, attempt, r.URL.Query())
	level, msg := slog.LevelInfo, "dashboard: a user has logged in"
	if err != nil {
		level, msg = slog.LevelWarn, "dashboard: a login was refused"
		err = l.Gate.NoteFailure(r, err)
	}
	attrs := []slog.Attr{slog.String("user", user.Name), slog.String("subject", user.Subject),
		slog.Any("groups", user.Groups), slog.String("role", string(user.Role)), slog.Time("until", user.Until)}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	l.Logger.LogAttrs(ctx, level, msg, attrs...)
	return user, next, err
}
