package cloudflare_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// upstream is a server of models. The member user of a request says how to answer it.
type upstream struct {
	*httptest.Server

	mu   sync.Mutex // guards what follows
	seen []seenCall
	// stalled gets a value for each answer that stalls. These answers continue once release closes.
	stalled, release chan struct{}
}

// seenCall is a request that the upstream got.
type seenCall struct {
	header     http.Header
	body, path string
	input      int64
	output     int64
	status     int64
	broke      bool
}

// wish says how the upstream answers. Break and Stall are the event at which the answer breaks off or stalls; -1 means
// none.
type wish struct {
	Input, Output, Events, Status int64
	Break, Stall                  int64
	// Hang makes the stall last.
	Hang bool
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{stalled: make(chan struct{}, 1000), release: make(chan struct{})}
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
	text, _ := io.ReadAll(r.Body) // a truncated body is not JSON
	var body struct {
		User   string `json:"user"`
		Stream bool   `json:"stream"`
	}
	x := wish{Input: 20, Output: 7, Events: 3, Break: -1, Stall: -1}
	_ = json.Unmarshal(text, &body)
	_ = json.Unmarshal([]byte(body.User), &x) // without a wish, the default applies
	u.mu.Lock()
	u.seen = append(u.seen, seenCall{r.Header.Clone(), string(text), r.URL.RequestURI(), x.Input, x.Output, x.Status, x.Break >= 0})
	u.mu.Unlock()
	if x.Status != 0 {
		w.WriteHeader(int(x.Status))
		_, _ = fmt.Fprintf(w, `{"error":"no, not with %s"}`, secretKey)
		return
	}
	pieces := answerOf(r.URL.Path, body.Stream, x)
	if !body.Stream && x.Events == 0 {
		text := strings.Join(pieces, "")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		pieces = []string{text}
	}
	w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[body.Stream])
	for i, piece := range pieces {
		switch int64(i) {
		case x.Break:
			panic(http.ErrAbortHandler)
		case x.Stall:
			u.stalled <- struct{}{}
			release := u.release
			if x.Hang {
				release = nil
			}
			select {
			case <-release:
			case <-r.Context().Done():
				return
			}
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

// endpoints has the endpoint of each API: the variable with its address, and the rest of its path.
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

// callCommand returns a shell command that calls a model.
func callCommand(api, body string, header ...string) string {
	to := endpoints[api]
	head := append([]string{"Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body))}, header...)
	return fmt.Sprintf(`url=$%s%s; host=${url#http://}; path=/${host#*/}; host=${host%%%%/*}
		printf 'POST %%s HTTP/1.1\r\nHost: %%s\r\nConnection: close\r\n%%b\r\n%%s' $path $host '%s' '%s' | nc -w 100 $host 80; true`,
		to[0], to[1], strings.Join(head, `\r\n`)+`\r\n`, body)
}

// exact returns the tokens and the cost of a completed call.
func exact(x wish) (sandbox.LLMTokens, sandbox.NanoUSD) {
	tokens := sandbox.LLMTokens{Input: x.Input, Output: x.Output}
	return tokens, pricing.Tokens(modelM(), tokens)
}

// plainly returns the wish for a complete answer.
func plainly() wish { return wish{Input: 20, Output: 7, Events: 3, Break: -1, Stall: -1} }
