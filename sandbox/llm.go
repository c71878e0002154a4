package sandbox

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// LLMAPI is the protocol of an LLM route's upstream.
type LLMAPI string

// The protocols.
const (
	LLMOpenAI     LLMAPI = "openai"
	LLMAnthropic  LLMAPI = "anthropic"
	LLMOpenRouter LLMAPI = "openrouter"
)

// LLMAPIs lists the protocols in the order that documentation shows them.
var LLMAPIs = []LLMAPI{LLMOpenAI, LLMAnthropic, LLMOpenRouter}

// Upstream returns the address of the API's own service.
func (a LLMAPI) Upstream() string {
	switch a {
	case LLMAnthropic:
		return "https://api.anthropic.com"
	case LLMOpenRouter:
		return "https://openrouter.ai/api"
	default:
		return "https://api.openai.com"
	}
}

// LLMRoute lets the sandboxes of an environment call the models of one upstream. The environment's gateway adds the key
// outside of the sandbox, and records the use and cost of each call.
type LLMRoute struct {
	API LLMAPI `json:"api" enum:"openai,anthropic,openrouter" doc:"Protocol of the upstream."`
	// Upstream is the base of the API's addresses, without the version: a path such as /v1/messages follows it.
	Upstream string `json:"upstream,omitempty" doc:"Base URL of the API, without /v1, such as that of a LiteLLM proxy. Default: https://api.openai.com, https://api.anthropic.com or https://openrouter.ai/api, by api."`
	// Credential names the secret that is the upstream's key. No sandbox gets that secret.
	Credential string `json:"credential" doc:"Name of the secret that is the upstream's key. No sandbox gets this secret."`
	// Models are the models that may be called, by name. They are the route's price book.
	Models map[string]LLMModel `json:"models" nullable:"false" doc:"Prices and bounds of the models that may be called, by the name that requests use. Other models are refused."`
	// PriceSource and PricesAsOf are the source of the prices and its date ("2006-01-02").
	PriceSource string `json:"price_source,omitempty" doc:"Where the prices are from, such as the address of a price list."`
	PricesAsOf  string `json:"prices_as_of,omitempty" doc:"Date of the prices, as 2026-11-24."`
	// LeaseLimits apply to a generation of a lease. MonthlyLimits apply to the whole environment in a calendar month
	// (UTC).
	LeaseLimits   LLMLimits `json:"lease_limits,omitzero" doc:"Limits of each lease, from its beginning."`
	MonthlyLimits LLMLimits `json:"monthly_limits,omitzero" doc:"Limits of the environment in a calendar month (UTC)."`
}

// LLMModel holds the list prices of a model in US dollars for a million tokens, and the bounds of one call. If the use
// of a call is unknown, it costs as much as the bounds allow.
type LLMModel struct {
	Input NanoUSD `json:"input_usd_per_million" doc:"US dollars for a million input tokens."`
	// CachedInput is the price of input that the upstream had in its cache.
	CachedInput *NanoUSD `json:"cached_input_usd_per_million,omitempty" doc:"US dollars for a million input tokens from the upstream's cache. Default: input_usd_per_million."`
	// CacheWrite is the price of input that the upstream put into its cache. Anthropic charges up to twice the input.
	CacheWrite      *NanoUSD `json:"cache_write_usd_per_million,omitempty" doc:"US dollars for a million input tokens that the upstream puts into its cache. Default: twice input_usd_per_million for anthropic, the most that it charges; otherwise input_usd_per_million."`
	Output          NanoUSD  `json:"output_usd_per_million" doc:"US dollars for a million output tokens, those of reasoning included."`
	MaxInputTokens  int64    `json:"max_input_tokens,omitempty" doc:"The most input tokens of a call. Default 200000."`
	MaxOutputTokens int64    `json:"max_output_tokens,omitempty" doc:"The most output tokens of a call. A call that asks for more is refused. Default 32768."`
}

// Defaults of a model's bounds.
const (
	DefaultLLMInputTokens  = 200_000
	DefaultLLMOutputTokens = 32_768
)

// LLMLimits limit the use by LLM calls. Zero means no limit. Once a limit is reached, further calls are refused;
// running calls end normally.
type LLMLimits struct {
	USD      NanoUSD `json:"usd,omitempty" doc:"US dollars at list price."`
	Requests int64   `json:"requests,omitempty" doc:"Number of calls."`
	Tokens   int64   `json:"tokens,omitempty" doc:"Input and output tokens together."`
}

// LLMTokens are the tokens that an upstream counted for a call.
type LLMTokens struct {
	// Input counts tokens that were neither read from the upstream's cache nor written to it.
	Input       int64 `json:"input" doc:"Input tokens that were neither read from the upstream's cache nor written to it."`
	CachedInput int64 `json:"cached_input" doc:"Input tokens read from the upstream's cache."`
	CacheWrite  int64 `json:"cache_write" doc:"Input tokens written to the upstream's cache."`
	Output      int64 `json:"output" doc:"Output tokens, those of reasoning included."`
}

// Plus returns the sum of t and o.
func (t LLMTokens) Plus(o LLMTokens) LLMTokens {
	return LLMTokens{t.Input + o.Input, t.CachedInput + o.CachedInput, t.CacheWrite + o.CacheWrite, t.Output + o.Output}
}

// Total returns the number of tokens.
func (t LLMTokens) Total() int64 { return t.Input + t.CachedInput + t.CacheWrite + t.Output }

// LLMOutcome is how a call ended.
type LLMOutcome string

// The outcomes.
const (
	// LLMRunning: the call is under way. Its cost is its reservation.
	LLMRunning LLMOutcome = "running"
	// LLMCompleted: the upstream's answer arrived completely.
	LLMCompleted LLMOutcome = "completed"
	// LLMRejected: the upstream answered with an error, which costs nothing.
	LLMRejected LLMOutcome = "rejected"
	// LLMUnsent: the upstream could not be reached, and nothing was sent to it.
	LLMUnsent LLMOutcome = "unsent"
	// LLMInterrupted: the call was sent, and its answer broke off.
	LLMInterrupted LLMOutcome = "interrupted"
)

// LLMOutcomes lists the outcomes of ended calls.
var LLMOutcomes = []LLMOutcome{LLMCompleted, LLMRejected, LLMUnsent, LLMInterrupted}

// Event returns the type of the event for a call with this outcome.
func (o LLMOutcome) Event() EventType { return EventType("llm." + string(o)) }

// LLMCall is the gateway's record of one call.
type LLMCall struct {
	ID            string `json:"id"`
	EnvironmentID string `json:"environment_id"`
	LeaseID       string `json:"lease_id"`
	Generation    int64  `json:"generation"`
	SandboxID     string `json:"sandbox_id"`
	AgentDID      string `json:"agent_did"`
	Route         string `json:"route"`
	Model         string `json:"model"`
	// Session is the value of HeaderSession that the agent sent with the call.
	Session   string     `json:"session,omitempty" doc:"What the agent works for, as the agent itself says with X-Sandbox-Session."`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   time.Time  `json:"ended_at,omitzero"`
	Outcome   LLMOutcome `json:"outcome" enum:"running,completed,rejected,unsent,interrupted"`
	// Status is the upstream's HTTP status, 0 if there was none.
	Status int       `json:"status,omitempty" doc:"HTTP status of the upstream."`
	Tokens LLMTokens `json:"tokens"`
	Cost   NanoUSD   `json:"cost_usd"`
	// Unknown: the upstream did not report the call's use. Cost is then the reservation, which is the most that it can
	// have cost.
	Unknown bool `json:"unknown,omitempty" doc:"The upstream did not report what the call used: cost_usd is the most that it can have cost."`
}

// LLMUse is the total use of several calls.
type LLMUse struct {
	Calls  int64     `json:"calls" doc:"Number of calls that have ended."`
	Tokens LLMTokens `json:"tokens"`
	Cost   NanoUSD   `json:"cost_usd" doc:"Cost at the routes' list prices."`
	// UnknownCalls counts the calls whose use the upstream did not report. Unknown is their part of Cost.
	UnknownCalls int64   `json:"unknown_calls" doc:"Calls whose upstream did not report what they used."`
	Unknown      NanoUSD `json:"unknown_usd" doc:"Part of cost_usd: the most that those calls can have cost."`
}

// Plus returns the sum of u and o.
func (u LLMUse) Plus(o LLMUse) LLMUse {
	return LLMUse{
		u.Calls + o.Calls, u.Tokens.Plus(o.Tokens), u.Cost + o.Cost, u.UnknownCalls + o.UnknownCalls, u.Unknown + o.Unknown,
	}
}

// Use returns the use of the call.
func (c LLMCall) Use() LLMUse {
	u := LLMUse{Calls: 1, Tokens: c.Tokens, Cost: c.Cost}
	if c.Unknown {
		u.UnknownCalls, u.Unknown = 1, c.Cost
	}
	return u
}

// Cursor identifies the call in the list of calls, even after it is purged.
func (c LLMCall) Cursor() string {
	return c.StartedAt.UTC().Format(time.RFC3339Nano) + llmCursorSeparator + c.ID
}

// llmCursorSeparator is in no RFC 3339 time.
const llmCursorSeparator = "_"

// Validate checks the query without the ledger. Errors: Invalid.
func (q LLMCallQuery) Validate() error {
	f := checkLimit(nil, q.Limit, MaxLLMCalls)
	if _, _, err := q.Last(); err != nil {
		f = append(f, Field{Name: "before",
			Problem: "must be next_before of the previous page, or a time such as 2026-11-24T20:00:00Z"})
	}
	return InvalidFields("query of LLM calls", f)
}

// Last returns the start and the id of the last call of the previous page. The id is "" if Before is only a time, and
// the time is zero without Before.
func (q LLMCallQuery) Last() (startedAt time.Time, id string, err error) {
	if q.Before == "" {
		return time.Time{}, "", nil
	}
	text, id, _ := strings.Cut(q.Before, llmCursorSeparator)
	startedAt, err = time.Parse(time.RFC3339Nano, text)
	return startedAt, id, err
}

// LLMCallQuery selects calls, the latest first.
type LLMCallQuery struct {
	EnvironmentID, LeaseID, Session string
	// Before selects calls before that with a cursor, see LLMCall.Cursor, or those that began before an RFC 3339 time.
	Before string
	// Limit is 1 to MaxLLMCalls; zero means DefaultLLMCalls.
	Limit int
}

// Limits of a page of calls.
const (
	DefaultLLMCalls = 100
	MaxLLMCalls     = 1000
)

// Limits of an environment's routes.
const (
	maxLLMRoutes = 16
	maxLLMModels = 64
	maxLLMTokens = 10_000_000
	// maxLLMPrice is in US dollars for a million tokens.
	maxLLMPrice = 10_000 * USD
)

var (
	llmRouteName = pattern(`^[a-z0-9][a-z0-9-]{0,31}$`)
	llmModelName = pattern(`^[!-~]{1,128}$`)
)

// withDefaults returns the route with all defaults filled in.
func (r LLMRoute) withDefaults() LLMRoute {
	orDefault(&r.Upstream, r.API.Upstream())
	models := make(map[string]LLMModel, len(r.Models))
	for name, m := range r.Models {
		models[name] = m.WithDefaults(r.API)
	}
	r.Models = models
	return r
}

// WithDefaults returns the model with all defaults filled in.
func (m LLMModel) WithDefaults(api LLMAPI) LLMModel {
	if m.CachedInput == nil {
		cached := m.Input
		m.CachedInput = &cached
	}
	if m.CacheWrite == nil {
		write := m.Input
		if api == LLMAnthropic && write <= maxLLMPrice {
			write *= 2
		}
		m.CacheWrite = &write
	}
	orDefault(&m.MaxInputTokens, DefaultLLMInputTokens)
	orDefault(&m.MaxOutputTokens, DefaultLLMOutputTokens)
	return m
}

// llmWithDefaults returns routes with all defaults filled in.
func llmWithDefaults(routes map[string]LLMRoute) map[string]LLMRoute {
	if len(routes) == 0 {
		return nil
	}
	all := make(map[string]LLMRoute, len(routes))
	for name, r := range routes {
		all[name] = r.withDefaults()
	}
	return all
}

// Credentials returns the names of the gateway's secrets, sorted: keys of LLM routes and credentials of hosts. No
// sandbox has them.
func (s EnvironmentSpec) Credentials() []string {
	var names []string
	for _, r := range s.LLM {
		names = append(names, r.Credential)
	}
	for _, c := range s.EgressRules().Credentials {
		names = append(names, c.Secret)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// IsCredential reports whether the gateway or the service uses a secret, and no sandbox gets it.
func (s EnvironmentSpec) IsCredential(secret string) bool {
	return slices.Contains(s.Credentials(), secret) || s.IsWorkspaceCredential(secret) || s.IsArchiveCredential(secret)
}

// HasCredentials reports whether the gateway has any secret.
func (s EnvironmentSpec) HasCredentials() bool { return len(s.Credentials()) > 0 }

// LLMProtocols returns the protocols of the routes, by name, never nil.
func (s EnvironmentSpec) LLMProtocols() map[string]LLMAPI {
	protocols := make(map[string]LLMAPI, len(s.LLM))
	for name, r := range s.LLM {
		protocols[name] = r.API
	}
	return protocols
}

// UsesGateway reports whether sandboxes reach anything through the environment's gateway.
func (s EnvironmentSpec) UsesGateway() bool { return s.Network == NetworkRestricted || len(s.LLM) > 0 }

func (s EnvironmentSpec) llmFields() []Field {
	var f []Field
	if len(s.LLM) > maxLLMRoutes {
		f = append(f, Field{"llm", fmt.Sprintf("must have at most %d routes, not %d", maxLLMRoutes, len(s.LLM))})
	}
	if len(s.LLM) > 0 && s.Network == NetworkFull {
		f = append(f, Field{"llm", "requires network \"restricted\" or \"none\": " +
			"a sandbox with network \"full\" has no gateway that could add the key"})
	}
	for _, name := range slices.Sorted(maps.Keys(s.LLM)) {
		at := "llm." + name
		if !llmRouteName().MatchString(name) {
			f = append(f, Field{at, "must have a name of 1 to 32 lower-case letters, digits and '-'"})
		}
		r := s.LLM[name]
		f = append(f, r.fields(at)...)
		if r.Credential != "" && !slices.Contains(s.Secrets, r.Credential) {
			f = append(f, Field{at + ".credential", fmt.Sprintf("must be the name of one of the environment's secrets, not %q",
				r.Credential)})
		}
	}
	return f
}

// privateNames are suffixes of hosts that are not on the Internet (RFC 6761, RFC 6762, RFC 8375; .internal is ICANN's).
var privateNames = []string{".localhost", ".local", ".internal", ".home.arpa"}

// llmUnsupportedOnCloudflare returns the routes whose upstream a Worker cannot reach: it connects to public addresses
// only (developers.cloudflare.com/workers/runtime-apis/fetch, read 2026-11).
func (s EnvironmentSpec) llmUnsupportedOnCloudflare() (f []Field) {
	for _, name := range slices.Sorted(maps.Keys(s.LLM)) {
		u, err := url.Parse(s.LLM[name].Upstream)
		if err != nil {
			continue // llmFields reports it
		}
		host := "." + strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
		private := func(suffix string) bool { return strings.HasSuffix(host, suffix) }
		if !strings.Contains(host[1:], ".") || slices.ContainsFunc(privateNames, private) {
			f = append(f, Field{"llm." + name + ".upstream", fmt.Sprintf(
				"must be a host on the Internet on Cloudflare, which cannot reach private addresses, not %q", u.Hostname())})
		}
	}
	return f
}

// credentialSecretFields returns the credentials of hosts whose secret the environment does not have.
func (s EnvironmentSpec) credentialSecretFields() (f []Field) {
	if s.Egress == nil {
		return nil
	}
	for _, host := range slices.Sorted(maps.Keys(s.Egress.Credentials)) {
		if name := s.Egress.Credentials[host].Secret; !slices.Contains(s.Secrets, name) {
			f = append(f, Field{fmt.Sprintf("egress.credentials[%q].secret", host),
				fmt.Sprintf("must be the name of one of the environment's secrets, not %q", name)})
		}
	}
	return f
}

func (r LLMRoute) fields(at string) []Field {
	var f []Field
	bad := func(name, problem string, args ...any) {
		f = append(f, Field{at + "." + name, fmt.Sprintf(problem, args...)})
	}
	if !slices.Contains(LLMAPIs, r.API) {
		bad("api", "must be openai, anthropic or openrouter, not %q", r.API)
	}
	if problem := upstreamProblem(r.Upstream); problem != "" {
		bad("upstream", "%s", problem)
	}
	if r.Credential == "" {
		bad("credential", "must be the name of the secret that is the upstream's key")
	}
	if r.PricesAsOf != "" {
		if _, err := time.Parse(time.DateOnly, r.PricesAsOf); err != nil {
			bad("prices_as_of", "must be a date such as 2026-11-24, not %q", r.PricesAsOf)
		}
	}
	if n := len(r.Models); n == 0 || n > maxLLMModels {
		bad("models", "must name 1 to %d models with their prices, not %d: what has no price cannot be called",
			maxLLMModels, n)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Models)) {
		if !llmModelName().MatchString(name) {
			bad("models", "%q is not the name of a model: it must be 1 to 128 visible ASCII characters", name)
		}
		f = append(f, r.Models[name].fields(at+".models."+name)...)
	}
	f = append(f, r.LeaseLimits.fields(at+".lease_limits")...)
	return append(f, r.MonthlyLimits.fields(at+".monthly_limits")...)
}

// upstreamProblem returns the problem of an upstream's address, "" if it has none.
func upstreamProblem(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return "must be a URL such as https://api.openai.com"
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", u.Opaque != "":
		return fmt.Sprintf("must be a URL that begins with https:// (or http://, which sends the key in clear text), not %q",
			u.Redacted())
	case u.User != nil:
		return "must not contain a user or a password: the key is the credential"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "must have no query and no fragment"
	case strings.HasSuffix(u.Path, "/"), strings.HasSuffix(u.Path, "/v1"):
		return "must end before /v1, which requests add, and without a slash"
	}
	if _, err := CanonicalHost(u.Hostname()); err != nil {
		return "its host " + err.Error()
	}
	return ""
}

func (m LLMModel) fields(at string) []Field {
	var f []Field
	for _, price := range []struct {
		name string
		of   *NanoUSD
	}{
		{"input_usd_per_million", &m.Input}, {"cached_input_usd_per_million", m.CachedInput},
		{"cache_write_usd_per_million", m.CacheWrite}, {"output_usd_per_million", &m.Output},
	} {
		if price.of != nil && (*price.of < 0 || *price.of > maxLLMPrice) {
			f = append(f, Field{at + "." + price.name, fmt.Sprintf("must be between 0 and %s, not %s", maxLLMPrice, *price.of)})
		}
	}
	for _, bound := range []struct {
		name string
		of   int64
	}{{"max_input_tokens", m.MaxInputTokens}, {"max_output_tokens", m.MaxOutputTokens}} {
		if bound.of < 1 || bound.of > maxLLMTokens {
			f = append(f, Field{at + "." + bound.name, fmt.Sprintf("must be between 1 and %d, not %d", maxLLMTokens, bound.of)})
		}
	}
	return f
}

func (l LLMLimits) fields(at string) []Field {
	var f []Field
	for _, limit := range []struct {
		name     string
		negative bool
	}{{"usd", l.USD < 0}, {"requests", l.Requests < 0}, {"tokens", l.Tokens < 0}} {
		if limit.negative {
			f = append(f, Field{at + "." + limit.name, "must be more than 0; omit it to set no limit"})
		}
	}
	return f
}
