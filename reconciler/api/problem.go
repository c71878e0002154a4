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

// status is the only place that maps a code to an HTTP status. The package comment has it as a table.
var status = map[sandbox.Code]struct {
	http  int
	title string
}{
	sandbox.Invalid:              {http.StatusUnprocessableEntity, "The request is invalid"},
	sandbox.NotFound:             {http.StatusNotFound, "The object does not exist"},
	sandbox.Conflict:             {http.StatusConflict, "The object's state forbids the request"},
	sandbox.LeaseEnded:           {http.StatusConflict, "The lease has ended"},
	sandbox.EnvironmentEnded:     {http.StatusConflict, "The environment has ended"},
	sandbox.BudgetExceeded:       {http.StatusPaymentRequired, "The budget does not cover the lease"},
	sandbox.CapacityExceeded:     {http.StatusTooManyRequests, "The capacity is exhausted"},
	sandbox.EventSequenceExpired: {http.StatusGone, "The events are no longer retained"},
	sandbox.OutputExpired:        {http.StatusGone, "The output is no longer kept"},
	sandbox.Unauthenticated:      {http.StatusUnauthorized, "The credentials are missing or wrong"},
	sandbox.Forbidden:            {http.StatusForbidden, "The credentials do not allow this"},
	sandbox.Unavailable:          {http.StatusServiceUnavailable, "The service, ledger or backend is unavailable"},
	sandbox.UnknownOutcome:       {http.StatusBadGateway, "The outcome is unknown"},
	sandbox.Timeout:              {http.StatusGatewayTimeout, "The operation took too long"},
	sandbox.Failed:               {http.StatusInternalServerError, "The operation failed"},
	sandbox.Internal:             {http.StatusInternalServerError, "Internal error"},
}

// retryAfter is the default Retry-After of a retryable error, in seconds.
const retryAfter = "1"

// problem is the response to a failed request. It implements huma.StatusError, huma.HeadersError
// and huma.ContentTypeFilter.
type problem struct {
	wire.Problem
	// cause is logged for a server error, and never sent.
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

// problemOf converts an error to a problem. An error without a code is a defect or a timeout. Its text is only logged.
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
		return newProblem(sandbox.Timeout, "", "the operation timed out; retry", nil, err)
	case errors.Is(err, context.Canceled):
		return newProblem(sandbox.UnknownOutcome, "", "the request was cancelled during its execution", nil, err)
	default:
		return newProblem(sandbox.Internal, "",
			"internal error; the server's log has details under the id of this request", nil, err)
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

// httpProblem is an error of HTTP itself, before the service is called.
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

// write sends the problem. It must be the first write of the response.
func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p.Problem)
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	h := w.Header()
	for name, values := range p.GetHeaders() {
		h[name] = values
	}
	h.Set("Content-Type", wire.ProblemJSON)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may have disconnected
}

// plainProblems converts huma's errors to problems. It drops the values that huma quotes, because they may be secrets.
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
