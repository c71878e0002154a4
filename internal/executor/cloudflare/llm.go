package cloudflare

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// llmAddress is the base address of the LLM routes in sandboxes, before a route's name. The host is the one in
// worker/src/llm/calls.ts. Requests to it never leave Cloudflare, so they need no TLS.
const llmAddress = "http://llm.sandbox.internal/llm/"

// llmSettings are driver.LLMSettings in the form of worker/src/llm/settings.ts. Money is in billionths of a US dollar.
type llmSettings struct {
	Account  string              `json:"account"`
	Routes   map[string]llmRoute `json:"routes"`
	Month    string              `json:"month"`
	Recorded map[string]llmUse   `json:"recorded"`
	Cap      *int64              `json:"cap"`
}

type llmRoute struct {
	API           sandbox.LLMAPI      `json:"api"`
	Upstream      string              `json:"upstream"`
	Key           string              `json:"key"`
	Models        map[string]llmModel `json:"models"`
	LeaseLimits   llmUse              `json:"lease_limits"`
	MonthlyLimits llmUse              `json:"monthly_limits"`
}

type llmModel struct {
	Input           int64 `json:"input"`
	CachedInput     int64 `json:"cached_input"`
	CacheWrite      int64 `json:"cache_write"`
	Output          int64 `json:"output"`
	MaxInputTokens  int64 `json:"max_input_tokens"`
	MaxOutputTokens int64 `json:"max_output_tokens"`
}

type llmUse struct {
	USD      int64 `json:"usd"`
	Requests int64 `json:"requests"`
	Tokens   int64 `json:"tokens"`
}

func limitsOf(l sandbox.LLMLimits) llmUse { return llmUse{int64(l.USD), l.Requests, l.Tokens} }

// llmSettingsOf encodes settings. Errors: Invalid; they never contain a key.
func llmSettingsOf(s driver.LLMSettings) (llmSettings, error) {
	out := llmSettings{
		Account: s.Account, Routes: make(map[string]llmRoute, len(s.Routes)),
		Month: s.Month, Recorded: make(map[string]llmUse, len(s.Recorded)), Cap: (*int64)(s.Cap),
	}
	for name, r := range s.Routes {
		route := llmRoute{
			API: r.API, Upstream: r.Upstream, Models: make(map[string]llmModel, len(r.Models)),
			// Secret files often end with a newline.
			Key:         strings.TrimSpace(string(r.Key)),
			LeaseLimits: limitsOf(r.LeaseLimits), MonthlyLimits: limitsOf(r.MonthlyLimits),
		}
		if route.Key == "" || strings.ContainsFunc(route.Key, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return out, sandbox.Errorf(sandbox.Invalid, "cloudflare: set LLM route %s: its key must be visible ASCII "+
				"characters on one line: check the secret of its credential", name)
		}
		for model, m := range r.Models {
			m = m.WithDefaults(r.API)
			route.Models[model] = llmModel{
				int64(m.Input), int64(*m.CachedInput), int64(*m.CacheWrite), int64(m.Output), m.MaxInputTokens, m.MaxOutputTokens,
			}
		}
		out.Routes[name] = route
	}
	for route, u := range s.Recorded {
		out.Recorded[route] = llmUse{int64(u.Cost), u.Calls, u.Tokens}
	}
	return out, nil
}

// digest identifies settings. It reveals nothing about them without the Worker's key.
func (s llmSettings) digest(key []byte) (string, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode the LLM routes: %w", err)
	}
	h := hmac.New(sha256.New, key)
	_, _ = h.Write(b) // a hash does not fail
	return hex.EncodeToString(h.Sum(nil)), nil
}

// onLLM returns a request about the LLM routes of an environment, as worker/src/index.ts lists them.
func onLLM(ref driver.EnvironmentRef, method, rest, what string) request {
	path := "/v1/instances/" + url.PathEscape(ref.Instance) + "/ledgers/" + url.PathEscape(ref.LedgerID) + "/llm/" +
		url.PathEscape(ref.EnvironmentID)
	return request{method: method, path: path + rest, what: "environment " + ref.EnvironmentID + ": " + what}
}

// SetLLM sets the LLM routes of an environment with their keys, which the Worker keeps encrypted. They apply from the
// next call on. SetLLM sends nothing if the settings have the digest known.
func (w *Worker) SetLLM(ctx context.Context, ref driver.EnvironmentRef, s driver.LLMSettings, known string) error {
	settings, err := llmSettingsOf(s)
	if err != nil {
		return err
	}
	digest, err := settings.digest(w.signer.keys.current())
	if err != nil || digest == known {
		return err
	}
	r := onLLM(ref, http.MethodPut, "", "set its LLM routes")
	r.body = map[string]any{"digest": digest, "settings": settings}
	return w.call(ctx, r, nil)
}

// llmCall is a call in the form of worker/src/llm/book.ts. Times are in milliseconds.
type llmCall struct {
	ID            string             `json:"id"`
	EnvironmentID string             `json:"environment_id"`
	LeaseID       string             `json:"lease_id"`
	Generation    int64              `json:"generation"`
	SandboxID     string             `json:"sandbox_id"`
	AgentDID      string             `json:"agent_did"`
	Route         string             `json:"route"`
	Model         string             `json:"model"`
	Session       string             `json:"session"`
	StartedAt     int64              `json:"started_at"`
	EndedAt       int64              `json:"ended_at"`
	Outcome       sandbox.LLMOutcome `json:"outcome"`
	Status        int                `json:"status"`
	Tokens        sandbox.LLMTokens  `json:"tokens"`
	Cost          int64              `json:"cost"`
	Unknown       bool               `json:"unknown"`
}

func (c llmCall) decode() sandbox.LLMCall {
	return sandbox.LLMCall{
		ID: c.ID, EnvironmentID: c.EnvironmentID, LeaseID: c.LeaseID, Generation: c.Generation, SandboxID: c.SandboxID,
		AgentDID: c.AgentDID, Route: c.Route, Model: c.Model, Session: c.Session, StartedAt: milliseconds(c.StartedAt),
		EndedAt: milliseconds(c.EndedAt), Outcome: c.Outcome, Status: c.Status, Tokens: c.Tokens,
		Cost: sandbox.NanoUSD(c.Cost), Unknown: c.Unknown,
	}
}

// LLMCalls returns the oldest lines of the journal after a position, and the digest of the settings. The ledger must
// have recorded the lines up to the position.
func (w *Worker) LLMCalls(
	ctx context.Context, ref driver.EnvironmentRef, after sandbox.GatewayPosition,
) (lines []driver.LLMLine, digest string, err error) {
	var said struct {
		Digest string `json:"digest"`
		Lines  []struct {
			sandbox.GatewayPosition
			Call llmCall `json:"call"`
		} `json:"lines"`
	}
	r := onLLM(ref, http.MethodGet, fmt.Sprintf("/calls?run=%d&line=%d", after.Run, after.Line), "read its LLM calls")
	if err := w.call(ctx, r, &said); err != nil {
		return nil, "", err
	}
	for _, l := range said.Lines {
		lines = append(lines, driver.LLMLine{GatewayPosition: l.GatewayPosition, LLMCall: l.Call.decode()})
	}
	return lines, said.Digest, nil
}

// ServeLLM implements driver.LLMBroker.
func (e *Executor) ServeLLM(ctx context.Context, ref driver.EnvironmentRef, s driver.LLMSettings) error {
	d, err := e.find(ctx, ref.LedgerID, ref.EnvironmentID, ref.Instance)
	if err != nil {
		return err
	}
	if s.Month == "" {
		s.Month = e.cfg.Now().UTC().Format("2006-01")
	}
	name := DeploymentName(ref.LedgerID, ref.EnvironmentID)
	e.mu.Lock()
	known := e.journals[name]
	delete(e.journals, name)
	e.mu.Unlock()
	return d.SetLLM(ctx, ref, s, known)
}

// ServeCredentials implements driver.CredentialBroker: this backend adds only keys of models.
func (e *Executor) ServeCredentials(
	_ context.Context, ref driver.EnvironmentRef, credentials map[string]driver.Credential,
) error {
	if len(credentials) == 0 {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "cloudflare: environment %s: credentials of hosts are added on Docker only",
		ref.EnvironmentID)
}

// LLMCalls implements driver.LLMBroker.
func (e *Executor) LLMCalls(
	ctx context.Context, ref driver.EnvironmentRef, after sandbox.GatewayPosition,
) ([]driver.LLMLine, error) {
	d, err := e.find(ctx, ref.LedgerID, ref.EnvironmentID, ref.Instance)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, llmLimit)
	defer cancel()
	lines, digest, err := d.LLMCalls(ctx, ref, after)
	if err == nil && len(lines) == 0 {
		e.mu.Lock()
		e.journals[DeploymentName(ref.LedgerID, ref.EnvironmentID)] = digest
		e.mu.Unlock()
	}
	return lines, err
}

// llmLimit bounds the time to read a page of calls.
const llmLimit = 15 * time.Second
