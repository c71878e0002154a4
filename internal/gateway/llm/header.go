package llm

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Headers of a sandbox that the upstream gets. The gateway drops all others, above all credentials.
var requestHeaders = []string{"Accept", "User-Agent", "Anthropic-Version", "Openai-Beta"}

// stainless is the prefix of headers with which the official clients describe themselves.
const stainless = "X-Stainless-"

// Headers of an upstream that the sandbox gets.
var answerHeaders = []string{
	"Content-Type", "Content-Encoding", "Cache-Control", "Retry-After", "Request-Id", "X-Request-Id", "X-Should-Retry",
	"Openai-Processing-Ms",
}

// refusedBetas are prefixes of features that change the price of calls.
var refusedBetas = []string{"context-1m", "compact-", "fast-mode-"}

// anthropicVersion is the API's only version (read 2026-11).
const anthropicVersion = "2023-06-01"

// upstreamHeader returns the header of a request for the upstream.
func upstreamHeader(from http.Header, r Route, account string, call sandbox.LLMCall) http.Header {
	h := http.Header{}
	for _, name := range requestHeaders {
		if v := from.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	for name, v := range from {
		if strings.HasPrefix(name, stainless) {
			h[name] = slices.Clone(v)
		}
	}
	if v := betas(from); v != "" && r.API == sandbox.LLMAnthropic {
		h.Set("Anthropic-Beta", v)
	}
	if v := from.Get("Idempotency-Key"); v != "" {
		// http.Transport would take the canonical spelling as permission to retry the request.
		h["idempotency-key"] = []string{v}
	}
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "sandbox-gateway")
	}
	h.Set("Content-Type", "application/json")
	h.Set("Accept-Encoding", "identity")
	if r.API == sandbox.LLMAnthropic {
		h.Set("X-Api-Key", r.key())
		if h.Get("Anthropic-Version") == "" {
			h.Set("Anthropic-Version", anthropicVersion)
		}
	} else {
		h.Set("Authorization", "Bearer "+r.key())
	}
	for name, v := range map[string]string{
		"X-Sandbox-Lease": call.LeaseID, "X-Sandbox-Environment": call.EnvironmentID, "X-Sandbox-Agent": call.AgentDID,
		"X-Sandbox-Attempt": strconv.FormatInt(call.Generation, 10), "X-Sandbox-Account": account, "X-Sandbox-Call": call.ID,
	} {
		h.Set(name, visible(v))
	}
	if call.Session != "" {
		h.Set(sandbox.HeaderSession, call.Session)
	}
	return h
}

// sessionOf returns the session that the agent names, "" if the value is invalid.
func sessionOf(from http.Header) string {
	v := from.Get(sandbox.HeaderSession)
	if sandbox.CheckSessionLabel(v) != nil {
		return ""
	}
	return v
}

// betas returns the values of Anthropic-Beta without the refused ones.
func betas(from http.Header) string {
	var kept []string
	for _, list := range from.Values("Anthropic-Beta") {
		for v := range strings.SplitSeq(list, ",") {
			v = strings.TrimSpace(v)
			refused := func(prefix string) bool { return strings.HasPrefix(strings.ToLower(v), prefix) }
			if v != "" && !slices.ContainsFunc(refusedBetas, refused) {
				kept = append(kept, v)
			}
		}
	}
	return strings.Join(kept, ",")
}

// visible escapes '%' and all bytes that are invalid in a header.
func visible(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// answerHeader copies the headers that the sandbox gets.
func answerHeader(to, from http.Header) {
	for _, name := range answerHeaders {
		if v := from.Values(name); len(v) > 0 {
			to[name] = slices.Clone(v)
		}
	}
}
