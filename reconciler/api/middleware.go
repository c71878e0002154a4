package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/connlimit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// requestIDLength is in characters of 5 bits each.
const requestIDLength = 16

// exchange is one request and its response.
type exchange struct {
	http.ResponseWriter
	id     string
	caller string // for the log: "token:<name>", "oidc:<user>" or "secret:<id>"
	token  string // the source of its token, "" without one
	remote string // the client address
	route  string // "" for an unknown path
	status int    // 0: not sent yet
	cause  error  // of a server error, for the log
	// refusal is the reason for a rejection by credentials or rate limits, "" for none.
	refusal sandbox.Reason
	body    *incoming // nil for none
	// lease and environment are the subjects of the request for the log, if known.
	lease, environment string
}

// about records the subject of the request: a lease or an environment.
func (x *exchange) about(lease, environment string) {
	if _, of, err := sandbox.ParseLeaseID(lease); err == nil {
		environment = of
	}
	x.lease, x.environment = cmp.Or(x.lease, lease), cmp.Or(x.environment, environment)
}

// known records that the sender of the request has a valid credential.
func (x *exchange) known(r *http.Request) {
	x.body.trust()
	connlimit.Authenticated(r.Context())
}

// note records a problem for the log and the observer, and adds the request id to the problem.
func (x *exchange) note(p *problem) {
	x.cause, p.RequestID = p.cause, x.id
	if p.Code == sandbox.Unauthenticated || p.Code == sandbox.Forbidden || p.Reason == sandbox.ReasonRateLimited {
		x.refusal = p.Reason
	}
}

func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= 200 {
		x.status = status
		x.reuse()
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
		x.reuse()
	}
	return x.ResponseWriter.Write(b)
}

// reuse keeps the connection after a response that begins when the request was read to its end: no rest of it can
// precede the next request.
func (x *exchange) reuse() {
	if x.body.isWhole() {
		x.Header().Del("Connection")
	}
}

// Unwrap gives http.ResponseController access to the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

type contextKey int

const (
	exchangeKey contextKey = iota
	tokenKey
)

func exchangeOf(ctx context.Context) *exchange {
	x, ok := ctx.Value(exchangeKey).(*exchange)
	if !ok {
		return &exchange{} // a handler called without the server, by a test
	}
	return x
}

// ServeHTTP implements http.Handler. It adds the request id, the access log and panic recovery.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := s.now()
	x := &exchange{ResponseWriter: w, id: givenID(r), remote: s.addressOf(r)}
	if x.id == "" {
		x.id = s.ids(requestIDLength)
	}
	w.Header().Set(wire.HeaderRequestID, x.id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey, x))
	defer func() {
		cause := recover()
		if cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // net/http compares it the same way
			s.log.LogAttrs(context.Background(), slog.LevelError, "request panicked", append(attrsOf(r, x),
				slog.Any("error", cause), slog.String("stack", string(debug.Stack())))...)
			if x.status == 0 {
				p := problemOf(errors.New("it panicked"))
				x.note(p)
				p.write(x)
				cause = nil
			} else {
				cause = http.ErrAbortHandler // the client must see that the response is incomplete
			}
		}
		took := s.now().Sub(began)
		s.observer.RequestEnded(x.route, x.status, took)
		if x.refusal != "" {
			s.observer.RequestRefused(x.refusal)
		}
		s.logAccess(r, x, took)
		if cause != nil {
			panic(cause)
		}
	}()
	s.routes(x, r)
}

// maxGivenID is the maximum length of a client's request id.
const maxGivenID = 64

// givenID returns the request id of a client or a proxy, so that all logs use the same id. It returns "" for a missing
// or unsafe id.
func givenID(r *http.Request) string {
	id := r.Header.Get(wire.HeaderRequestID)
	isPart := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	if len(id) > maxGivenID || strings.ContainsFunc(id, func(c rune) bool { return !isPart(c) }) {
		return ""
	}
	return id
}

// logAccess logs one line per request. Query strings hold no secrets; headers are not logged.
func (s *server) logAccess(r *http.Request, x *exchange, took time.Duration) {
	level := slog.LevelInfo
	switch {
	case x.status >= 500 && x.status != http.StatusServiceUnavailable && (x.cause != nil || x.route != agentRoute):
		level = slog.LevelError
	case r.URL.Path == readyPath && x.status == http.StatusServiceUnavailable:
		level = slog.LevelWarn
	case !strings.HasPrefix(r.URL.Path, "/v1/") && r.Method != http.MethodPost:
		level = slog.LevelDebug // probes and pages
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	attrs := append(attrsOf(r, x), slog.Int("status", x.status), slog.Duration("took", took))
	if x.cause != nil {
		attrs = append(attrs, slog.String("error", x.cause.Error()))
	}
	s.log.LogAttrs(context.Background(), level, "request", attrs...)
}

// attrsOf returns the attributes of each log line about a request.
func attrsOf(r *http.Request, x *exchange) []slog.Attr {
	attrs := make([]slog.Attr, 0, 10) // with room for the caller's attributes
	attrs = append(attrs, slog.String("method", r.Method), slog.String("path", r.URL.Path))
	if x.lease != "" {
		attrs = append(attrs, slog.String("lease", x.lease))
	}
	if x.environment != "" {
		attrs = append(attrs, slog.String("environment", x.environment))
	}
	return append(attrs, slog.String("request_id", x.id), slog.String("caller", x.caller), slog.String("remote", x.remote))
}

// routes finds the handler. It turns the errors of http.ServeMux into problems.
func (s *server) routes(w http.ResponseWriter, r *http.Request) {
	handler, pattern := s.mux.Handler(r)
	x := exchangeOf(r.Context())
	x.route = pattern
	s.observer.RequestBegan(pattern)
	if r.ContentLength > maxStream {
		s.refuse(w, r, tooLargeProblem("the body", maxStream))
		return
	}
	x.receive(r, s.bodyTimeout)
	defer func() { x.body.leave() }()
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		if err := s.limitAddress(r.URL.Path, s.addressOf(r)); err != nil {
			s.refuse(w, r, err)
			return
		}
	}
	if needsToken(r.URL.Path) {
		var ok bool
		if r, ok = s.authenticate(w, r, pattern); !ok {
			return
		}
	}
	if pattern != "" {
		s.mux.ServeHTTP(w, r)
		switch id := r.PathValue("id"); { // also if the request is rejected before the service
		case strings.Contains(pattern, "/v1/leases/{id}"):
			x.about(id, "")
		case strings.Contains(pattern, " /v1/environments/{id}"):
			x.about("", id)
		}
		return
	}
	refusal := discard{header: http.Header{}}
	handler.ServeHTTP(&refusal, r)
	if allow := refusal.header.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
	}
	s.refuse(w, r,
		httpProblem(refusal.status, "unknown route "+r.Method+" "+r.URL.Path+"; /openapi.json lists all routes"))
}

// needsToken reports whether a route needs a token. Conditions may be signed instead, and probes are public.
func needsToken(path string) bool {
	return strings.HasPrefix(path, "/v1/") && path != conditionsPath || path == metricsPath
}

// discard records the status and the headers and drops the body.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

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
		s.refuse(w, r, scopeMissing(token, needed))
		return nil, false
	}
	return r.WithContext(context.WithValue(r.Context(), tokenKey, token)), true
}

// onBehalf records the caller for the log and for events.
func (s *server) onBehalf(r *http.Request, caller string) *http.Request {
	exchangeOf(r.Context()).caller = caller
	return r.WithContext(sandbox.WithActor(r.Context(), sandbox.Actor{Name: caller, Address: s.addressOf(r)}))
}

// tokenOf returns the token of a request. Errors: Unauthenticated; CapacityExceeded beyond the rate limit of the token
// or the failure limit of the address; Unavailable when the ledger is unreachable.
func (s *server) tokenOf(r *http.Request) (Token, error) {
	text := bearer(r)
	if text == "" {
		return Token{}, s.unauthenticated(sandbox.ReasonTokenMissing,
			"missing token: send the header Authorization: Bearer <token>", nil)
	}
	token, err := s.lookUp(r, access.HashOf(text))
	return s.accept(r, token, err)
}

// accept counts the result of an authentication for the limits of the address and of the token.
func (s *server) accept(r *http.Request, token Token, err error) (Token, error) {
	if err != nil {
		return Token{}, s.noteFailure(s.addressOf(r), err)
	}
	x := exchangeOf(r.Context())
	x.known(r)
	x.token = token.Source()
	if r.URL.Path == conditionsPath {
		return token, nil
	}
	return token, s.perToken.take(x.token, "requests with this token", s.now())
}

// lookUp finds a token in the token file, and then in the ledger.
func (s *server) lookUp(r *http.Request, hash access.Hash) (Token, error) {
	if token, ok := s.written.Load().tokens.Lookup(hash); ok {
		if token.Expired(s.now()) {
			return Token{}, s.unauthenticated(sandbox.ReasonTokenExpired, "token "+token.Name+" has expired", nil)
		}
		return token, nil
	}
	if s.access == nil {
		return Token{}, s.unauthenticated(sandbox.ReasonTokenUnknown, wrongToken, nil)
	}
	token, err := s.access.Authenticate(r.Context(), hash)
	if sandbox.CodeOf(err) == sandbox.Unauthenticated {
		return Token{}, s.unauthenticated(sandbox.ReasonOf(err), err.Error(), nil)
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
	// wrongSignature is the response to every problem of a signed message.
	wrongSignature = "the credentials are missing or wrong"
)

// unauthenticated is the response to missing and wrong credentials. The log gets the reason.
func (s *server) unauthenticated(reason sandbox.Reason, detail string, why error) *problem {
	return newProblem(sandbox.Unauthenticated, reason, detail, nil, why)
}

// refuse sends an error and records its cause for the log.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p, x := problemOf(err), exchangeOf(r.Context())
	x.note(p)
	if p.Status == http.StatusRequestEntityTooLarge || x.body.isPendingOfUnknown() {
		w.Header().Set("Connection", "close") // otherwise the server would first wait for the rest of the body
	}
	p.write(w)
}
