package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// status is the one place where a code becomes an HTTP status; the package comment shows it as a table.
var status = map[sandbox.Code]struct {
	http  int
	title string
}{
	sandbox.Invalid:              {http.StatusUnprocessableEntity, "The request is not valid"},
	sandbox.NotFound:             {http.StatusNotFound, "There is no such object"},
	sandbox.Conflict:             {http.StatusConflict, "The object's state forbids the request"},
	sandbox.LeaseEnded:           {http.StatusConflict, "The lease has ended"},
	sandbox.EnvironmentEnded:     {http.StatusConflict, "The environment has ended"},
	sandbox.BudgetExceeded:       {http.StatusPaymentRequired, "The budget does not cover the lease"},
	sandbox.CapacityExceeded:     {http.StatusTooManyRequests, "There is no room now"},
	sandbox.EventSequenceExpired: {http.StatusGone, "The events are no longer retained"},
	sandbox.OutputExpired:        {http.StatusGone, "The output is no longer kept"},
	sandbox.Unauthenticated:      {http.StatusUnauthorized, "The credentials are missing or wrong"},
	sandbox.Forbidden:            {http.StatusForbidden, "The credentials do not allow this"},
	sandbox.Unavailable:          {http.StatusServiceUnavailable, "The service, ledger or backend is out of reach"},
	sandbox.UnknownOutcome:       {http.StatusBadGateway, "The outcome is not known"},
	sandbox.Timeout:              {http.StatusGatewayTimeout, "The operation took too long"},
	sandbox.Failed:               {http.StatusInternalServerError, "The operation failed"},
	sandbox.Internal:             {http.StatusInternalServerError, "Internal error"},
}

// retryAfter is what a refused but repeatable request is told to wait, in seconds.
const retryAfter = "1"

// problem is an error on its way to the client. It implements huma.StatusError, huma.HeadersError
// and huma.ContentTypeFilter.
type problem struct {
	wire.Problem
	// cause is logged with a server error; it is never sent.
	cause error
	// retryAfter is in seconds; "" means the default.
	retryAfter string
}

func (p *problem) Error() string             { return p.Detail }
func (p *problem) Unwrap() error             { return p.cause }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return wire.ProblemJSON }

func (p *problem) GetHeaders() http.Header {
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return http.Header{"Retry-After": {cmp.Or(p.retryAfter, retryAfter)}}
	case http.StatusUnauthorized:
		return http.Header{"Www-Authenticate": {`Bearer realm="reconciler"`}}
	default:
		return nil
	}
}

// problemOf turns an error into a problem. What carries no code is a defect or the end of a
// request's time; its text stays in the log.
func problemOf(err error) *problem {
	var (
		p        *problem
		e        *sandbox.Error
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &tooLarge):
		return tooLargeProblem("the body", tooLarge.Limit)
	case errors.As(err, &e):
		return newProblem(e.Code, e.Reason, e.Message, e.Fields, err)
	case errors.Is(err, context.DeadlineExceeded):
		return newProblem(sandbox.Timeout, "", "the operation did not end in time; retry", nil, err)
	case errors.Is(err, context.Canceled):
		return newProblem(sandbox.UnknownOutcome, "", "the request was cancelled while it was carried out", nil, err)
	default:
		return newProblem(sandbox.Internal, "", "internal error; the server's log says more under the id of this request", nil, err)
	}
}

func newProblem(code sandbox.Code, reason sandbox.Reason, detail string, fields []sandbox.Field, cause error) *problem {
	s, known := status[code]
	if !known {
		s = status[sandbox.Internal]
	}
	return &problem{cause: cause, Problem: wire.Problem{
		Type: "urn:sandbox-lease:problem:" + string(code), Title: s.title, Status: s.http,
		Detail: detail, Code: code, Reason: reason, Fields: fields,
	}}
}

// httpProblem is a refusal by the protocol itself, before anything was asked of the service.
func httpProblem(httpStatus int, detail string) *problem {
	code := sandbox.Invalid
	switch {
	case httpStatus == http.StatusNotFound:
		code = sandbox.NotFound
	case httpStatus == http.StatusRequestTimeout:
		code = sandbox.Timeout
	case httpStatus >= 500:
		code = sandbox.Internal
	}
	p := newProblem(code, "", detail, nil, nil)
	p.Title, p.Status = http.StatusText(httpStatus), httpStatus
	return p
}

// write sends the problem. Nothing may have been sent before.
func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p.Problem)
	if err != nil { // strings and numbers always have a JSON form
		panic(err)
	}
	h := w.Header()
	for name, values := range p.GetHeaders() {
		h[name] = values
	}
	h.Set("Content-Type", wire.ProblemJSON)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// plainProblems gives the errors that huma finds in a request the same form as all others, without
// the values that huma repeats: they may be secrets.
func plainProblems(ctx huma.Context, _ string, v any) (any, error) {
	switch e := v.(type) {
	case *problem:
		return e.Problem, nil
	case *huma.ErrorModel:
		p := httpProblem(e.Status, e.Detail)
		for _, d := range e.Errors {
			_, name, nested := strings.Cut(d.Location, ".") // "query.limit", "body"
			if !nested {
				name = d.Location
			}
			p.Fields = append(p.Fields, sandbox.Field{Name: name, Problem: d.Message})
		}
		exchangeOf(ctx.Context()).note(p)
		return p.Problem, nil
	default:
		return v, nil
	}
}
