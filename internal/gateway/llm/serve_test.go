package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestACallGetsTheKeyAndIsRecorded(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		api          sandbox.LLMAPI
		path, body   string
		answer       http.HandlerFunc
		wantBody     string // expected body of the answer; "" means any
		tokens       sandbox.LLMTokens
		cost         sandbox.NanoUSD
		header, want string // headers of the key
	}{
		"chat": {sandbox.LLMOpenAI, chatPath, chatBody, say(`{"choices":[],` + chatUsage + `}`),
			`{"choices":[],` + chatUsage + `}`, chatTokens, chatCost, "Authorization", "Bearer " + secretKey},
		"chat whose reasoning is only in the total": {sandbox.LLMOpenAI, chatPath, chatBody,
			say(`{"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":17}}`), "",
			sandbox.LLMTokens{Input: 10, Output: 7}, 80_000, "", ""},
		"openrouter": {sandbox.LLMOpenRouter, chatPath, chatBody, say(`{` + chatUsage + `}`), "", chatTokens, chatCost,
			"Authorization", "Bearer " + secretKey},
		"responses": {sandbox.LLMOpenAI, responsesPath, `{"model":"m","input":"hi"}`,
			say(`{"output":[{"usage":{"input_tokens":9999}}],"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":5},"output_tokens":7}}`),
			"", chatTokens, chatCost, "Authorization", "Bearer " + secretKey},
		"embeddings": {sandbox.LLMOpenAI, embedPath, `{"model":"m","input":["hi"]}`,
			say(`{"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}`), "", sandbox.LLMTokens{Input: 8}, 8000, "", ""},
		"messages": {sandbox.LLMAnthropic, messagesPath, messageBody,
			say(`{"usage":{"input_tokens":10,"cache_read_input_tokens":20,"cache_creation_input_tokens":4,"output_tokens":3}}`),
			"", sandbox.LLMTokens{Input: 10, CachedInput: 20, CacheWrite: 4, Output: 3}, 10_000 + 2000 + 5000 + 30_000,
			"X-Api-Key", secretKey},
		"a stream of chat": {sandbox.LLMOpenAI, chatPath, chatStream,
			stream(event(`{"choices":[{"delta":{"content":"a"}}],"usage":null}`), event(`{"choices":[],%s}`, chatUsage),
				event("[DONE]")),
			event(`{"choices":[{"delta":{"content":"a"}}],"usage":null}`) + "\n\n" + event("[DONE]") + "\n\n",
			chatTokens, chatCost, "", ""},
		"a stream of responses": {sandbox.LLMOpenAI, responsesPath, `{"model":"m","input":"hi","stream":true}`,
			stream("event: response.output_text.delta\n"+event(`{"type":"response.output_text.delta","delta":"\"usage\":{"}`),
				event(`{"type":"response.completed","response":{"output":[{"a":1}],"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":5},"output_tokens":7}}}`)),
			"", chatTokens, chatCost, "", ""},
		"a stream of messages": {sandbox.LLMAnthropic, messagesPath, messageEvent,
			stream(event(`{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":20,"cache_creation_input_tokens":4,"output_tokens":1}}}`),
				event(`{"type":"ping"}`),
				event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`),
				event(`{"type":"message_stop"}`)),
			"", sandbox.LLMTokens{Input: 10, CachedInput: 20, CacheWrite: 4, Output: 3}, 10_000 + 2000 + 5000 + 30_000, "", ""},
	} {
		for _, address := range []string{secure, plain} {
			t.Run(name+" to "+address, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.set(config(row.api, address))
				w.out.serve(row.answer)
				a := w.post(row.path, row.body)
				if a.err != nil || a.status != http.StatusOK || row.wantBody != "" && a.body != row.wantBody {
					t.Fatalf("the answer is %+v", a)
				}
				c := w.last()
				if c.Outcome != sandbox.LLMCompleted || c.Unknown || c.Tokens != row.tokens || c.Cost != row.cost ||
					c.Status != http.StatusOK || c.Route != "main" || c.Model != "m" || c.LeaseID != "lease-1" ||
					c.Generation != 3 || c.SandboxID != "box-1" || c.AgentDID != "did:plc:ann" || c.EnvironmentID != "env-1" ||
					c.StartedAt.IsZero() || c.EndedAt.Before(c.StartedAt) {
					t.Errorf("the record is %+v", c)
				}
				got := w.out.got()
				if len(got) != 1 || row.header != "" && got[0].header.Get(row.header) != row.want {
					t.Fatalf("the upstream got %+v", got)
				}
				if want := map[string]string{secure: "HTTP/2.0", plain: "HTTP/1.1"}[address]; got[0].proto != want {
					t.Errorf("the protocol is %s, want %s", got[0].proto, want)
				}
				hidden(t, "the answer", a.body+asJSON(t, a.header))
				hidden(t, "the status", asJSON(t, w.broker.Status()))
				w.hiddenOnDisk()
			})
		}
	}
}

func TestTheJournalKnowsACallBeforeTheUpstreamDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, plain))
	var before []sandbox.LLMCall
	w.out.serve(func(rw http.ResponseWriter, r *http.Request) {
		before = w.calls()
		say(`{`+chatUsage+`}`)(rw, r)
	})
	w.post(chatPath, chatBody)
	// One token for each byte of the body and 64 for its format, in the most expensive class of input, and 100 tokens of
	// output.
	want := sandbox.NanoUSD((len(chatBody)+64)*1250 + 100*10_000)
	if len(before) != 1 || before[0].Outcome != sandbox.LLMRunning || before[0].Cost != want ||
		!before[0].EndedAt.IsZero() {
		t.Errorf("it knew %+v, want a cost of %s", before, want)
	}
	if list := w.calls(); len(list) != 1 || list[0].ID != before[0].ID {
		t.Errorf("at the end, it knows %+v", list)
	}
}

func TestAnUpstreamGetsOnlyAllowedHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMAnthropic, plain))
	w.caller.Store(&llm.Caller{Sandbox: "box-1", Agent: "did:plc:ann\r\nX-Evil: 1", Lease: "catan 7", Generation: 3})
	w.out.serve(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Set-Cookie", "a=b")
		rw.Header().Set("Request-Id", "req-1")
		say(`{"usage":{"input_tokens":1,"output_tokens":1}}`)(rw, r)
	})
	a := w.post(messagesPath+"?beta=true", messageBody,
		"Authorization", "Bearer mine", "X-Api-Key", "mine", "Cookie", "c=d", "Openai-Organization", "org", "Openai-Project", "p",
		"X-Litellm-Tags", "t", "X-Sandbox-Lease", "other", "X-Sandbox-Call", "other", "X-Sandbox-Session", "game:7", "X-Forwarded-For", "1.2.3.4",
		"Anthropic-Beta", "context-1m-2025-08-07, tools-1", "X-Stainless-Lang", "js", "Idempotency-Key", "once",
		"User-Agent", "sdk/1", "Accept-Encoding", "gzip")
	if a.status != http.StatusOK || a.header.Get("Set-Cookie") != "" || a.header.Get("Request-Id") != "req-1" {
		t.Errorf("the answer is %+v", a)
	}
	got := w.out.got()[0]
	call := w.last()
	want := map[string]string{
		"X-Api-Key": secretKey, "Anthropic-Version": "2023-06-01", "Anthropic-Beta": "tools-1", "X-Stainless-Lang": "js",
		"Idempotency-Key": "once", "User-Agent": "sdk/1", "Accept-Encoding": "identity", "Content-Type": "application/json",
		"X-Sandbox-Lease": "catan%207", "X-Sandbox-Environment": "env-1", "X-Sandbox-Agent": "did:plc:ann%0D%0AX-Evil:%201",
		"X-Sandbox-Attempt": "3", "X-Sandbox-Account": "acct-1", "X-Sandbox-Call": call.ID,
		"X-Sandbox-Session": "game:7",
		"Content-Length":    got.header.Get("Content-Length"),
	}
	for name := range got.header {
		if _, ok := want[name]; !ok {
			t.Errorf("the upstream also got %s: %q", name, got.header[name])
		}
	}
	for name, v := range want {
		if got.header.Get(name) != v {
			t.Errorf("%s is %q, want %q", name, got.header[name], v)
		}
	}
	if got.path != "/v1/messages?beta=true" {
		t.Errorf("the address is %s", got.path)
	}
	if call.Session != "game:7" {
		t.Errorf("the record is %+v", call)
	}
	w.post(messagesPath, messageBody, "X-Sandbox-Session", "no session")
	if got, call := w.out.got()[1], w.last(); got.header.Get("X-Sandbox-Session") != "" || call.Session != "" {
		t.Errorf("a bad session arrives as %q and is recorded as %q", got.header.Get("X-Sandbox-Session"), call.Session)
	}
}

func TestWhatWasCheckedIsWhatIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, plain))
	w.out.serve(say(`{` + chatUsage + `}`))
	a := w.post(chatPath, `{"model":"dear","model":"m","messages":[],"stream_options":{"include_usage":false,"include_usage":true},`+
		`"tools":[{"type":"web_search","type":"function","function":{"name":"f"}}]}`)
	want := `{"messages":[],"model":"m","stream_options":{"include_usage":true},` +
		`"tools":[{"function":{"name":"f"},"type":"function"}]}`
	if got := w.out.got(); a.status != http.StatusOK || len(got) != 1 || got[0].body != want {
		t.Fatalf("%+v; it sent %+v", a, got)
	}
}

func TestRefusedRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	large := `{"model":"m","messages":"` + strings.Repeat("x", 16<<20) + `"}`
	with := func(parameter string) string { return `{"model":"m","max_tokens":10,` + parameter + `}` }
	for name, row := range map[string]struct {
		api        sandbox.LLMAPI
		path, body string
		status     int
		code       string
	}{
		"another route":          {sandbox.LLMOpenAI, "/llm/other/v1/chat/completions", chatBody, 404, "unknown_route"},
		"no route":               {sandbox.LLMOpenAI, "/llm/", chatBody, 404, "unknown_route"},
		"another address":        {sandbox.LLMOpenAI, "/llm/main/v1/images", chatBody, 404, "unknown_endpoint"},
		"a path with dots":       {sandbox.LLMOpenAI, "/llm/main/v1/../v1/responses", chatBody, 404, "unknown_endpoint"},
		"responses elsewhere":    {sandbox.LLMOpenRouter, responsesPath, chatBody, 404, "unknown_endpoint"},
		"chat at Anthropic":      {sandbox.LLMAnthropic, chatPath, chatBody, 404, "unknown_endpoint"},
		"another model":          {sandbox.LLMOpenAI, chatPath, `{"model":"M"}`, 403, "model_not_allowed"},
		"no model":               {sandbox.LLMOpenAI, chatPath, `{}`, 403, "model_not_allowed"},
		"a model that is a list": {sandbox.LLMOpenAI, chatPath, `{"model":["m"]}`, 400, "invalid"},
		"no JSON":                {sandbox.LLMOpenAI, chatPath, `model=m`, 400, "invalid"},
		"a list":                 {sandbox.LLMOpenAI, chatPath, `[1]`, 400, "invalid"},
		"null":                   {sandbox.LLMOpenAI, chatPath, `null`, 400, "invalid"},
		"nothing":                {sandbox.LLMOpenAI, chatPath, ``, 400, "invalid"},
		"two objects":            {sandbox.LLMOpenAI, chatPath, chatBody + `{}`, 400, "invalid"},
		"another case":           {sandbox.LLMOpenAI, chatPath, with(`"Model":"dear"`), 400, "invalid"},
		"a key that folds to s":  {sandbox.LLMOpenAI, chatPath, with(`"ſtream":true`), 400, "invalid"},
		"too large":              {sandbox.LLMOpenAI, chatPath, large, 413, "too_large"},
		"a limit of 0":           {sandbox.LLMOpenAI, chatPath, `{"model":"m","max_tokens":0}`, 400, "invalid"},
		"a limit below 0":        {sandbox.LLMOpenAI, chatPath, `{"model":"m","max_tokens":-5}`, 400, "invalid"},
		"a limit that is text":   {sandbox.LLMOpenAI, chatPath, `{"model":"m","max_tokens":"5"}`, 400, "invalid"},
		"n of 0":                 {sandbox.LLMOpenAI, chatPath, with(`"n":0`), 400, "invalid"},
		"n of 1000":              {sandbox.LLMOpenAI, chatPath, with(`"n":1000`), 400, "invalid"},
		"stream 1":               {sandbox.LLMOpenAI, chatPath, with(`"stream":1`), 400, "invalid"},
		"background":             {sandbox.LLMOpenAI, responsesPath, with(`"background":true`), 400, "unsupported"},
		"a tier":                 {sandbox.LLMOpenAI, chatPath, with(`"service_tier":"priority"`), 400, "unsupported"},
		"web search":             {sandbox.LLMOpenAI, chatPath, with(`"web_search_options":{}`), 400, "unsupported"},
		"a tool of OpenAI":       {sandbox.LLMOpenAI, responsesPath, with(`"tools":[{"type":"web_search"}]`), 400, "unsupported"},
		"a tool without a type":  {sandbox.LLMOpenAI, chatPath, with(`"tools":[{"name":"x"}]`), 400, "unsupported"},
		"a tool's type twice": {sandbox.LLMOpenAI, chatPath,
			with(`"tools":[{"type":"function","Type":"web_search"}]`), 400, "invalid"},
		"a stored prompt": {sandbox.LLMOpenAI, responsesPath, with(`"prompt":{"id":"p"}`), 400, "unsupported"},
		"audio":           {sandbox.LLMOpenAI, chatPath, with(`"modalities":["text","audio"]`), 400, "unsupported"},
		"audio input": {sandbox.LLMOpenAI, chatPath,
			with(`"messages":[{"content":[{"type":"input_\u0061udio"}]}]`), 400, "unsupported"},
		"another address of LiteLLM": {sandbox.LLMOpenAI, chatPath, with(`"api_base":"http://x"`), 400, "unsupported"},
		"a tool of Anthropic": {sandbox.LLMAnthropic, messagesPath,
			with(`"tools":[{"type":"web_search_20250305"}]`), 400, "unsupported"},
		"MCP":           {sandbox.LLMAnthropic, messagesPath, with(`"mcp_servers":[]`), 400, "unsupported"},
		"a container":   {sandbox.LLMAnthropic, messagesPath, with(`"container":"c"`), 400, "unsupported"},
		"a fast model":  {sandbox.LLMAnthropic, messagesPath, with(`"speed":"fast"`), 400, "unsupported"},
		"a place":       {sandbox.LLMAnthropic, messagesPath, with(`"inference_geo":"us"`), 400, "unsupported"},
		"plugins":       {sandbox.LLMOpenRouter, chatPath, with(`"plugins":[]`), 400, "unsupported"},
		"other models":  {sandbox.LLMOpenRouter, chatPath, with(`"models":["m","dear"]`), 400, "unsupported"},
		"a route of it": {sandbox.LLMOpenRouter, chatPath, with(`"route":"fallback"`), 400, "unsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set(config(row.api, plain))
			a := w.post(row.path, row.body)
			if a.status != row.status || a.reason() != row.code {
				t.Fatalf("it says %d %s %s %v", a.status, a.reason(), a.body, a.err)
			}
			checkErrorForm(t, row.api, row.path, row.code, a.body)
			if n := len(w.out.got()); n > 0 {
				t.Errorf("the upstream got %d requests", n)
			}
			if list := w.calls(); len(list) > 0 {
				t.Errorf("the journal has %+v", list)
			}
		})
	}
}

// checkErrorForm checks that an API's clients understand an error.
func checkErrorForm(t *testing.T, api sandbox.LLMAPI, path, code, body string) {
	t.Helper()
	var e struct {
		Type  string
		Error struct{ Message, Type, Code string }
	}
	must(t, json.Unmarshal([]byte(body), &e))
	if e.Error.Message == "" || e.Error.Type == "" {
		t.Errorf("the error is %s", body)
	}
	if api == sandbox.LLMAnthropic && strings.HasPrefix(path, "/llm/main/") {
		if e.Type != "error" {
			t.Errorf("the error is %s", body)
		}
	} else if e.Error.Code != code {
		t.Errorf("the error is %s", body)
	}
}

func TestAGatewayWithoutRoutesOrALeaseRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if a := w.post(messagesPath, messageBody); a.status != 503 || a.reason() != "not_configured" {
		t.Errorf("without routes, it says %+v", a)
	}
	w.set(config(sandbox.LLMAnthropic, plain))
	w.caller.Store(&llm.Caller{Sandbox: "box-1"})
	if a := w.post(messagesPath, messageBody); a.status != 503 || a.reason() != "not_configured" {
		t.Errorf("without a lease, it says %+v", a)
	}
}

func TestModelsAreListedWithoutTheUpstream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for api, want := range map[sandbox.LLMAPI]string{
		sandbox.LLMOpenAI:    `{"data":[{"created":0,"id":"m","object":"model","owned_by":"sandbox"}],"object":"list"}`,
		sandbox.LLMAnthropic: `{"data":[{"created_at":"1970-01-01T00:00:00Z","display_name":"m","id":"m","type":"model"}],"first_id":"m","has_more":false,"last_id":"m"}`,
	} {
		w.set(config(api, plain))
		res, err := w.front.Client().Get(w.front.URL + "/llm/main/v1/models")
		must(t, err)
		b, err := io.ReadAll(res.Body)
		must(t, errors.Join(err, res.Body.Close()))
		if strings.TrimSpace(string(b)) != want || res.StatusCode != 200 {
			t.Errorf("%s: %d %s", api, res.StatusCode, b)
		}
	}
	if len(w.out.got()) > 0 || len(w.calls()) > 0 {
		t.Error("a list of models is a call")
	}
}

func TestHowACallEndsSaysWhatItCosts(t *testing.T) {
	t.Parallel()
	start := event(`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`)
	final := event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`)
	usage := event(`{"choices":[],%s}`, chatUsage)
	text := event(`{"choices":[{"delta":{}}]}`)
	// This is what a call reserves; see TestTheJournalKnowsACallBeforeTheUpstreamDoes. The gateway asks a chat stream for
	// its usage.
	reserved := func(body string) sandbox.NanoUSD { return sandbox.NanoUSD((len(body)+64)*1250 + 100*10_000) }
	asked := chatStream + `,"stream_options":{"include_usage":true}`
	for name, row := range map[string]struct {
		api        sandbox.LLMAPI
		path, body string
		answer     http.HandlerFunc
		status     int // the client's status; 0 if its answer breaks off
		reason     string
		outcome    sandbox.LLMOutcome
		unknown    bool
		tokens     sandbox.LLMTokens
		cost       sandbox.NanoUSD
	}{
		"no usage": {sandbox.LLMOpenAI, chatPath, chatBody, say(`{"choices":[]}`), 200, "", sandbox.LLMCompleted, true,
			sandbox.LLMTokens{}, reserved(chatBody)},
		"usage below 0": {sandbox.LLMOpenAI, chatPath, chatBody,
			say(`{"usage":{"prompt_tokens":-5,"completion_tokens":1}}`), 200, "", sandbox.LLMCompleted, true,
			sandbox.LLMTokens{}, reserved(chatBody)},
		"more cached than there is": {sandbox.LLMOpenAI, chatPath, chatBody,
			say(`{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":6}}}`), 200, "",
			sandbox.LLMCompleted, true, sandbox.LLMTokens{}, reserved(chatBody)},
		"absurd usage": {sandbox.LLMOpenAI, chatPath, chatBody,
			say(`{"usage":{"prompt_tokens":5000000000,"completion_tokens":1}}`), 200, "", sandbox.LLMCompleted, true,
			sandbox.LLMTokens{}, reserved(chatBody)},
		"no answer in JSON": {sandbox.LLMOpenAI, chatPath, chatBody, say(`<html>`), 200, "", sandbox.LLMCompleted, true,
			sandbox.LLMTokens{}, reserved(chatBody)},
		"an error": {sandbox.LLMOpenAI, chatPath, chatBody, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, "slow down, "+r.Header.Get("Authorization"))
		}, 429, "", sandbox.LLMRejected, false, sandbox.LLMTokens{}, 0},
		"a redirect": {sandbox.LLMOpenAI, chatPath, chatBody, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.example/", http.StatusTemporaryRedirect)
		}, 502, "upstream_redirect", sandbox.LLMRejected, false, sandbox.LLMTokens{}, 0},
		"a reset before the answer": {sandbox.LLMOpenAI, chatPath, chatBody, abort, 502, "upstream_failed",
			sandbox.LLMInterrupted, true, sandbox.LLMTokens{}, reserved(chatBody)},
		"a reset in an answer": {sandbox.LLMOpenAI, chatPath, chatBody, then(say(`{"choices":`), abort), 0, "",
			sandbox.LLMInterrupted, true, sandbox.LLMTokens{}, reserved(chatBody)},
		"a reset in a stream": {sandbox.LLMOpenAI, chatPath, chatStream, then(stream(text), abort), 0, "",
			sandbox.LLMInterrupted, true, sandbox.LLMTokens{}, reserved(asked)},
		"a reset after the usage": {sandbox.LLMOpenAI, chatPath, chatStream, then(stream(text, usage), abort), 0, "",
			sandbox.LLMInterrupted, false, chatTokens, chatCost},
		"a reset after the end": {sandbox.LLMOpenAI, chatPath, chatStream, then(stream(text, usage, event("[DONE]")), abort),
			0, "", sandbox.LLMCompleted, false, chatTokens, chatCost},
		"usage that grows": {sandbox.LLMOpenAI, chatPath, chatStream,
			then(stream(event(`{"choices":[{}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`)), abort), 0, "",
			sandbox.LLMInterrupted, true, sandbox.LLMTokens{Input: 5, Output: 1}, reserved(asked)},
		"a stream without an end": {sandbox.LLMOpenAI, chatPath, chatStream, stream(text, usage), 200, "",
			sandbox.LLMCompleted, false, chatTokens, chatCost},
		"a reset after Anthropic's start": {sandbox.LLMAnthropic, messagesPath, messageEvent, then(stream(start), abort), 0,
			"", sandbox.LLMInterrupted, true, sandbox.LLMTokens{Input: 10, Output: 1}, 10*1000 + 100*10_000},
		"a reset before Anthropic's start": {sandbox.LLMAnthropic, messagesPath, messageEvent,
			then(stream(event(`{"type":"ping"}`)), abort), 0, "", sandbox.LLMInterrupted, true, sandbox.LLMTokens{},
			reserved(messageEvent)},
		"a reset after Anthropic's usage": {sandbox.LLMAnthropic, messagesPath, messageEvent,
			then(stream(start, final), abort), 0, "", sandbox.LLMInterrupted, false,
			sandbox.LLMTokens{Input: 10, Output: 3}, 10*1000 + 3*10_000},
		"an error in Anthropic's stream": {sandbox.LLMAnthropic, messagesPath, messageEvent,
			stream(start, event(`{"type":"error","error":{"type":"overloaded_error"}}`)), 200, "", sandbox.LLMInterrupted, true,
			sandbox.LLMTokens{Input: 10, Output: 1}, 10*1000 + 100*10_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set(config(row.api, plain))
			w.out.serve(row.answer)
			a := w.post(row.path, row.body, "User-Agent", "x")
			if broken := a.err != nil; broken != (row.status == 0) || !broken && (a.status != row.status || a.reason() != row.reason) {
				t.Errorf("the client sees %+v", a)
			}
			hidden(t, "the answer", a.body)
			c := w.last()
			if c.Outcome != row.outcome || c.Unknown != row.unknown || c.Tokens != row.tokens || c.Cost != row.cost {
				t.Errorf("the record is %+v; want a cost of %s", c, row.cost)
			}
		})
	}
}

func TestAnUpstreamMayAnswerBeforeItHasReadTheBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, plain))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	w.out.servers[netip.MustParseAddrPort("203.0.114.2:80")] = l.Addr().String()
	go func() { // it ends with the listener, or with its only connection
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.ReadFull(conn, make([]byte, 1000))
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\n\r\ntoo ")
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // an answer that comes in two parts
		_, _ = io.WriteString(conn, "long")
		_, _ = io.Copy(io.Discard, conn)
	}()
	a := w.post(chatPath, `{"model":"m","messages":"`+strings.Repeat("x", 15<<20)+`"}`)
	if a.status != http.StatusRequestEntityTooLarge || a.body != "too long" {
		t.Errorf("it says %+v", a)
	}
	if c := w.last(); c.Outcome != sandbox.LLMRejected || c.Cost != 0 || c.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("the record is %+v", c)
	}
}

func TestAnUpstreamThatCannotBeReachedCostsNothing(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"no server listens":       "http://down.example",
		"no such name":            "http://none.example",
		"a private address":       "http://private.example",
		"metadata":                "http://metadata.example",
		"another certificate":     "https://wrong.example",
		"a port without a server": "https://llm.example.com:444",
		"TLS where there is none": "https://plain.example:80",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set(config(sandbox.LLMOpenAI, address))
			a := w.post(chatPath, chatBody)
			if a.status != http.StatusBadGateway || a.reason() != "upstream_unreachable" {
				t.Errorf("it says %+v", a)
			}
			hidden(t, "the answer", a.body)
			if c := w.last(); c.Outcome != sandbox.LLMUnsent || c.Cost != 0 || c.Unknown || c.Status != 0 {
				t.Errorf("the record is %+v", c)
			}
		})
	}
}

func TestAPrivateUpstreamNeedsItsRange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, "http://private.example"))
	w.out.serve(say(`{` + chatUsage + `}`))
	must(t, w.broker.SetPrivate([]string{"10.1.0.0/16"}))
	if a := w.post(chatPath, chatBody); a.status != http.StatusOK {
		t.Errorf("with its range: %+v", a)
	}
	must(t, w.broker.SetPrivate(nil))
	if a := w.post(chatPath, chatBody); a.reason() != "upstream_unreachable" {
		t.Errorf("without it: %+v", a)
	}
}

func TestAClientThatLeavesEndsTheCall(t *testing.T) {
	t.Parallel()
	for _, address := range []string{plain, secure} {
		w := newWorld(t)
		w.set(config(sandbox.LLMAnthropic, address))
		left := make(chan struct{})
		w.out.serve(then(stream(event(`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`)),
			func(_ http.ResponseWriter, r *http.Request) { hang(nil, r); close(left) }))
		ctx, cancel := context.WithCancel(t.Context())
		res, _ := w.firstLine(ctx, messagesPath, messageEvent)
		if s := w.broker.Status(); s.Running != 1 {
			t.Errorf("the status is %+v", s)
		}
		cancel()
		must(t, res.Body.Close())
		<-left
		if c := w.last(); c.Outcome != sandbox.LLMInterrupted || !c.Unknown || c.Cost != 10*1000+100*10_000 {
			t.Errorf("the record is %+v", c)
		}
	}
}

func TestAnUpstreamThatIsSilentEndsTheCall(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"before the answer": hang,
		"in the answer":     then(stream(event(`{"choices":[{}]}`)), hang),
	} {
		w := newWorld(t, func(o *llm.Options) { o.Idle = time.Second })
		w.set(config(sandbox.LLMOpenAI, plain))
		w.out.serve(answer)
		a := w.post(chatPath, chatStream)
		if name == "before the answer" && (a.status != http.StatusGatewayTimeout || a.header.Get("X-Should-Retry") != "false") {
			t.Errorf("%s, it says %+v", name, a)
		}
		if c := w.last(); c.Outcome != sandbox.LLMInterrupted || !c.Unknown || c.Cost == 0 {
			t.Errorf("%s, the record is %+v", name, c)
		}
	}
}

func TestAStreamIsPassedOnAsItArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, secure))
	next := make(chan struct{})
	w.out.serve(then(stream(event(`{"choices":[{"delta":{"content":"one"}}]}`)), func(rw http.ResponseWriter, r *http.Request) {
		<-next
		stream(event(`{"choices":[],%s}`, chatUsage), event("[DONE]"))(rw, r)
	}))
	res, in := w.firstLine(t.Context(), chatPath, chatStream)
	close(next)
	rest, err := io.ReadAll(in)
	must(t, errors.Join(err, res.Body.Close()))
	if string(rest) != "\ndata: [DONE]\n\n" {
		t.Errorf("then came %q", rest)
	}
	if c := w.last(); c.Tokens != chatTokens || c.Outcome != sandbox.LLMCompleted {
		t.Errorf("the record is %+v", c)
	}
}

func TestAClientThatAsksForTheUsageGetsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, plain))
	usage := event(`{"choices":[],%s}`, chatUsage)
	w.out.serve(stream(usage, event("[DONE]")))
	a := w.post(chatPath, strings.Replace(chatStream, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1))
	if a.body != usage+"\n\ndata: [DONE]\n\n" {
		t.Errorf("it got %q", a.body)
	}
}

func TestLargeAnswersPassUnchanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, plain))
	large := strings.Repeat(`x\"`, 1<<18)
	answer := `{"choices":[{"message":"` + large + `"}],` + chatUsage + `}`
	w.out.serve(say(answer))
	if a := w.post(chatPath, chatBody); a.body != answer {
		t.Errorf("the answer has %d bytes, want %d", len(a.body), len(answer))
	}
	chunk := event(`{"choices":[{"delta":{"content":"%s"}}]}`, large)
	w.out.serve(stream(chunk, event(`{"choices":[],%s}`, chatUsage), event("[DONE]")))
	if a := w.post(chatPath, chatStream); a.body != chunk+"\n\ndata: [DONE]\n\n" {
		t.Errorf("the stream has %d bytes, want %d more than %d", len(a.body), 16, len(chunk))
	}
	for _, c := range w.ended() {
		if c.Tokens != chatTokens {
			t.Errorf("the record is %+v", c)
		}
	}
}

func TestWhatTheBodyDoesNotContainIsReservedInFull(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		path, body string
		full       bool
	}{
		"text":              {chatPath, `{"model":"m","messages":[{"content":"image_url"}],"metadata":{"source":"x"}}`, false},
		"an image":          {chatPath, `{"model":"m","messages":[{"content":[{"image_url":{"url":"https://x"}}]}]}`, true},
		"escaped":           {chatPath, `{"model":"m","messages":[{"content":[{"image\u005furl":{"url":"data:x"}}]}]}`, true},
		"a file":            {responsesPath, `{"model":"m","input":[{"content":[{"file_id":"f"}]}]}`, true},
		"an earlier answer": {responsesPath, `{"model":"m","input":"x","previous_response_id":"r"}`, true},
		"a conversation":    {responsesPath, `{"model":"m","input":"x","conversation":"c"}`, true},
		"an item":           {responsesPath, `{"model":"m","input":[{"id":"msg_1"}]}`, true},
		"a tool's schema":   {chatPath, `{"model":"m","tools":[{"type":"function","function":{"parameters":{"source":1}}}]}`, false},
	} {
		w := newWorld(t)
		w.set(config(sandbox.LLMOpenAI, "http://down.example"))
		w.post(row.path, row.body)
		list := w.entries()
		if len(list) != 2 {
			t.Fatalf("%s: the journal has %+v", name, list)
		}
		full := sandbox.NanoUSD(10_000*1250 + 1000*10_000)
		if got := list[0].Call.Cost; (got == full) != row.full {
			t.Errorf("%s: it reserves %s", name, got)
		}
	}
}

func TestEveryChoiceCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, "http://down.example"))
	body := `{"max_completion_tokens":50,"max_tokens":40,"messages":[],"model":"m","n":3}`
	w.post(chatPath, body)
	if got, want := w.entries()[0].Call.Cost, sandbox.NanoUSD((len(body)+64)*1250+150*10_000); got != want {
		t.Errorf("it reserves %s, want %s", got, want)
	}
}

func TestARouteThatIsRemovedLetsItsCallsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, plain))
	next := make(chan struct{})
	w.out.serve(then(stream(event(`{"choices":[{}]}`)), func(rw http.ResponseWriter, r *http.Request) {
		<-next
		stream(event(`{"choices":[],%s}`, chatUsage), event("[DONE]"))(rw, r)
	}))
	res, in := w.firstLine(t.Context(), chatPath, chatStream)
	w.set(llm.Config{Environment: "env-1", Routes: map[string]llm.Route{"other": route(sandbox.LLMOpenAI, plain)}})
	if a := w.post(chatPath, chatBody); a.reason() != "unknown_route" || !strings.Contains(a.body, "other") {
		t.Errorf("a new call: %+v", a)
	}
	close(next)
	_, err := io.ReadAll(in)
	must(t, errors.Join(err, res.Body.Close()))
	if c := w.last(); c.Outcome != sandbox.LLMCompleted || c.Cost != chatCost {
		t.Errorf("the record is %+v", c)
	}
}

func TestClosingInterruptsAndRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, secure))
	w.out.serve(then(stream(event(`{"choices":[{}]}`)), hang))
	res, _ := w.firstLine(t.Context(), chatPath, chatStream)
	must(t, w.broker.Close())
	must(t, res.Body.Close())
	w.close()
	w.open()
	list := w.entries()
	if len(list) != 2 || list[1].Call.Outcome != sandbox.LLMInterrupted || !list[1].Call.Unknown {
		t.Errorf("the journal has %+v", list)
	}
}

func TestConfigurationsThatAreNotValidAreRefusedWithoutTheirKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, plain))
	before := w.broker.Status().Hash
	change := func(f func(*llm.Route)) llm.Config {
		r := route(sandbox.LLMOpenAI, plain)
		f(&r)
		return llm.Config{Environment: "env-1", Routes: map[string]llm.Route{"main": r}}
	}
	for name, c := range map[string]llm.Config{
		"a key of two lines": change(func(r *llm.Route) { r.Key += "\nX: y" }),
		"no key":             change(func(r *llm.Route) { r.Key = " \n" }),
		"an API":             change(func(r *llm.Route) { r.API = "other" }),
		"an upstream":        change(func(r *llm.Route) { r.Upstream = "ftp://x" }),
		"a key in it":        change(func(r *llm.Route) { r.Upstream = "https://" + secretKey[:7] + ":" + secretKey[:7] + "@x.example" }),
		"an address":         change(func(r *llm.Route) { r.Upstream = "http://10.0.0.1" }),
		"no models":          change(func(r *llm.Route) { r.Models = nil }),
		"no prices":          change(func(r *llm.Route) { r.Models = map[string]sandbox.LLMModel{"m": {}} }),
		"a name":             {Routes: map[string]llm.Route{"../x": route(sandbox.LLMOpenAI, plain)}},
		"a month":            {Month: "11/2026"},
		"a cap of no month":  {Cap: new(sandbox.NanoUSD)},
	} {
		err := w.broker.Set(c)
		if err == nil {
			t.Errorf("%s was taken", name)
			continue
		}
		hidden(t, name, err.Error())
	}
	if after := w.broker.Status().Hash; after != before {
		t.Errorf("the hash was %s and is %s", before, after)
	}
}

func TestAHashChangesWithTheKeyOnly(t *testing.T) {
	t.Parallel()
	c := config(sandbox.LLMOpenAI, plain)
	first, err := c.Hash()
	must(t, err)
	c.Month, c.Recorded, c.Cap = "2026-11", map[string]llm.Used{"main": {Requests: 1}}, new(sandbox.NanoUSD)
	same, err := c.Hash()
	must(t, err)
	r := c.Routes["main"]
	r.Key += "x"
	c.Routes = map[string]llm.Route{"main": r}
	other, err := c.Hash()
	must(t, err)
	if len(first) != 16 || same != first || other == first {
		t.Errorf("the hashes are %s, %s and %s", first, same, other)
	}
}

func TestTheOrderOfEventsDoesNotMatter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, plain))
	// The answer has comments, carriage returns, data of several lines, and pieces of one byte.
	text := ": hello\r\n\r\nevent: x\r\ndata: {\"choices\":[],\r\ndata: " + chatUsage + "}\r\n\r\ndata: [DONE]\r\n\r\n"
	w.out.serve(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, c := range []byte(text) {
			_, _ = rw.Write([]byte{c})
			_ = http.NewResponseController(rw).Flush()
		}
	})
	a := w.post(chatPath, chatStream)
	if want := ": hello\r\n\r\ndata: [DONE]\r\n\r\n"; a.body != want {
		t.Errorf("it got %q, want %q", a.body, want)
	}
	if c := w.last(); c.Tokens != chatTokens {
		t.Errorf("the record is %+v", c)
	}
	if !slices.ContainsFunc(w.out.got(), func(s *seen) bool { return strings.Contains(s.body, `"include_usage":true`) }) {
		t.Error("the usage was not asked for")
	}
}
