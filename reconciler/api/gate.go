package api

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Gate lets browsers in to pages, by what the API lets tokens in by: the same tokens, limits, scopes and
// environments, in one place.
type Gate struct{ *server }

// Gate returns what lets browsers in.
func (h Handler) Gate() Gate { return Gate(h) }

// Mount has requests whose method and path match the pattern, as http.ServeMux has them, answered by pages. They
// get a request id, and are counted and logged as all requests are; whom they are answered to is for the pages to
// ask the Gate. It is for the time before requests are served.
func (h Handler) Mount(pattern string, pages http.Handler) { h.mux.Handle(pattern, pages) }

// Caller is who has logged in, and what the token allows that this was done with.
type Caller struct {
	token   Token
	service service.Service
}

// Name is the token's.
func (c Caller) Name() string { return c.token.Name }

// Service is limited to the environments that the token may touch. What it may do there, Permit says.
func (c Caller) Service() service.Service { return scoped{service: c.service, token: c.token} }

// Allows reports whether the token may touch an environment; "" stands for all of them.
func (c Caller) Allows(environmentID string) bool { return c.token.Allows(environmentID) }

// Permit refuses what the token's scopes do not hold, by the id of the operation in the API's document. Errors: Forbidden.
func (c Caller) Permit(operationID string) error {
	needed, known := scopes[operationID]
	if !known || !c.token.Permits(needed) {
		return scopeMissing(c.token, needed)
	}
	return nil
}

// LogIn begins a log-in with the text of a token. Errors: Unauthenticated, which counts as a failed
// authentication of the address; Forbidden for a token that may not read; CapacityExceeded, Unavailable.
func (g Gate) LogIn(r *http.Request, text string) (id string, caller Caller, err error) {
	hash := webhook.HashOf(strings.TrimSpace(text))
	if _, caller, err = g.admit(r, hash); err != nil {
		return "", Caller{}, err
	}
	if err := caller.Permit("list-environments"); err != nil {
		return "", Caller{}, err
	}
	if g.access == nil {
		return "", Caller{}, sandbox.Errorf(sandbox.Unavailable, "no log-ins are kept here")
	}
	id, err = g.access.LogIn(r.Context(), hash)
	return id, caller, err
}

// LoggedIn returns who has logged in, and the request on their behalf. Errors: Unauthenticated when the log-in
// or its token has ended; CapacityExceeded, Unavailable.
func (g Gate) LoggedIn(r *http.Request, id string) (*http.Request, Caller, error) {
	if g.access == nil {
		return nil, Caller{}, sandbox.Errorf(sandbox.Unauthenticated, "no log-ins are kept here")
	}
	hash, err := g.access.LoggedIn(r.Context(), id)
	if err != nil {
		err = g.noteFailure(g.addressOf(r), err)
		exchangeOf(r.Context()).refusal = problemOf(err).Reason // the pages may lead to the log-in in place of an error
		return nil, Caller{}, err
	}
	return g.admit(r, hash)
}

// LogOut ends a log-in. Errors: Unavailable.
func (g Gate) LogOut(ctx context.Context, id string) error {
	if g.access == nil {
		return nil
	}
	return g.access.LogOut(ctx, id)
}

// Secure reports whether the browser's connection is encrypted, up to here or up to a proxy that is trusted.
func (g Gate) Secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil { // a unix socket has no address
		host = ""
	}
	return g.isProxy(host) && strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// Fail notes an error for the log, and returns what may be told of it.
func (g Gate) Fail(r *http.Request, err error) (status int, header http.Header, title, detail string) {
	p := problemOf(err)
	exchangeOf(r.Context()).note(p)
	detail = p.Detail
	for _, f := range p.Fields {
		detail += "; " + f.Name + ": " + f.Problem
	}
	return p.Status, p.GetHeaders(), p.Title, detail
}

// admit finds the token whose text has the hash, within the limits of the address and the token.
func (g Gate) admit(r *http.Request, hash webhook.Hash) (*http.Request, Caller, error) {
	if err := g.perAddress.take(g.addressOf(r), "requests from this address", g.now()); err != nil {
		return nil, Caller{}, err
	}
	token, err := g.tokenWith(r, hash)
	if err != nil {
		return nil, Caller{}, err
	}
	return g.onBehalf(r, token.Source()), Caller{token: token, service: g.service}, nil
}

// IsUnauthenticated reports whether an error of the Gate says that the credentials are missing, wrong or ended.
func IsUnauthenticated(err error) bool {
	return err != nil && problemOf(err).Code == sandbox.Unauthenticated
}
