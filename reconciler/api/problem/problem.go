// Package problem turns errors into responses: RFC 9457 problems with a status.
package problem

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// status is the only place that maps a code to an HTTP status. The comment of package api has the table.
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

// Problem is the response to a failed request. It implements huma.StatusError, huma.HeadersError
// and huma.ContentTypeFilter.
type Problem struct {
	wire.Problem
	// Cause is logged for a server error, and never sent.
	Cause error
	// RetryAfter is in seconds; "" means the default.
	RetryAfter string
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type of problems.
func (p *Problem) ContentType(string) string { return wire.ProblemJSON }

// GetHeaders returns the headers that a client needs to react to the status.
func (p *Problem) GetHeaders() http.Header {
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return http.Header{"Retry-After": {cmp.Or(p.RetryAfter, retryAfter)}}
	case http.StatusUnauthorized:
		return http.Header{"Www-Authenticate": {`Bearer realm="reconciler"`}}
	default:
		return nil
	}
}

// Of converts an error to a problem. An error without a code is a defect or a timeout. Its text is only logged.
func Of(err error) *Problem {
	var (
		p        *Problem
		e        *sandbox.Error
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &tooLarge):
		return TooLarge("the body", tooLarge.Limit)
	case errors.As(err, &e):
		return New(e.Code, e.Reason, e.Message, e.Fields, err)
	case errors.Is(err, context.DeadlineExceeded):
		return New(sandbox.Timeout, "", "the operation timed out; retry", nil, err)
	case errors.Is(err, context.Canceled):
		return New(sandbox.UnknownOutcome, "", "the request was cancelled during its execution", nil, err)
	default:
		return New(sandbox.Internal, "",
			"internal error; the server's log has details under the id of this request", nil, err)
	}
}

// New returns the problem of a code. cause is for the log, and never sent.
func New(code sandbox.Code, reason sandbox.Reason, detail string, fields []sandbox.Field, cause error) *Problem {
	s, known := status[code]
	if !known {
		s = status[sandbox.Internal]
	}
	return &Problem{Cause: cause, Problem: wire.Problem{
		Type: "urn:sandbox-lease:problem:" + string(code), Title: s.title, Status: s.http,
		Detail: detail, Code: code, Reason: reason, Fields: fields,
	}}
}

// HTTP returns an error of HTTP itself, before the service is called. Its title is that of its type.
func HTTP(httpStatus int, detail string) *Problem {
	code := sandbox.Invalid
	switch {
	case httpStatus == http.StatusNotFound:
		code = sandbox.NotFound
	case httpStatus == http.StatusRequestTimeout:
		code = sandbox.Timeout
	case httpStatus >= 500:
		code = sandbox.Internal
	}
	p := New(code, "", detail, nil, nil)
	p.Status = httpStatus
	return p
}

// Write sends the problem. It must be the first write of the response.
func (p *Problem) Write(w http.ResponseWriter) {
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

// TooLarge is the response to a body, or a part of one, beyond a limit in bytes.
func TooLarge(what string, limit int64) *Problem {
	return HTTP(http.StatusRequestEntityTooLarge, what+" is larger than the limit of "+Size(limit))
}

// BadBody is the error of a body that cannot be read. Its code is Invalid.
func BadBody(err error) error { return BadField("body", err) }

// BadField is the error of one field of a body.
func BadField(name string, err error) error {
	return BadFields([]sandbox.Field{{Name: name, Problem: err.Error()}})
}

// BadFields is the error of a body whose fields have problems, nil without any.
func BadFields(fields []sandbox.Field) error {
	return sandbox.InvalidFields("the body of the request", fields)
}

// Size formats a limit in bytes for the text of a problem.
func Size(n int64) string {
	switch {
	case n >= 1<<30:
		return strconv.FormatInt(n>>30, 10) + " GiB"
	case n >= 1<<20:
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n>>10, 10) + " KiB"
}
