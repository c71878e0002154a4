package cloudflare_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// secretKey is the upstream's key.
const secretKey = "sk-test-5ecre7-K3y/of+the=upstream"

// modelsMonth is the month of the tests' settings.
func modelsMonth() string { return time.Now().UTC().Format("2006-01") }

// modelM is a model whose tokens cost 1,000, 100, 1,250 and 10,000 billionths of a dollar.
func modelM() sandbox.LLMModel {
	cached, write := sandbox.USD/10, sandbox.USD*5/4
	return sandbox.LLMModel{
		Input: sandbox.USD, CachedInput: &cached, CacheWrite: &write, Output: 10 * sandbox.USD,
		MaxInputTokens: 10_000, MaxOutputTokens: 1000,
	}
}

func keyed(api sandbox.LLMAPI) driver.LLMKeyedRoute {
	return driver.LLMKeyedRoute{
		LLMRoute: sandbox.LLMRoute{
			API: api, Upstream: "http://models.test", Credential: "KEY", Models: map[string]sandbox.LLMModel{"m": modelM()},
		},
		Key: secretKey,
	}
}

// talk is a world with an upstream and a sandbox that calls models.
type talk struct {
	*world
	upstream *upstream
	ref      driver.EnvironmentRef
	h        driver.Handle
	settings driver.LLMSettings
	// known are the calls that the journal has returned, and first are their ids in order.
	known map[string]sandbox.LLMCall
	first []string
}

func newTalk(t *testing.T, mode sandbox.NetworkMode) *talk {
	t.Helper()
	u := newUpstream(t)
	server := cloudflaretest.Start(t, cloudflaretest.Config{Outside: u.host(t)})
	t.Cleanup(u.CloseClientConnections) // else the Worker's server does not end
	k := &talk{world: &world{t, server, server.Worker()}, upstream: u, known: map[string]sandbox.LLMCall{}}
	k.settings = driver.LLMSettings{
		Account: "acct-1", Month: modelsMonth(),
		Routes: map[string]driver.LLMKeyedRoute{
			"main": keyed(sandbox.LLMOpenAI), "claude": keyed(sandbox.LLMAnthropic), "router": keyed(sandbox.LLMOpenRouter),
		},
	}
	spec := k.callers(mode)
	k.h = spec.Handle
	k.ref = driver.EnvironmentRef{LedgerID: k.h.LedgerID, EnvironmentID: k.h.EnvironmentID, Instance: k.h.Instance}
	if mode == sandbox.NetworkRestricted {
		k.must(k.worker.SetRules(t.Context(), k.ref, sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "good.test"}}}))
	}
	k.set()
	k.must(k.worker.Spawn(t.Context(), spec, cloudflare.Limits{}))
	return k
}

// callers returns the specification of a sandbox that calls models.
func (k *talk) callers(mode sandbox.NetworkMode) driver.SandboxSpec {
	spec := k.spec()
	spec.Network = mode
	spec.LLM = map[string]sandbox.LLMAPI{
		"main": sandbox.LLMOpenAI, "claude": sandbox.LLMAnthropic, "router": sandbox.LLMOpenRouter,
	}
	return spec
}

func (k *talk) set() {
	k.Helper()
	k.must(k.worker.SetLLM(k.Context(), k.ref, k.settings, ""))
}

// ask calls a model from the sandbox, and returns the answer with its headers.
func (k *talk) ask(api, body string, header ...string) string {
	k.Helper()
	return k.sh(k.h, callCommand(api, body, header...))
}

// journal returns the latest state of each call in the journal, ordered by their beginnings. The journal drops ended
// calls once they are read.
func (k *talk) journal() []sandbox.LLMCall {
	k.Helper()
	for after := (sandbox.GatewayPosition{}); ; {
		lines, _, err := k.worker.LLMCalls(k.Context(), k.ref, after)
		k.must(err)
		if len(lines) == 0 {
			break
		}
		for _, l := range lines {
			if !l.After(after) {
				k.Fatalf("line %+v comes after %+v", l.GatewayPosition, after)
			}
			after = l.GatewayPosition
			if before, ok := k.known[l.ID]; !ok {
				k.first = append(k.first, l.ID)
			} else if before.Outcome != sandbox.LLMRunning {
				k.Errorf("call %+v has ended before: %+v", l.LLMCall, before)
			}
			k.known[l.ID] = l.LLMCall
		}
	}
	list := make([]sandbox.LLMCall, len(k.first))
	for i, id := range k.first {
		list[i] = k.known[id]
	}
	return list
}

func TestASandboxOnCloudflareCallsModelsWithoutTheirKey(t *testing.T) {
	k := newTalk(t, sandbox.NetworkNone)
	want, cost := exact(plainly())
	calls := 0
	for _, api := range []string{"openai", "responses", "anthropic", "openrouter"} {
		for _, stream := range []bool{false, true} {
			x := plainly()
			if !stream {
				x.Events = 0 // the answer has its length
			}
			said := k.ask(api, body(stream, x), "Authorization: Bearer mine", "X-Api-Key: mine", "Cookie: mine",
				"X-Sandbox-Lease: other", "X-Litellm-Tags: mine", "X-Sandbox-Session: game:7")
			k.hidden("the answer", said)
			if !strings.Contains(said, "200 OK") || !strings.Contains(said, `"text"`) && !strings.Contains(said, "word") {
				t.Errorf("%s, stream %t: it gets %s", api, stream, said)
			}
			if api == "openai" && stream && strings.Contains(said, "usage") {
				t.Errorf("it gets usage that it did not request: %s", said)
			}
			list := k.journal()
			if calls++; len(list) == 0 {
				t.Fatalf("%s, stream %t: the journal has no call", api, stream)
			}
			call := list[len(list)-1]
			if call.Outcome != sandbox.LLMCompleted || call.Tokens != want || call.Unknown || call.Status != 200 ||
				call.Cost != cost || call.Session != "game:7" || call.LeaseID != k.spec().LeaseID || call.Model != "m" ||
				call.SandboxID != k.h.SandboxID || call.Generation != 3 || call.EndedAt.Before(call.StartedAt) {
				t.Errorf("%s, stream %t: the journal has %+v", api, stream, call)
			}
			k.sentWith(api, call)
		}
	}
	if got := len(k.upstream.got()); got != calls {
		t.Errorf("the upstream got %d calls, not %d", got, calls)
	}
	k.keepsTheKey()
	k.reachesNothingElse()
	k.losesItsRoutes()
}

// sentWith checks the header of the latest call that the upstream got.
func (k *talk) sentWith(api string, call sandbox.LLMCall) {
	k.Helper()
	all := k.upstream.got()
	h := all[len(all)-1].header
	want := map[string]string{
		"Authorization": "Bearer " + secretKey, "X-Api-Key": "", "X-Sandbox-Lease": k.spec().LeaseID,
		"X-Sandbox-Environment": "worker-1", "X-Sandbox-Account": "acct-1", "X-Sandbox-Attempt": "3",
		"X-Sandbox-Agent": "did:plc:worker", "X-Sandbox-Call": call.ID, "X-Sandbox-Session": "game:7", "Cookie": "",
		"X-Litellm-Tags": "", "X-Outside-Origin": "http://models.test",
	}
	if api == "anthropic" {
		want["Authorization"], want["X-Api-Key"], want["Anthropic-Version"] = "", secretKey, "2023-06-01"
	}
	for name, value := range want {
		if got := h.Get(name); got != value {
			k.Errorf("%s: the upstream gets %s %q, want %q", api, name, got, value)
		}
	}
}

func (k *talk) hidden(where, text string) {
	k.Helper()
	for _, form := range []string{
		secretKey, secretKey[8:], base64.StdEncoding.EncodeToString([]byte(secretKey)), url.QueryEscape(secretKey),
	} {
		if strings.Contains(text, form) {
			k.Errorf("%s has the key: %.300s", where, text)
		}
	}
}

// keepsTheKey: neither the sandbox, an error, an answer to the reconciler nor the database has the key.
func (k *talk) keepsTheKey() {
	k.Helper()
	failed := plainly()
	failed.Status = 500 // its text contains the key
	if said := k.ask("openai", body(false, failed)); !strings.Contains(said, "500") || !strings.Contains(said, "(key)") {
		k.Errorf("an error is %s", said)
	} else {
		k.hidden("an error", said)
	}
	if c := k.journal(); c[len(c)-1].Outcome != sandbox.LLMRejected || c[len(c)-1].Cost != 0 || c[len(c)-1].Status != 500 {
		k.Errorf("a rejected call is %+v", c[len(c)-1])
	}
	k.hidden("the sandbox", k.sh(k.h, `env; cat /proc/1/environ /proc/self/environ 2>&1; cat /proc/*/cmdline /run/secrets/* 2>&1`))
	k.hidden("the status", fmt.Sprintf("%+v", k.inspect(k.h)))
	k.ask("openai", body(false, plainly())) // a call that the journal still has
	for _, table := range []string{"llm", "llm_calls", "llm_sums", "sandboxes", "sandbox_leases"} {
		rows, err := json.Marshal(k.server.Query("SELECT * FROM " + table))
		k.must(err)
		if len(rows) < 10 {
			k.Errorf("table %s has no rows", table)
		}
		k.hidden("table "+table, string(rows))
	}
}

// reachesNothingElse: without a network, a sandbox reaches only the routes.
func (k *talk) reachesNothingElse() {
	k.Helper()
	before := len(k.upstream.got())
	for name, request := range map[string]string{
		"another host":      `GET / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n`,
		"the upstream":      `GET / HTTP/1.1\r\nHost: models.test\r\nConnection: close\r\n\r\n`,
		"another path":      `GET / HTTP/1.1\r\nHost: llm.sandbox.internal\r\nConnection: close\r\n\r\n`,
		"another route":     `POST /llm/x/v1/responses HTTP/1.1\r\nHost: llm.sandbox.internal\r\nConnection: close\r\n\r\n`,
		"another endpoint":  `POST /llm/main/v1/files HTTP/1.1\r\nHost: llm.sandbox.internal\r\nConnection: close\r\n\r\n`,
		"another method":    `GET /llm/main/v1/responses HTTP/1.1\r\nHost: llm.sandbox.internal\r\nConnection: close\r\n\r\n`,
		"a tunnel":          `CONNECT models.test:80 HTTP/1.1\r\nHost: models.test:80\r\nConnection: close\r\n\r\n`,
		"the Worker itself": `GET /v1/instance HTTP/1.1\r\nHost: llm.sandbox.internal\r\nConnection: close\r\n\r\n`,
	} {
		for _, host := range []string{"llm.sandbox.internal", "good.test"} {
			said := k.sh(k.h, fmt.Sprintf(`printf '%s' | nc -w 5 %s 80 2>&1; true`, request, host))
			if strings.Contains(said, " 200 ") {
				k.Errorf("%s, by %s: it gets %s", name, host, said)
			}
		}
	}
	if got := len(k.upstream.got()); got != before {
		k.Errorf("the Internet got %d requests", got-before)
	}
	if said := k.sh(k.h, `printf 'GET /llm/main/v1/models HTTP/1.1\r\nHost: llm.sandbox.internal\r\nConnection: close\r\n\r\n' |
		nc -w 5 llm.sandbox.internal 80`); !strings.Contains(said, `"id":"m"`) {
		k.Errorf("the models are %s", said)
	}
}

// losesItsRoutes: removed routes and their keys are gone from the next call on.
func (k *talk) losesItsRoutes() {
	k.Helper()
	sealed := func() int { return len(fmt.Sprint(k.server.Query("SELECT sealed FROM llm"))) }
	before := sealed()
	k.settings.Routes = nil
	k.set()
	if said := k.ask("openai", body(false, plainly())); !strings.Contains(said, "X-Sandbox-Gateway: unknown_route") {
		k.Errorf("without routes, a call gets %s", said)
	}
	if after := sealed(); after > before/4 {
		k.Errorf("the encrypted settings have %d characters, and had %d", after, before)
	}
}

// TestASandboxOnCloudflareHasItsNetworkBesideModels: a restricted sandbox reaches its hosts and its routes.
func TestASandboxOnCloudflareHasItsNetworkBesideModels(t *testing.T) {
	k := newTalk(t, sandbox.NetworkRestricted)
	if said := k.ask("openai", body(true, plainly())); !strings.Contains(said, "[DONE]") {
		t.Errorf("a call gets %s", said)
	}
	for host, want := range map[string]string{"good.test": "200 OK", "models.test": "(host_not_allowed)"} {
		said := k.sh(k.h, fmt.Sprintf(`printf 'GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' | nc -w 5 %s 80`, host, host))
		if !strings.Contains(said, want) {
			t.Errorf("%s: it gets %s", host, said)
		}
	}
}

// TestLimitsOnCloudflareRefuseCalls: each limit refuses calls once it is reached. Running calls reserve their maximum.
func TestLimitsOnCloudflareRefuseCalls(t *testing.T) {
	k := newTalk(t, sandbox.NetworkNone)
	_, cost := exact(plainly())
	limited := func(change func(*driver.LLMKeyedRoute)) {
		t.Helper()
		r := keyed(sandbox.LLMOpenAI)
		change(&r)
		k.settings.Routes["main"] = r
		k.set()
	}
	call := func(want string) {
		t.Helper()
		before := len(k.upstream.got())
		said := k.ask("openai", body(false, plainly()))
		if want == "" && !strings.Contains(said, "200 OK") || !strings.Contains(said, want) {
			t.Errorf("a call gets %s, want %q", said, want)
		}
		if sent := len(k.upstream.got()) - before; sent != map[bool]int{true: 1, false: 0}[want == ""] {
			t.Errorf("the upstream got %d calls; want %q", sent, want)
		}
	}
	call("") // one call is used
	for name, change := range map[string]func(*driver.LLMKeyedRoute){
		"lease requests": func(r *driver.LLMKeyedRoute) { r.LeaseLimits.Requests = 1 },
		"lease tokens":   func(r *driver.LLMKeyedRoute) { r.LeaseLimits.Tokens = 27 },
		"lease usd":      func(r *driver.LLMKeyedRoute) { r.LeaseLimits.USD = cost },
		"month requests": func(r *driver.LLMKeyedRoute) { r.MonthlyLimits.Requests = 1 },
		"month tokens":   func(r *driver.LLMKeyedRoute) { r.MonthlyLimits.Tokens = 27 },
		"month usd":      func(r *driver.LLMKeyedRoute) { r.MonthlyLimits.USD = cost },
	} {
		t.Log(name)
		limited(change)
		call("X-Sandbox-Gateway: limit_reached")
	}
	limited(func(r *driver.LLMKeyedRoute) {
		r.LeaseLimits = sandbox.LLMLimits{Requests: 2, Tokens: 28, USD: cost + 1}
	})
	call("") // the call that reaches a limit may exceed it
	call("X-Sandbox-Gateway: limit_reached")
	limited(func(*driver.LLMKeyedRoute) {})
	for name, left := range map[string]sandbox.NanoUSD{"used up": 2 * cost, "none": 0} {
		t.Log(name)
		k.settings.Cap = &left
		k.set()
		call("X-Sandbox-Gateway: budget_exceeded")
	}
	most := 2*cost + 1
	k.settings.Cap = &most
	k.set()
	k.reserves(call)
}

// reserves: while a call runs, its maximum counts.
func (k *talk) reserves(call func(want string)) {
	k.Helper()
	k.stall("openai")
	call("X-Sandbox-Gateway: reserved")
	k.settings.Cap = nil
	k.set()
	call("")
	k.must(k.worker.Kill(k.Context(), k.h))
	if got := k.settled(sandbox.LLMInterrupted); len(got) != 1 {
		k.Errorf("calls that broke off: %+v", got)
	}
}

// TestALeaseOnCloudflareKeepsItsLimitsPastItsTTL: a renewal lets a sandbox start again that its ttl has ended.
func TestALeaseOnCloudflareKeepsItsLimitsPastItsTTL(t *testing.T) {
	t.Parallel()
	k := newTalk(t, sandbox.NetworkNone)
	r := keyed(sandbox.LLMOpenAI)
	r.LeaseLimits.Requests = 1
	k.settings.Routes["main"] = r
	k.set()
	if said := k.ask("openai", body(false, plainly())); !strings.Contains(said, "200 OK") {
		t.Fatalf("its first call gets %s", said)
	}
	renew := func(ttl time.Duration) {
		t.Helper()
		_, err := k.worker.Touch(t.Context(), k.h, driver.Limits{}, cloudflare.Limits{TTL: ttl})
		k.must(err)
	}
	renew(time.Second)
	if p := k.awaitStopped(k.h); p.Cause != cloudflare.CauseTTL {
		t.Fatalf("it stopped as %+v", p)
	}
	renew(time.Hour)
	k.must(k.worker.Wake(t.Context(), k.h))
	if said := k.ask("openai", body(false, plainly())); !strings.Contains(said, "X-Sandbox-Gateway: limit_reached") {
		t.Errorf("after its ttl and a renewal, another call gets %s", said)
	}
}

// stall begins a call whose answer stalls after its first event, and returns once it stalls.
func (k *talk) stall(api string) {
	k.Helper()
	stalls := plainly()
	stalls.Stall = 1
	k.sh(k.h, fmt.Sprintf(`(%s) >/workspace/said 2>&1 </dev/null &`, callCommand(api, body(true, stalls))))
	<-k.upstream.stalled
}

// settled waits until no call runs in the journal, and returns the calls with an outcome.
func (k *talk) settled(outcome sandbox.LLMOutcome) (found []sandbox.LLMCall) {
	k.Helper()
	testwait.NoError(k, patience, "no call runs, and one is "+string(outcome), func() error {
		running := false
		found = nil
		calls := k.journal()
		for _, c := range calls {
			running = running || c.Outcome == sandbox.LLMRunning
			if c.Outcome == outcome {
				found = append(found, c)
			}
		}
		if running || len(found) == 0 {
			return fmt.Errorf("the journal has %+v", calls)
		}
		return nil
	})
	return found
}

// reserved returns the amount that a call reserves: the bytes that the upstream got, at the highest price of input.
func (k *talk) reserved(call sandbox.LLMCall) sandbox.NanoUSD {
	k.Helper()
	for _, seen := range k.upstream.got() {
		if seen.header.Get("X-Sandbox-Call") == call.ID {
			return sandbox.NanoUSD((len(seen.body)+64)*1250 + 100*10_000)
		}
	}
	k.Fatalf("the upstream got no call %s", call.ID)
	return 0
}

// TestACallOnCloudflareThatBreaksOffIsBilled: an upstream that breaks off, a sandbox that is killed, and a Worker whose
// process is killed, with its Durable Objects.
func TestACallOnCloudflareThatBreaksOffIsBilled(t *testing.T) {
	k := newTalk(t, sandbox.NetworkNone)
	breaks := plainly()
	breaks.Break = 1
	k.ask("responses", body(true, breaks)) // it ends with an event of its own
	k.wantUnknown(1, func(c sandbox.LLMCall) sandbox.NanoUSD { return k.reserved(c) })
	silent := plainly()
	silent.Status = 520 // Cloudflare's answer if a host got a request and broke off
	if said := k.ask("openai", body(false, silent)); !strings.Contains(said, "X-Sandbox-Gateway: upstream_failed") {
		t.Errorf("a call without an answer gets %s", said)
	}
	k.wantUnknown(2, k.reserved)
	k.stall("openai")
	k.server.Reset() // kills workerd; the container keeps running
	k.worker = k.server.Worker()
	k.wantUnknown(3, k.reserved)
	if said := k.ask("openai", body(false, plainly())); !strings.Contains(said, "200 OK") {
		t.Errorf("after a reset, a call gets %s", said)
	}
	k.stall("anthropic")
	k.must(k.worker.Kill(t.Context(), k.h))
	// Anthropic reports the input first, so only the output is reserved.
	k.wantUnknown(4, func(sandbox.LLMCall) sandbox.NanoUSD { return 20*1000 + 100*10_000 })
	if got := k.settled(sandbox.LLMCompleted); len(got) != 1 || got[0].Unknown {
		t.Errorf("the completed calls are %+v", got)
	}
	if rows := k.server.Query("SELECT * FROM llm_sums WHERE kind = 'sandbox'"); len(rows) > 0 {
		t.Errorf("the sums of a killed sandbox are kept: %v", rows)
	}
}

// wantUnknown waits until count calls have broken off, and compares the cost of the latest.
func (k *talk) wantUnknown(count int, cost func(sandbox.LLMCall) sandbox.NanoUSD) {
	k.Helper()
	broken := k.settled(sandbox.LLMInterrupted)
	last := broken[len(broken)-1]
	if len(broken) != count || !last.Unknown || last.Cost != cost(last) || last.EndedAt.IsZero() {
		k.Errorf("%d calls broke off, the latest is %+v, and should cost %s", len(broken), last, cost(last))
	}
}

// TestSandboxesOnCloudflareThatRaceReachALimitExactly: two Durable Objects share one limit.
func TestSandboxesOnCloudflareThatRaceReachALimitExactly(t *testing.T) {
	k := newTalk(t, sandbox.NetworkNone)
	r := keyed(sandbox.LLMOpenAI)
	r.MonthlyLimits.Requests = 5
	k.settings.Routes["main"] = r
	k.set()
	other := k.callers(sandbox.NetworkNone)
	k.must(k.worker.Spawn(t.Context(), other, cloudflare.Limits{}))
	var wait sync.WaitGroup
	said := make(chan string, 2)
	for _, h := range []driver.Handle{k.h, other.Handle} {
		wait.Go(func() {
			said <- k.sh(h, fmt.Sprintf(`for i in $(seq 10); do (%s) & done; wait`, callCommand("openai", body(false, plainly()))))
		})
	}
	wait.Wait()
	answers := <-said + <-said
	refused := strings.Count(answers, "X-Sandbox-Gateway: limit_reached") + strings.Count(answers, "X-Sandbox-Gateway: reserved")
	if refused != 15 {
		t.Errorf("of 20 calls that race for 5, %d are refused by the limit: %s", refused, answers)
	}
	list := k.settled(sandbox.LLMCompleted)
	if sent := len(k.upstream.got()); len(list) != 5 || sent != 5 {
		t.Errorf("20 calls that race for 5 are %d calls sent, and %d in the journal", sent, len(list))
	}
}

// TestADatabaseThatFailsLosesNoCallOnCloudflare: a call that cannot be recorded is not sent. An end that cannot be
// recorded is recorded later. If its Durable Object ends first, the call costs the reserved amount.
func TestADatabaseThatFailsLosesNoCallOnCloudflare(t *testing.T) {
	k := newTalk(t, sandbox.NetworkNone)
	fail := func(what string) (heal func()) {
		k.server.Query("CREATE TRIGGER fails BEFORE " + what + " ON llm_calls BEGIN SELECT RAISE(FAIL, 'full'); END")
		return func() { k.server.Query("DROP TRIGGER fails") }
	}
	heal := fail("INSERT")
	said := k.ask("openai", body(false, plainly()))
	if !strings.Contains(said, "X-Sandbox-Gateway: journal_failed") || len(k.upstream.got()) > 0 {
		t.Errorf("a call that cannot be recorded gets %s, and the upstream got %d calls", said, len(k.upstream.got()))
	}
	heal()
	heal = fail("UPDATE")
	if said := k.ask("openai", body(false, plainly())); !strings.Contains(said, "200 OK") {
		t.Errorf("a call gets %s", said)
	}
	if list := k.journal(); len(list) != 1 || list[0].Outcome != sandbox.LLMRunning {
		t.Errorf("the journal has %+v", list)
	}
	heal()
	tokens, cost := exact(plainly())
	if list := k.settled(sandbox.LLMCompleted); len(list) != 1 || list[0].Tokens != tokens || list[0].Cost != cost {
		t.Errorf("later, the journal has %+v", list)
	}
	heal = fail("UPDATE")
	k.ask("openai", body(false, plainly()))
	k.server.Reset()
	k.worker = k.server.Worker()
	heal()
	k.wantUnknown(1, k.reserved)
}
