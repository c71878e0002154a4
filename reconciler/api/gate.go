package api

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Gate authenticates browsers for pages, with the tokens, rate limits, scopes and environments of the API. Users of an
// OpenID Connect provider have scopes, as tokens do.
type Gate struct{ *server }

// Knows reports whether the API has an operation with an id for Permit.
func (g Gate) Knows(operationID string) bool { _, known := g.operations[operationID]; return known }

// Document returns the OpenAPI document of the API, as JSON.
func (g Gate) Document() ([]byte, error) { return g.document() }

// Gate returns the gate for browsers.
func (h Handler) Gate() Gate { return Gate(h) }

// Mount adds pages under a pattern of http.ServeMux. Their requests get a request id, and are counted and logged like
// all requests. The pages must ask the Gate for access. Call Mount before the handler serves requests.
func (h Handler) Mount(pattern string, pages http.Handler) { h.mux.Handle(pattern, pages) }

// Caller is a logged-in user with the rights of a token.
type Caller struct {
	token  access.Token
	server *server
}

// Name is the name of the token or of the user.
func (c Caller) Name() string { return c.token.Name }

// Enter returns the service for requests that touch only the target. Permit checks the operation. Errors: Forbidden.
func (c Caller) Enter(ctx context.Context, target rights.Target) (service.Service, error) {
	if err := rights.Check(ctx, c.token, target); err != nil {
		return nil, err
	}
	return c.server.service, nil
}

// Environments returns the environments that the token may touch. Errors: Unavailable.
func (c Caller) Environments(ctx context.Context) ([]sandbox.Environment, error) {
	all, err := c.server.service.ListEnvironments(ctx)
	return rights.Visible(c.token, all), err
}

// Tokens manages the tokens of the ledger. Check the target Everything and the operation before. The Gate has logged
// the caller in, so there are tokens.
func (c Caller) Tokens() service.Tokens { return c.server.access }

// Tenant returns the tenant of the token, nil for an operator's token.
func (c Caller) Tenant() *sandbox.Tenant { return c.token.Tenant() }

// Allows reports whether the token may touch an environment; "" means all environments.
func (c Caller) Allows(environmentID string) bool { return c.token.Allows(environmentID) }

// Permit checks that the token's scopes include the operation with this id. Errors: Forbidden.
func (c Caller) Permit(operationID string) error {
	needed, known := c.server.operations[operationID]
	if !known || !c.token.Permits(needed) {
		return rights.ScopeMissing(c.token, needed)
	}
	return nil
}

// LogIn starts a login with the text of a token. Errors: Unauthenticated, which counts as a failed authentication of
// the address; Forbidden for a token that may not read; CapacityExceeded, Unavailable.
func (g Gate) LogIn(r *http.Request, text string) (id string, caller Caller, err error) {
	return g.logIn(r, access.Login{
		Credential: access.HashOf(strings.TrimSpace(text)),
		Until:      g.now().Add(access.LoginLifetime),
	})
}

// LogInUser starts a login of a user of Config.Users, whom the caller has authenticated. Errors: see LogIn.
func (g Gate) LogInUser(r *http.Request, user string, until time.Time) (id string, caller Caller, err error) {
	return g.logIn(r, access.Login{Credential: g.users.Credential(), User: user, Until: until})
}

func (g Gate) logIn(r *http.Request, l access.Login) (id string, caller Caller, err error) {
	if _, caller, err = g.admit(r, l); err != nil {
		return "", Caller{}, err
	}
	if err := caller.Permit("list-environments"); err != nil {
		return "", Caller{}, err
	}
	if g.access == nil {
		return "", Caller{}, sandbox.Errorf(sandbox.Unavailable, "logging in: this API has no ledger for logins")
	}
	id, err = g.access.LogIn(r.Context(), l)
	return id, caller, err
}

// Limit counts a request without a login for the limit of its address. Errors: CapacityExceeded.
func (g Gate) Limit(r *http.Request) error {
	return g.perAddress.Take(g.addressOf(r), "requests from this address", g.now())
}

// NoteFailure counts an error that is Unauthenticated as a failed authentication of the address. It returns the error
// to show: CapacityExceeded after too many.
func (g Gate) NoteFailure(r *http.Request, err error) error {
	return g.noteFailure(g.addressOf(r), err)
}

// LoggedIn returns the caller of a login, and the request with the caller in its context. Errors: Unauthenticated when
// the login or its credential has ended; CapacityExceeded, Unavailable.
func (g Gate) LoggedIn(r *http.Request, id string) (*http.Request, Caller, error) {
	if g.access == nil {
		return nil, Caller{}, sandbox.Errorf(sandbox.Unauthenticated, "logging in: this API has no ledger for logins")
	}
	l, err := g.access.LoggedIn(r.Context(), id)
	if err != nil {
		err = g.NoteFailure(r, err)
		exchange.Of(r.Context()).Refusal = problem.Of(err).Reason // for the log: pages may redirect to the login instead
		return nil, Caller{}, err
	}
	return g.admit(r, l)
}

// LogOut ends a login. Errors: Unavailable.
func (g Gate) LogOut(ctx context.Context, id string) error {
	if g.access == nil {
		return nil
	}
	return g.access.LogOut(ctx, id)
}

// Secure reports whether the browser's connection is encrypted, to this server or to a trusted proxy.
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

// Fail records an error for the log, and returns the problem that is safe to show.
func (g Gate) Fail(r *http.Request, err error) (status int, header http.Header, title, detail string) {
	p := problem.Of(err)
	exchange.Of(r.Context()).Note(p)
	detail = p.Detail
	for _, f := range p.Fields {
		detail += "; " + f.Name + ": " + f.Problem
	}
	return p.Status, p.GetHeaders(), p.Title, detail
}

// admit returns the caller with a login, within the rate limits of the address and the caller.
func (g Gate) admit(r *http.Request, l access.Login) (*http.Request, Caller, error) {
	if err := g.Limit(r); err != nil {
		return nil, Caller{}, err
	}
	var (
		token access.Token
		err   error
	)
	if g.users != nil && l.Credential == g.users.Credential() && l.User != "" {
		token, err = g.users.TokenOf(l.User)
	} else {
		token, err = g.lookUp(r, l.Credential)
	}
	if token, err = g.accept(r, token, err); err != nil {
		return nil, Caller{}, err
	}
	return g.onBehalf(r, token.Source()), Caller{token: token, server: g.server}, nil
}

// IsUnauthenticated reports whether an error of the Gate means missing, wrong or expired credentials.
func IsUnauthenticated(err error) bool {
	return err != nil && problem.Of(err).Code == sandbox.Unauthenticated
}
