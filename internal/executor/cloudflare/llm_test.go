package cloudflare_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
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

// upstream is a server of models. Each request says in its member user how it is answered.
type upstream struct {
	*httptest.Server

	mu   sync.Mutex // guards what follows
	seen []seenCall
	// stalled gets a value for each answer that stalls.
	stalled chan struct{}
}

// seenCall is a request that the upstream got.
type seenCall struct {
	header     http.Header
	body, path string
	input      int64
	output     int64
}

// wish says how the upstream answers. Break and Stall are the event at which it breaks off or stalls; -1 is none.
type wish struct {
	Input, Output, Events, Status int64
	Break, Stall                  int64
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{stalled: make(chan struct{}, 100)}
	u.Server = httptest.NewServer(http.HandlerFunc(u.serve))
	t.Cleanup(u.Close)
	t.Cleanup(u.CloseClientConnections)
	return u
}

func (u *upstream) host(t *testing.T) string {
	t.Helper()
	at, err := url.Parse(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at.Host
}

// got returns the requests so far.
func (u *upstream) got() []seenCall {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]seenCall(nil), u.seen...)
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body) // what is cut off is no JSON
	var body struct {
		User   string `json:"user"`
		Stream bool   `json:"stream"`
	}
	x := wish{Input: 20, Output: 7, Events: 3, Break: -1, Stall: -1}
	_ = json.Unmarshal(text, &body)
	_ = json.Unmarshal([]byte(body.User), &x) // without one, the default is wished
	u.mu.Lock()
	u.seen = append(u.seen, seenCall{r.Header.Clone(), string(text), r.URL.RequestURI(), x.Input, x.Output})
	u.mu.Unlock()
	if x.Status != 0 {
		w.WriteHeader(int(x.Status))
		_, _ = fmt.Fprintf(w, `{"error":"no, not with %s"}`, secretKey)
		return
	}
	pieces := answerOf(r.URL.Path, body.Stream, x)
	w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[body.Stream])
	for i, piece := range pieces {
		switch int64(i) {
		case x.Break:
			panic(http.ErrAbortHandler)
		case x.Stall:
			u.stalled <- struct{}{}
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, piece) // the caller may have gone
		_ = http.NewResponseController(w).Flush()
	}
}

// answerOf returns the pieces of an answer.
func answerOf(path string, stream bool, x wish) []string {
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d}`, x.Input, x.Output)
	first, text, last := "", `{"choices":[{"delta":{"content":"a word"}}]}`, `{"choices":[],`+usage+`}`
	end := "[DONE]"
	switch path {
	case "/v1/responses":
		usage = fmt.Sprintf(`"usage":{"input_tokens":%d,"output_tokens":%d}`, x.Input, x.Output)
		first, last, end = `{"type":"response.created","response":{"usage":null}}`,
			`{"type":"response.completed","response":{"output":[],`+usage+`}}`, ""
	case "/v1/messages":
		usage = fmt.Sprintf(`"usage":{"input_tokens":%d,"output_tokens":%d}`, x.Input, x.Output)
		first = fmt.Sprintf(`{"type":"message_start","message":{"usage":{"input_tokens":%d,"output_tokens":1}}}`, x.Input)
		text = `{"type":"content_block_delta","delta":{"text":"a word"}}`
		last, end = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},`+usage+`}`, `{"type":"message_stop"}`
	}
	if !stream {
		return []string{`{"text":"`, strings.Repeat("word ", int(x.Events)), `",` + usage + `}`}
	}
	var pieces []string
	add := func(data string) {
		if data != "" {
			pieces = append(pieces, "data: "+data+"\n\n")
		}
	}
	add(first)
	for range x.Events {
		add(text)
	}
	add(last)
	add(end)
	return pieces
}

// talk is a world with an upstream, and a sandbox that calls models.
type talk struct {
	*world
	upstream *upstream
	ref      driver.EnvironmentRef
	h        driver.Handle
	settings driver.LLMSettings
}

func newTalk(t *testing.T, mode sandbox.NetworkMode) *talk {
	t.Helper()
	u := newUpstream(t)
	server := cloudflaretest.Start(t, cloudflaretest.Config{Outside: u.host(t)})
	k := &talk{world: &world{t, server, server.Worker()}, upstream: u}
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

// callers is the specification of a sandbox that calls models.
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

// endpoints has an endpoint of each dialect: the variable with its address, and the rest of its path.
var endpoints = map[string][2]string{
	"openai": {"OPENAI_BASE_URL", "/chat/completions"}, "responses": {"OPENAI_BASE_URL", "/responses"},
	"anthropic": {"ANTHROPIC_BASE_URL", "/v1/messages"}, "openrouter": {"OPENROUTER_BASE_URL", "/chat/completions"},
}

// body returns a request that wishes for an answer.
func body(stream bool, x wish) string {
	text, _ := json.Marshal(x) // it has numbers only
	quoted, _ := json.Marshal(string(text))
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":100,"max_output_tokens":100,`+
		`"stream":%t,"user":%s}`, stream, quoted)
}

// ask calls a model from the sandbox, and returns the answer with its headers.
func (k *talk) ask(api, body string, header ...string) string {
	k.Helper()
	return k.sh(k.h, k.command(api, body, header...))
}

// command is a shell command that calls a model.
func (k *talk) command(api, body string, header ...string) string {
	to := endpoints[api]
	head := append([]string{"Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body))}, header...)
	return fmt.Sprintf(`url=$%s%s; host=${url#http://}; path=/${host#*/}; host=${host%%%%/*}
		printf 'POST %%s HTTP/1.1\r\nHost: %%s\r\nConnection: close\r\n%%b\r\n%%s' $path $host '%s' '%s' | nc -w 100 $host 80; true`,
		to[0], to[1], strings.Join(head, `\r\n`)+`\r\n`, body)
}

// journal returns the calls by the journal, in order of their beginning, each as it stands last.
func (k *talk) journal() []sandbox.LLMCall {
	k.Helper()
	var list []sandbox.LLMCall
	at := map[string]int{}
	for after := (sandbox.GatewayPosition{}); ; {
		lines, _, err := k.worker.LLMCalls(k.Context(), k.ref, after)
		k.must(err)
		if len(lines) == 0 {
			return list
		}
		for _, l := range lines {
			if !l.After(after) {
				k.Fatalf("line %+v comes after %+v", l.GatewayPosition, after)
			}
			after = l.GatewayPosition
			if i, ok := at[l.ID]; ok {
				list[i] = l.LLMCall
				continue
			}
			at[l.ID] = len(list)
			list = append(list, l.LLMCall)
		}
	}
}

func TestASandboxOnCloudflareCallsModelsWithoutTheirKey(t *testing.T) {
	k := newTalk(t, sandbox.NetworkNone)
	want := sandbox.LLMTokens{Input: 20, Output: 7}
	for _, api := range []string{"openai", "responses", "anthropic", "openrouter"} {
		for _, stream := range []bool{false, true} {
			said := k.ask(api, body(stream, wish{Input: 20, Output: 7, Events: 3, Break: -1, Stall: -1}),
				"Authorization: Bearer mine", "X-Sandbox-Lease: other", "X-Sandbox-Session: game:7")
			if !strings.Contains(said, "200 OK") || !strings.Contains(said, "word") {
				t.Errorf("%s, stream %t: it gets %s", api, stream, said)
			}
			if api == "openai" && stream && strings.Contains(said, "usage") {
				t.Errorf("it gets the usage that it has not asked for: %s", said)
			}
			list := k.journal()
			if len(list) == 0 {
				t.Fatalf("%s, stream %t: the journal has no call", api, stream)
			}
			call := list[len(list)-1]
			if call.Outcome != sandbox.LLMCompleted || call.Tokens != want || call.Unknown || call.Status != 200 ||
				call.Cost != pricing.Tokens(modelM(), want) || call.Session != "game:7" || call.LeaseID != k.spec().LeaseID ||
				call.SandboxID != k.h.SandboxID || call.Generation != 3 || call.EndedAt.Before(call.StartedAt) {
				t.Errorf("%s, stream %t: the journal has %+v", api, stream, call)
			}
		}
	}
	t.Logf("%+v", k.upstream.got()[0])
}
