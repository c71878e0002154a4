package llm

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// sharedRequest is a request and its result: a refusal, or what is sent and reserved.
type sharedRequest struct {
	Name   string             `json:"name"`
	API    sandbox.LLMAPI     `json:"api"`
	Path   string             `json:"path"`
	Body   string             `json:"body"`
	Status int                `json:"status,omitempty"`
	Code   string             `json:"code,omitempty"`
	Sent   string             `json:"sent,omitempty"`
	Most   *sandbox.LLMTokens `json:"most,omitempty"`
	Cost   int64              `json:"cost,omitempty"`
	Stream bool               `json:"stream,omitempty"`
	Hide   bool               `json:"hide,omitempty"`
}

// sharedAnswer is an answer, and the use that it reports. Chunk is the size of its pieces.
type sharedAnswer struct {
	Name    string            `json:"name"`
	Dialect string            `json:"dialect"`
	Stream  bool              `json:"stream,omitempty"`
	Hide    bool              `json:"hide,omitempty"`
	Text    string            `json:"text"`
	Chunk   int               `json:"chunk"`
	Passed  string            `json:"passed"`
	Tokens  sandbox.LLMTokens `json:"tokens"`
	Known   bool              `json:"known,omitempty"`
	Seen    bool              `json:"seen,omitempty"`
	Bad     bool              `json:"bad,omitempty"`
	Done    bool              `json:"done,omitempty"`
	Whole   bool              `json:"whole,omitempty"`
}

type shared struct {
	// Model is the model that requests may call, as the Worker gets it.
	Model struct {
		Input           int64 `json:"input"`
		CachedInput     int64 `json:"cached_input"`
		CacheWrite      int64 `json:"cache_write"`
		Output          int64 `json:"output"`
		MaxInputTokens  int64 `json:"max_input_tokens"`
		MaxOutputTokens int64 `json:"max_output_tokens"`
	} `json:"model"`
	Requests []sharedRequest `json:"requests"`
	Answers  []sharedAnswer  `json:"answers"`
}

// TestTheCallsThatEveryBackendShares: the Worker of environments on Cloudflare passes the same cases.
func TestTheCallsThatEveryBackendShares(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/calls.json")
	if err != nil {
		t.Fatal(err)
	}
	var all shared
	if err := json.Unmarshal(b, &all); err != nil || len(all.Requests) == 0 || len(all.Answers) == 0 {
		t.Fatalf("%d requests, %d answers: %v", len(all.Requests), len(all.Answers), err)
	}
	for _, want := range all.Requests {
		got := want.run(all)
		if a, b := text(t, got), text(t, want); a != b {
			t.Errorf("%s: it is %s, want %s", want.Name, a, b)
		}
	}
	for _, want := range all.Answers {
		if got := want.run(); got != want {
			t.Errorf("%s: it is %+v, want %+v", want.Name, got, want)
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// run checks the request.
func (c sharedRequest) run(all shared) sharedRequest {
	out := sharedRequest{Name: c.Name, API: c.API, Path: c.Path, Body: c.Body}
	cached, write := sandbox.NanoUSD(all.Model.CachedInput), sandbox.NanoUSD(all.Model.CacheWrite)
	r := Route{LLMRoute: sandbox.LLMRoute{API: c.API, Models: map[string]sandbox.LLMModel{"m": {
		Input: sandbox.NanoUSD(all.Model.Input), CachedInput: &cached, CacheWrite: &write,
		Output:         sandbox.NanoUSD(all.Model.Output),
		MaxInputTokens: all.Model.MaxInputTokens, MaxOutputTokens: all.Model.MaxOutputTokens,
	}}}}
	for _, e := range endpoints(c.API) {
		if e.path != c.Path {
			continue
		}
		q, bad := parse([]byte(c.Body), r, "main", e)
		if bad != nil {
			out.Status, out.Code = bad.status, bad.code
			return out
		}
		out.Sent, out.Most, out.Cost, out.Stream, out.Hide = string(q.body), &q.most, int64(q.cost), q.stream, q.hide
	}
	return out
}

// run reads the answer.
func (c sharedAnswer) run() sharedAnswer {
	out := sharedAnswer{
		Name: c.Name, Dialect: c.Dialect, Stream: c.Stream, Hide: c.Hide, Text: c.Text, Chunk: c.Chunk,
	}
	dialects := map[string]dialect{
		"chat": chat, "responses": responses, "embeddings": embeddings, "messages": messages, "counting": counting,
	}
	m := newMeter(dialects[c.Dialect], c.Stream, c.Hide)
	var passed []byte
	for rest := []byte(c.Text); len(rest) > 0; {
		n := min(c.Chunk, len(rest))
		passed = append(passed, m.write(rest[:n])...)
		rest = rest[n:]
	}
	rest, whole := m.end()
	out.Passed, out.Tokens, out.Whole = string(append(passed, rest...)), m.tokens, whole
	out.Known, out.Seen, out.Bad, out.Done = m.known(), m.seen, m.bad, m.done
	return out
}
