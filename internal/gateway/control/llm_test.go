package control_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const llmKey = "sk-control-5ecre7"

func llmConfig() llm.Config {
	price := sandbox.USD
	return llm.Config{
		Environment: "env-1", Account: "acct-1", Month: "2026-11", Cap: &price,
		Recorded: map[string]llm.Used{"main": {USD: 5, Requests: 1, Tokens: 2}},
		Routes: map[string]llm.Route{"main": {
			LLMRoute: sandbox.LLMRoute{
				API: sandbox.LLMOpenAI, Upstream: "http://model.example", Credential: "KEY",
				Models: map[string]sandbox.LLMModel{"m": {
					Input: price, CachedInput: &price, CacheWrite: &price, Output: price, MaxInputTokens: 100, MaxOutputTokens: 100,
				}},
			},
			Key: llmKey,
		}},
	}
}

// onSocket returns a client whose requests go to a unix socket below a root.
func onSocket(t *testing.T, root string, path ...string) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(append([]string{root}, path...)...))
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// callLLM makes a call as the sandbox box-1, and returns the gateway's reason.
func callLLM(t *testing.T, root string) string {
	t.Helper()
	client := onSocket(t, root, control.SandboxDir("box-1"), control.ProxySocket)
	defer client.CloseIdleConnections()
	res, err := client.Post("http://127.0.0.1:3128/llm/main/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"m","messages":[]}`))
	must(t, err)
	must(t, res.Body.Close())
	return res.Header.Get(llm.ReasonHeader)
}

func TestLLMRoutesAreSetAndTheirCallsAreReported(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	g := start(t, root)
	must(t, g.Add(t.Context(), control.Sandbox{ID: "box-1", Agent: "did:plc:ann", Lease: "lease-1", Generation: 4}))
	if got := callLLM(t, root); got != "not_configured" {
		t.Errorf("without routes: %s", got)
	}
	must(t, g.SetLLM(t.Context(), llmConfig()))
	s, err := g.Status(t.Context())
	hash, _ := llmConfig().Hash()
	if err != nil || s.LLM.Hash != hash || s.LLM.Unread != 0 {
		t.Errorf("the status is %+v, %v", s.LLM, err)
	}
	if got := callLLM(t, root); got != "upstream_unreachable" {
		t.Errorf("with routes: %s", got)
	}
	must(t, g.Add(t.Context(), control.Sandbox{ID: "box-1", Agent: "did:plc:bob", Lease: "lease-2", Generation: 5}))
	callLLM(t, root)
	g.end()
	g = start(t, root)
	if got := callLLM(t, root); got != "not_configured" {
		t.Errorf("after a restart: %s", got)
	}
	entries, err := g.LLMCalls(t.Context(), audit.Position{})
	if err != nil || len(entries) != 4 {
		t.Fatalf("it tells of %+v, %v", entries, err)
	}
	for i, want := range []struct {
		lease      string
		generation int64
		outcome    sandbox.LLMOutcome
	}{
		{"lease-1", 4, sandbox.LLMRunning}, {"lease-1", 4, sandbox.LLMUnsent},
		{"lease-2", 5, sandbox.LLMRunning}, {"lease-2", 5, sandbox.LLMUnsent},
	} {
		c := entries[i].Call
		if c.LeaseID != want.lease || c.Generation != want.generation || c.Outcome != want.outcome || c.SandboxID != "box-1" {
			t.Errorf("line %d is %+v", i, c)
		}
	}
	if more, err := g.LLMCalls(t.Context(), entries[3].Position); err != nil || len(more) > 0 {
		t.Errorf("and then of %+v, %v", more, err)
	}
	must(t, g.Remove(t.Context(), "box-1"))
}

func TestAKeyIsInNoFileAndNoError(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	g := start(t, root)
	must(t, g.SetLLM(t.Context(), llmConfig()))
	must(t, g.Add(t.Context(), control.Sandbox{ID: "box-1", Lease: "lease-1"}))
	callLLM(t, root)
	must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), llmKey) {
			t.Errorf("%s has the key", path)
		}
		return err
	}))
	client := onSocket(t, root, control.Dir, control.Socket)
	for _, body := range []string{
		`{"routes":{"main":{"key":"` + llmKey + `","api":5}}}`, `{"routes":{"main":{"` + llmKey + `":1}}}`,
		`{"routes":{"main":{"key":"` + llmKey + `"}}}`, `{"cap_usd":"` + llmKey + `"}`,
		`{"routes":{"main":{"key":"` + llmKey, `{"routes":{"main":{"key":["` + llmKey + `"]}}}`,
		`{"routes":{"main":{"api":"openai","upstream":"http://x","key":"` + llmKey + ` x"}}}`,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://gateway/v1/llm", strings.NewReader(body))
		must(t, err)
		res, err := client.Do(r)
		must(t, err)
		text := make([]byte, 2000)
		n, _ := res.Body.Read(text)
		must(t, res.Body.Close())
		if res.StatusCode != http.StatusBadRequest || n == 0 || strings.Contains(string(text[:n]), llmKey) {
			t.Errorf("%s is answered with %d %s", body, res.StatusCode, text[:n])
		}
	}
	s, err := g.Status(t.Context())
	if hash, _ := llmConfig().Hash(); err != nil || s.LLM.Hash != hash {
		t.Errorf("the status is %+v, %v", s.LLM, err)
	}
}
