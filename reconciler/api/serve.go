package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/routes"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
)

// requestIDLength is in characters of 5 bits each.
const requestIDLength = 16

// ServeHTTP implements http.Handler. It adds the request id, the access log and panic recovery.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := s.now()
	x := &exchange.Exchange{ResponseWriter: w, ID: givenID(r), Remote: s.addressOf(r)}
	if x.ID == "" {
		x.ID = s.ids(requestIDLength)
	}
	w.Header().Set(wire.HeaderRequestID, x.ID)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	r = exchange.With(r, x)
	defer func() {
		cause := recover()
		if cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // net/http compares it the same way
			s.log.LogAttrs(context.Background(), slog.LevelError, "request panicked", append(x.Attrs(r),
				slog.Any("error", cause), slog.String("stack", string(debug.Stack())))...)
			if x.Status == 0 {
				p := problem.Of(errors.New("it panicked"))
				x.Note(p)
				p.Write(x)
				cause = nil
			} else {
				cause = http.ErrAbortHandler // the client must see that the response is incomplete
			}
		}
		took := s.now().Sub(began)
		s.observer.RequestEnded(x.Route, x.Status, took)
		if x.Refusal != "" {
			s.observer.RequestRefused(x.Refusal)
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
func (s *server) logAccess(r *http.Request, x *exchange.Exchange, took time.Duration) {
	level := slog.LevelInfo
	switch {
	case x.Status >= 500 && x.Status != http.StatusServiceUnavailable && (x.Cause != nil || x.Route != routes.AgentRoute):
		level = slog.LevelError
	case r.URL.Path == readyPath && x.Status == http.StatusServiceUnavailable:
		level = slog.LevelWarn
	case !strings.HasPrefix(r.URL.Path, "/v1/") && r.Method != http.MethodPost:
		level = slog.LevelDebug // probes and pages
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	attrs := append(x.Attrs(r), slog.Int("status", x.Status), slog.Duration("took", took))
	if x.Cause != nil {
		attrs = append(attrs, slog.String("error", x.Cause.Error()))
	}
	s.log.LogAttrs(context.Background(), level, "request", attrs...)
}

// routes finds the handler. It turns the errors of http.ServeMux into problems.
func (s *server) routes(w http.ResponseWriter, r *http.Request) {
	handler, pattern := s.mux.Handler(r)
	x := exchange.Of(r.Context())
	x.Route = pattern
	s.observer.RequestBegan(pattern)
	if r.ContentLength > exchange.MaxBody {
		s.refuse(w, r, problem.TooLarge("the body", exchange.MaxBody))
		return
	}
	x.Receive(r, s.bodyTimeout)
	defer func() { x.Leave() }()
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
			x.About(id, "")
		case strings.Contains(pattern, " /v1/environments/{id}"):
			x.About("", id)
		}
		return
	}
	refusal := discard{header: http.Header{}}
	handler.ServeHTTP(&refusal, r)
	detail := "unknown route " + r.Method + " " + r.URL.Path + "; /openapi.json lists all routes"
	if allow := refusal.header.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		detail = r.URL.Path + " has no method " + r.Method + "; its methods are " + allow
	}
	s.refuse(w, r, problem.HTTP(refusal.status, detail))
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

// refuse sends an error and records its cause for the log.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p, x := problem.Of(err), exchange.Of(r.Context())
	x.Note(p)
	if p.Status == http.StatusRequestEntityTooLarge || x.IsPendingOfUnknown() {
		w.Header().Set("Connection", "close") // otherwise the server would first wait for the rest of the body
	}
	p.Write(w)
}
