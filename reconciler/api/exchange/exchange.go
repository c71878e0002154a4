// Package exchange describes one request and its response for the log: the sender, the subject and the result. It also
// limits the time to receive the request's body.
package exchange

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/connlimit"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// MaxBody limits a streamed body, in bytes: files, archives, standard input.
const MaxBody = 64 << 30

// Exchange is one request and its response.
type Exchange struct {
	http.ResponseWriter
	// ID is the id of the request.
	ID string
	// Caller is for the log: "token:<name>", "oidc:<user>" or "secret:<id>".
	Caller string
	// Token is the source of the caller's token, "" without one.
	Token string
	// Remote is the client's address, Route the pattern of the request, "" for an unknown path.
	Remote, Route string
	// Status is the status that was sent, 0 for none yet.
	Status int
	// Cause is the cause of a server error, for the log.
	Cause error
	// Refusal is the reason for a rejection by credentials or rate limits, "" for none.
	Refusal sandbox.Reason
	// Lease and Environment are the subjects of the request for the log, if known.
	Lease, Environment string

	body *incoming // nil for none
}

// About records the subject of the request: a lease or an environment.
func (x *Exchange) About(lease, environment string) {
	if _, of, err := sandbox.ParseLeaseID(lease); err == nil {
		environment = of
	}
	x.Lease, x.Environment = cmp.Or(x.Lease, lease), cmp.Or(x.Environment, environment)
}

// Authenticated records that the sender of the request has a valid credential.
func (x *Exchange) Authenticated(r *http.Request) {
	x.body.trust()
	connlimit.Authenticated(r.Context())
}

// Note records a problem for the log and the observer, and adds the request id to the problem.
func (x *Exchange) Note(p *problem.Problem) {
	x.Cause, p.RequestID = p.Cause, x.ID
	if p.Code == sandbox.Unauthenticated || p.Code == sandbox.Forbidden || p.Reason == sandbox.ReasonRateLimited {
		x.Refusal = p.Reason
	}
}

// WriteHeader implements http.ResponseWriter.
func (x *Exchange) WriteHeader(status int) {
	if x.Status == 0 && status >= 200 {
		x.Status = status
		x.reuse()
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (x *Exchange) Write(b []byte) (int, error) {
	if x.Status == 0 {
		x.Status = http.StatusOK
		x.reuse()
	}
	return x.ResponseWriter.Write(b)
}

// reuse keeps the connection if the request was read to its end before the response begins: no rest of it can precede
// the next request.
func (x *Exchange) reuse() {
	if x.body.isWhole() {
		x.Header().Del("Connection")
	}
}

// Unwrap gives http.ResponseController access to the connection.
func (x *Exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Wait lets the sender of the body pause without limit.
func (x *Exchange) Wait() { x.body.wait() }

// Leave is called when the response was sent. The server then drains the rest of the body to reuse the connection, and
// a stalled sender must not block it.
func (x *Exchange) Leave() { x.body.leave() }

// IsPendingOfUnknown reports whether the body of an unknown sender was not read to its end.
func (x *Exchange) IsPendingOfUnknown() bool { return x.body.isPendingOfUnknown() }

// Attrs returns the attributes of each log line about a request.
func (x *Exchange) Attrs(r *http.Request) []slog.Attr {
	attrs := make([]slog.Attr, 0, 10) // with room for the caller's attributes
	attrs = append(attrs, slog.String("method", r.Method), slog.String("path", r.URL.Path))
	if x.Lease != "" {
		attrs = append(attrs, slog.String("lease", x.Lease))
	}
	if x.Environment != "" {
		attrs = append(attrs, slog.String("environment", x.Environment))
	}
	return append(attrs, slog.String("request_id", x.ID), slog.String("caller", x.Caller), slog.String("remote", x.Remote))
}

type key struct{}

// With returns a request with the exchange in its context.
func With(r *http.Request, x *Exchange) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), key{}, x))
}

// Of returns the exchange of a request's context. It is never nil.
func Of(ctx context.Context) *Exchange {
	x, ok := ctx.Value(key{}).(*Exchange)
	if !ok {
		return &Exchange{} // a handler called without the server, by a test
	}
	return x
}
