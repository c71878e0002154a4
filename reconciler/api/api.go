package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/ratelimit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/routes"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Registry holds the tokens that can change at run time.
type Registry interface {
	service.Tokens
	// Authenticate returns the token with the hash. Errors: Unauthenticated, with a text that is safe for the sender;
	// Unavailable.
	Authenticate(ctx context.Context, token access.Hash) (access.Token, error)
	// LogIn starts a login and returns its id. LoggedIn returns a login. LogOut ends a login. See Gate.
	// Errors: Unauthenticated by LoggedIn; Unavailable.
	LogIn(ctx context.Context, l access.Login) (id string, err error)
	LoggedIn(ctx context.Context, id string) (access.Login, error)
	LogOut(ctx context.Context, id string) error
}

// Users are the users of an OpenID Connect provider.
type Users interface {
	// Credential names the provider in logins.
	Credential() access.Hash
	// TokenOf returns the rights of the user of a login. Errors: Unauthenticated for a user who no longer has any.
	TokenOf(user string) (access.Token, error)
}

// Config configures a handler.
type Config struct {
	Service service.Service
	// Connector connects to agents; nil means that the API rejects requests to agents.
	Connector service.Connector
	// Tokens and Secrets are the credentials in the operator's files.
	Tokens  []access.Token
	Secrets webhook.Secrets
	// Access holds and manages the tokens of the ledger; nil means that there are none.
	Access Registry
	// Users can log in, in addition to tokens; nil means no users.
	Users Users
	// TrustedProxies are networks of proxies whose X-Forwarded-For header is trusted; nil means none.
	TrustedProxies []net.IPNet
	// Limits are the rate limits of callers; the zero value means no limits.
	Limits Limits
	// Version appears in the OpenAPI document.
	Version string
	// Ready reports whether the service can work; nil means always. Its error is logged, and not sent.
	Ready func(ctx context.Context) error
	// Metrics serves GET /metrics for tokens without a limit to environments; nil means no metrics.
	Metrics http.Handler
	// Observer receives each request; nil means none.
	Observer Observer
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// IDs issues request ids; nil means sandbox.RandomIDs.
	IDs    sandbox.IDs
	Logger *slog.Logger // nil means none
	// MaxConditions is how many conditions may wait for the ledger at the same time; the API rejects more with 429. Zero
	// means 1024.
	MaxConditions int
	// ConditionTimeout limits the transaction of one condition. Zero means 10 s.
	ConditionTimeout time.Duration
	// BodyTimeout limits the time to receive the body of a request. Without a valid credential, it limits the whole body;
	// with one, it limits each pause. Zero means 20 s.
	BodyTimeout time.Duration
	// KeepAlive is how long a stream may be silent before the API sends an empty line. Zero means 15 s.
	KeepAlive time.Duration
	// AgentIdle is how long a connection to an agent may carry no bytes before it is closed. Zero means 10 minutes.
	AgentIdle time.Duration
	// StreamTimeout is how long the reader of a stream may leave a line unread before the API disconnects it. Zero means
	// 30 s.
	StreamTimeout time.Duration
}

// Observer receives requests for metrics. Its methods are safe for concurrent use and do not block. No argument comes
// from a client, so metrics labels stay bounded.
type Observer interface {
	// RequestBegan and RequestEnded report a request for a route, such as "GET /v1/leases/{id}", or "" for an unknown
	// path. The status is 0 if nothing was sent. The duration of a stream lasts until its end.
	RequestBegan(route string)
	RequestEnded(route string, status int, took time.Duration)
	// RequestRefused reports a request that was rejected for its credentials or by their limits.
	RequestRefused(reason sandbox.Reason)
	// ConditionReceived reports a condition: stored with a status, stored as a duplicate, or rejected with an error code.
	ConditionReceived(verdict string)
	// ConditionMisspelled reports a stored condition whose type is close to one on which leases end.
	ConditionMisspelled()
}

type nopObserver struct{}

func (nopObserver) RequestBegan(string)                     {}
func (nopObserver) RequestEnded(string, int, time.Duration) {}
func (nopObserver) RequestRefused(sandbox.Reason)           {}
func (nopObserver) ConditionReceived(string)                {}
func (nopObserver) ConditionMisspelled()                    {}

// Duplicate is the verdict for a condition that was received before.
const Duplicate = "duplicate"

// written holds the credentials in the operator's files.
type written struct {
	tokens  access.Tokens
	secrets webhook.Secrets
}

// Handler serves the API.
type Handler struct{ *server }

// Accept replaces the tokens and secrets of the operator's files.
func (h Handler) Accept(tokens []access.Token, secrets webhook.Secrets) {
	h.written.Store(&written{tokens, secrets})
}

// server holds what all requests share. Only the credentials in written change.
type server struct {
	service          service.Service
	written          atomic.Pointer[written]
	access           Registry
	users            Users
	proxies          []net.IPNet
	perToken         *ratelimit.Limiter
	perAddress       *ratelimit.Limiter
	failures         *ratelimit.Limiter
	scopes           map[string]sandbox.Scope // required scope by route
	operations       map[string]sandbox.Scope // required scope by operation id
	document         func() ([]byte, error)   // OpenAPI, as JSON
	readiness        *readiness
	metrics          http.Handler
	observer         Observer
	now              func() time.Time
	ids              sandbox.IDs
	log              *slog.Logger
	mux              *http.ServeMux
	conditionSlots   chan struct{}
	conditionTimeout time.Duration
	bodyTimeout      time.Duration
}

// New returns the handler. Errors: Invalid.
func New(c Config) (Handler, error) {
	if c.Service == nil || len(c.Tokens) == 0 && c.Access == nil {
		return Handler{}, sandbox.Errorf(sandbox.Invalid,
			"the HTTP API needs a service, and bearer tokens in a file or in a ledger")
	}
	s := &server{
		service: c.Service, access: c.Access, users: c.Users, proxies: c.TrustedProxies,
		perToken:   ratelimit.New(c.Limits.PerToken, int(max(1, 2*c.Limits.PerToken))),
		perAddress: ratelimit.New(c.Limits.PerAddress, int(max(1, 2*c.Limits.PerAddress))),
		failures:   ratelimit.New(float64(c.Limits.Failures)/60, c.Limits.Failures),
		metrics:    c.Metrics, observer: c.Observer,
		now: c.Now, ids: c.IDs, log: c.Logger, mux: http.NewServeMux(),
		conditionTimeout: c.ConditionTimeout, bodyTimeout: c.BodyTimeout,
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.ids == nil {
		s.ids = sandbox.RandomIDs
	}
	if s.observer == nil {
		s.observer = nopObserver{}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.conditionTimeout == 0 {
		s.conditionTimeout = 10 * time.Second
	}
	if s.bodyTimeout == 0 {
		s.bodyTimeout = 20 * time.Second
	}
	if c.MaxConditions == 0 {
		c.MaxConditions = 1024
	}
	s.readiness = &readiness{check: c.Ready, now: s.now}
	s.conditionSlots = make(chan struct{}, c.MaxConditions)
	h := Handler{s}
	h.Accept(c.Tokens, c.Secrets)
	return h, s.register(c)
}

// register adds every route and the OpenAPI document.
func (s *server) register(c Config) error {
	doc := document.New(c.Version, s.service, s.mux, s.refuse)
	s.registerConditions(doc)
	operations := routes.Routes{
		Connector: c.Connector, Charge: s.chargeItems, AgentIdle: cmp.Or(c.AgentIdle, 10*time.Minute),
		Stream: stream.Config{
			KeepAlive: cmp.Or(c.KeepAlive, 15*time.Second), Timeout: cmp.Or(c.StreamTimeout, 30*time.Second),
		},
	}
	if s.access != nil {
		operations.Tokens = s.access
	}
	operations.Register(doc)
	s.registerProbes(doc)
	s.registerMetrics(doc)
	s.scopes, s.operations = doc.Scopes, doc.Operations
	var err error
	if s.document, err = doc.Finish(); err != nil {
		return fmt.Errorf("registering the routes: %w", err)
	}
	s.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, r *http.Request) {
		text, err := s.document()
		if err != nil {
			s.refuse(w, r, fmt.Errorf("writing the OpenAPI document: %w", err))
			return
		}
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(text) // the client may have disconnected
	})
	return nil
}
