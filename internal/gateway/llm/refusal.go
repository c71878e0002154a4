package llm

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ReasonHeader tells programs in the sandbox that, and why, the gateway answered instead of the upstream.
const ReasonHeader = "X-Sandbox-Gateway"

// The codes of refusals.
const (
	codeUnknownRoute    = "unknown_route"
	codeUnknownEndpoint = "unknown_endpoint"
	codeModel           = "model_not_allowed"
	codeLimit           = "limit_reached"
	codeBudget          = "budget_exceeded"
	codeReserved        = "reserved"
	codeNotConfigured   = "not_configured"
	codeJournalFull     = "journal_full"
	codeJournalFailed   = "journal_failed"
	codeBusy            = "busy"
	codeUnsupported     = "unsupported"
	codeTooLarge        = "too_large"
	codeInvalid         = "invalid"
	codeUnreachable     = "upstream_unreachable"
	codeUpstreamFailed  = "upstream_failed"
	codeRedirect        = "upstream_redirect"
)

// refusal says why the gateway answers instead of the upstream.
type refusal struct {
	status  int
	code    string
	message string
	// retryAfter is when the client may try again; 0 means unknown.
	retryAfter time.Duration
	// final means that the client must not retry, because a retry is a new call with a new cost.
	final bool
}

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// again lets the client try again after a second.
func (f *refusal) again() *refusal {
	f.retryAfter = time.Second
	return f
}

// write answers in the API's error format.
func (f *refusal) write(w http.ResponseWriter, api sandbox.LLMAPI) {
	message := "sandbox gateway: " + f.message
	kind := "invalid_request_error"
	switch {
	case f.status == http.StatusForbidden:
		kind = "permission_error"
	case f.status == http.StatusNotFound:
		kind = "not_found_error"
	case f.status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case f.status >= 500:
		kind = "api_error"
	}
	var body any
	if api == sandbox.LLMAnthropic {
		body = map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": message}}
	} else {
		body = map[string]any{"error": map[string]any{"message": message, "type": kind, "code": f.code, "param": nil}}
	}
	h := w.Header()
	h.Set(ReasonHeader, f.code)
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(max(1, int(f.retryAfter.Seconds()))))
	}
	if f.final {
		h.Set("X-Should-Retry", "false")
	}
	writeJSON(w, f.status, body)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(body) // the client may have gone
}

func unavailable(message string) *refusal {
	return refuse(http.StatusServiceUnavailable, codeNotConfigured, "%s", message)
}

func unknownRoute(name string, have []string) *refusal {
	list := "the environment has none"
	if len(have) > 0 {
		list = "the environment has " + strings.Join(have, ", ")
	}
	return refuse(http.StatusNotFound, codeUnknownRoute, "there is no LLM route %.64q: %s", name, list)
}

func unknownEndpoint(r *http.Request, path, route string, u Route) *refusal {
	var have []string
	for _, e := range endpoints(u.API) {
		have = append(have, "POST "+e.path)
	}
	return refuse(http.StatusNotFound, codeUnknownEndpoint, "%.16s %.128q is not supported: route %s (%s) has %s and %s",
		r.Method, path, route, u.API, strings.Join(have, ", "), "GET "+modelsPath)
}

// modelsPath is the path that the gateway answers itself.
const modelsPath = "/v1/models"

// writeModels lists the models of a route in the API's format.
func writeModels(w http.ResponseWriter, r Route) {
	names := slices.Sorted(maps.Keys(r.Models))
	list := make([]map[string]any, len(names))
	for i, name := range names {
		if r.API == sandbox.LLMAnthropic {
			list[i] = map[string]any{"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
		} else {
			list[i] = map[string]any{"id": name, "object": "model", "created": 0, "owned_by": "sandbox"}
		}
	}
	if r.API == sandbox.LLMAnthropic {
		writeJSON(w, http.StatusOK, map[string]any{
			"data": list, "has_more": false, "first_id": names[0], "last_id": names[len(names)-1],
		})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}
