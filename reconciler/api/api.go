package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Token is a bearer token that the API accepts; webhook.LoadTokens reads a file of them.
type Token = webhook.Token

// Registry keeps the tokens that may change while the API is served.
type Registry interface {
	service.Tokens
	// Authenticate returns whose the token is whose text has the hash. Errors: Unauthenticated, whose text may be
	// told to who sent the token; Unavailable.
	Authenticate(ctx context.Context, token webhook.Hash) (Token, error)
	// LogIn begins a log-in with a token and returns its id, LoggedIn the token of a log-in, and LogOut ends it;
	// see Gate. Errors: Unauthenticated of LoggedIn; Unavailable.
	LogIn(ctx context.Context, token webhook.Hash) (id string, err error)
	LoggedIn(ctx context.Context, id string) (webhook.Hash, error)
	LogOut(ctx context.Context, id string) error
}

// Config says what a handler serves, and to whom.
type Config struct {
	Service service.Service
	// Tokens and Secrets are the accepted credentials that the operator wrote down.
	Tokens  []Token
	Secrets webhook.Secrets
	// Access knows the other tokens, and lets administrators manage them. Nil means that there are no others.
	Access Registry
	// TrustedProxies are the networks of proxies whose X-Forwarded-For is believed; nil means none.
	TrustedProxies []net.IPNet
	// Limits bound what callers may ask for; the zero value does not.
	Limits Limits
	// Version is shown in the OpenAPI document.
	Version string
	// Ready says whether the service can work; nil means always. Its error is logged, and not shown.
	Ready func(ctx context.Context) error
	// Metrics answers GET /metrics, to tokens that are limited to no environments; nil means that there are none.
	Metrics http.Handler
	// Observer gets each request; nil: none.
	Observer Observer
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// IDs issues request ids; nil means sandbox.RandomIDs.
	IDs    sandbox.IDs
	Logger *slog.Logger // nil means none
	// MaxConditions is how many conditions may wait for the ledger at once; more are told to come
	// back (429). Zero means 1024.
	MaxConditions int
	// ConditionTimeout bounds one condition's transaction. Zero means 10 s.
	ConditionTimeout time.Duration
	// BodyTimeout is how long the whole body of a request may take whose sender has not shown a valid credential, and how
	// long a sender that has shown one may pause within it. Zero means 20 s.
	BodyTimeout time.Duration
	// KeepAlive is how long a stream may be silent before an empty line is sent. Zero means 15 s.
	KeepAlive time.Duration
	// StreamTimeout is how long a reader of a stream may leave a line unread before it is cut off.
	// Zero means 30 s.
	StreamTimeout time.Duration
}

// Observer is told of what is asked, for metrics. Its methods are safe for concurrent use and return at once.
// Nothing that they are given is named by a client.
type Observer interface {
	// RequestBegan and RequestEnded: a request for a route, such as "GET /v1/leases/{id}" ("" where there is none), was answered
	// with a status, 0 where nothing was sent, and took so long, streams until their end.
	RequestBegan(route string)
	RequestEnded(route string, status int, took time.Duration)
	// RequestRefused: a request did not pass for this reason.
	RequestRefused(reason sandbox.Reason)
	// ConditionReceived: a condition was stored, with this status or as a duplicate, or not, for an error of this code.
	ConditionReceived(verdict string)
}

type nobody struct{}

func (nobody) RequestBegan(string)                     {}
func (nobody) RequestEnded(string, int, time.Duration) {}
func (nobody) RequestRefused(sandbox.Reason)           {}
func (nobody) ConditionReceived(string)                {}

// Duplicate is the verdict on a condition that was received before.
const Duplicate = "duplicate"

// written are the credentials that the operator wrote down.
type written struct {
	tokens  webhook.Tokens
	secrets webhook.Secrets
}

// Handler serves the API.
type Handler struct{ *server }

// Accept has the API accept these tokens and secrets in place of those it was made with.
func (h Handler) Accept(tokens []Token, secrets webhook.Secrets) {
	h.written.Store(&written{tokens, secrets})
}

// server holds what all requests share. Its fields do not change, but for what is written.
type server struct {
	service          service.Service
	written          atomic.Pointer[written]
	access           Registry
	proxies          []net.IPNet
	perToken         *limiter
	perAddress       *limiter
	failures         *limiter
	scopes           map[string]sandbox.Scope // by route: what its caller needs
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
	keepAlive        time.Duration
	streamTimeout    time.Duration
}

// New makes the handler. Errors: Invalid.
func New(c Config) (Handler, error) {
	if c.Service == nil || len(c.Tokens) == 0 && c.Access == nil {
		return Handler{}, sandbox.Errorf(sandbox.Invalid, "the HTTP API needs a service, and bearer tokens or a ledger of them")
	}
	s := &server{
		service: c.Service, access: c.Access, proxies: c.TrustedProxies,
		perToken:   newLimiter(c.Limits.PerToken, int(max(1, 2*c.Limits.PerToken))),
		perAddress: newLimiter(c.Limits.PerAddress, int(max(1, 2*c.Limits.PerAddress))),
		failures:   newLimiter(float64(c.Limits.Failures)/60, c.Limits.Failures),
		scopes:     map[string]sandbox.Scope{},
		metrics:    c.Metrics, observer: c.Observer,
		now: c.Now, ids: c.IDs, log: c.Logger, mux: http.NewServeMux(),
		conditionTimeout: c.ConditionTimeout, bodyTimeout: c.BodyTimeout, keepAlive: c.KeepAlive, streamTimeout: c.StreamTimeout,
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.ids == nil {
		s.ids = sandbox.RandomIDs
	}
	if s.observer == nil {
		s.observer = nobody{}
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
	if s.keepAlive == 0 {
		s.keepAlive = 15 * time.Second
	}
	if s.streamTimeout == 0 {
		s.streamTimeout = 30 * time.Second
	}
	if c.MaxConditions == 0 {
		c.MaxConditions = 1024
	}
	s.readiness = &readiness{check: c.Ready, now: s.now}
	s.conditionSlots = make(chan struct{}, c.MaxConditions)
	h := Handler{s}
	h.Accept(c.Tokens, c.Secrets)
	return h, s.register(c.Version)
}

// register adds every route and the document that describes them.
func (s *server) register(version string) error {
	doc := newDocument(s, version)
	s.registerConditions(doc)
	s.registerEnvironments(doc)
	s.registerLeases(doc)
	s.registerExec(doc)
	s.registerExecs(doc)
	s.registerSessions(doc)
	s.registerProcesses(doc)
	s.registerFiles(doc)
	s.registerRuns(doc)
	s.registerEvents(doc)
	s.registerReports(doc)
	s.registerStates(doc)
	s.registerMaintenance(doc)
	s.registerProbes(doc)
	s.registerMetrics(doc)
	s.registerTokens(doc)
	openapi, err := doc.finish()
	if err != nil {
		return fmt.Errorf("describe the API: %w", err)
	}
	s.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(openapi) // a client that has gone needs no answer
	})
	return nil
}

// writeJSON sends a value that always has a JSON form.
func writeJSON(w http.ResponseWriter, v any) { writeStatusJSON(w, http.StatusOK, v) }

func writeStatusJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone needs no answer
}
