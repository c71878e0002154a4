package api

import (
	"net/http"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// authenticate accepts a request whose bearer token is valid and has the scope of the route. The target is checked
// after the input is decoded.
func (s *server) authenticate(w http.ResponseWriter, r *http.Request, route string) (*http.Request, bool) {
	token, err := s.tokenOf(r)
	if err != nil {
		s.refuse(w, r, err)
		return nil, false
	}
	r = s.onBehalf(r, token.Source())
	if needed, declared := s.scopes[route]; route != "" && (!declared || !token.Permits(needed)) {
		s.refuse(w, r, rights.ScopeMissing(token, needed))
		return nil, false
	}
	return r.WithContext(rights.With(r.Context(), token)), true
}

// onBehalf records the caller for the log and for events.
func (s *server) onBehalf(r *http.Request, caller string) *http.Request {
	exchange.Of(r.Context()).Caller = caller
	return r.WithContext(sandbox.WithActor(r.Context(), sandbox.Actor{Name: caller, Address: s.addressOf(r)}))
}

// tokenOf returns the token of a request. Errors: Unauthenticated; CapacityExceeded beyond the rate limit of the token
// or the failure limit of the address; Unavailable when the ledger is unreachable.
func (s *server) tokenOf(r *http.Request) (access.Token, error) {
	text := bearer(r)
	if text == "" {
		return access.Token{}, s.unauthenticated(sandbox.ReasonTokenMissing,
			"missing token: send the header Authorization: Bearer <token>", nil)
	}
	token, err := s.lookUp(r, access.HashOf(text))
	return s.accept(r, token, err)
}

// accept counts the result of an authentication for the limits of the address and of the token.
func (s *server) accept(r *http.Request, token access.Token, err error) (access.Token, error) {
	if err != nil {
		return access.Token{}, s.noteFailure(s.addressOf(r), err)
	}
	x := exchange.Of(r.Context())
	x.Authenticated(r)
	x.Token = token.Source()
	if r.URL.Path == conditionsPath {
		return token, nil
	}
	return token, s.perToken.Take(x.Token, "requests with this token", s.now())
}

// lookUp finds a token in the token file, and then in the ledger.
func (s *server) lookUp(r *http.Request, hash access.Hash) (access.Token, error) {
	if token, ok := s.written.Load().tokens.Lookup(hash); ok {
		if token.Expired(s.now()) {
			return access.Token{}, s.unauthenticated(sandbox.ReasonTokenExpired, "token "+token.Name+" has expired", nil)
		}
		return token, nil
	}
	if s.access == nil {
		return access.Token{}, s.unauthenticated(sandbox.ReasonTokenUnknown, wrongToken, nil)
	}
	token, err := s.access.Authenticate(r.Context(), hash)
	if sandbox.CodeOf(err) == sandbox.Unauthenticated {
		return access.Token{}, s.unauthenticated(sandbox.ReasonOf(err), err.Error(), nil)
	}
	return token, err
}

// bearer returns the bearer token of a request, "" for none or several.
func bearer(r *http.Request) string {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

const (
	failedTooOften = "failed authentications from this address"
	wrongToken     = "unknown token"
	// noCredential is the response to a condition with neither signature nor token.
	noCredential = "missing credentials: sign the message with a webhook secret, and send the headers webhook-id, " +
		"webhook-timestamp and webhook-signature; or send the header Authorization: Bearer <token>"
	// wrongSignature is the response to every problem of a signed message. Only the log says which.
	wrongSignature = "the credentials are missing or wrong"
)

// unauthenticated is the response to missing and wrong credentials. The log gets the reason.
func (s *server) unauthenticated(reason sandbox.Reason, detail string, why error) *problem.Problem {
	return problem.New(sandbox.Unauthenticated, reason, detail, nil, why)
}
