package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program is a running gateway.
type program struct {
	*control.Client
	command *exec.Cmd
}

// launch runs the gateway below a root. It returns once the gateway answers.
func launch(t testing.TB, path, root string) *program {
	t.Helper()
	p := &program{command: exec.CommandContext(t.Context(), path, "serve", "-root", root)}
	must(t, p.command.Start())
	p.Client = control.NewClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(root, control.Dir, control.Socket))
	})
	testwait.NoError(t, 20*time.Second, "the gateway answers", func() error {
		_, err := p.Status(t.Context())
		return err
	})
	return p
}

func (p *program) kill(t testing.TB) {
	t.Helper()
	must(t, p.command.Process.Kill())
	_ = p.command.Wait() // it was killed
	p.Close()
}

// build builds the gateway and returns its path.
func build(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway")
	c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0") // as make guest does, so that Go's cache is used
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build the gateway: %v\n%s", err, out)
	}
	return path
}

// serveModel gives the gateway a route to an upstream, which is also its proxy. It returns a sandbox's transport to the
// gateway.
func (p *program) serveModel(t testing.TB, root, upstream, key string) *http.Transport {
	t.Helper()
	price := sandbox.USD
	must(t, p.Apply(t.Context(), control.Settings{Upstream: &control.Upstream{URL: upstream}}))
	must(t, p.Add(t.Context(), control.Sandbox{ID: "box-1", Agent: "did:plc:ann", Lease: "lease-1", Generation: 2}))
	must(t, p.SetLLM(t.Context(), llm.Config{Environment: "env-1", Routes: map[string]llm.Route{"main": {
		LLMRoute: sandbox.LLMRoute{
			API: sandbox.LLMOpenAI, Upstream: "http://model.example", Credential: "KEY",
			Models: map[string]sandbox.LLMModel{"m": {
				Input: price, CachedInput: &price, CacheWrite: &price, Output: price, MaxInputTokens: 1000, MaxOutputTokens: 1000,
			}},
		},
		Key: sandbox.Secret(key),
	}}}))
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(root, control.SandboxDir("box-1"), control.ProxySocket))
		},
	}
}

// TestAKilledGatewayKnowsItsLLMCalls kills the real program. Its policy refuses loopback addresses, such as the test's
// upstream. So the upstream is also the environment's proxy, whose address no policy checks.
func TestAKilledGatewayKnowsItsLLMCalls(t *testing.T) {
	const key = "sk-cmd-5ecre7"
	got := make(chan string, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		got <- r.RequestURI + " " + r.Header.Get("Authorization")
		<-r.Context().Done()
	}))
	defer upstream.Close()
	root, err := os.MkdirTemp("", "gw") // the path of a socket must be short
	must(t, err)
	defer os.RemoveAll(root)
	path := build(t)
	g := launch(t, path, root)
	transport := g.serveModel(t, root, upstream.URL, key)
	done := make(chan struct{})
	go func() {
		defer close(done)
		client := &http.Client{Transport: transport}
		res, err := client.Post("http://127.0.0.1:3128/llm/main/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"m","messages":[]}`))
		if err == nil {
			_ = res.Body.Close()
		}
	}()
	if asked := <-got; asked != "http://model.example/v1/chat/completions Bearer "+key {
		t.Errorf("the upstream got %s", asked)
	}
	g.kill(t)
	<-done

	g = launch(t, path, root)
	entries, err := g.LLMCalls(t.Context(), audit.Position{})
	must(t, err)
	g.kill(t)
	if len(entries) != 2 || entries[0].Call.Outcome != sandbox.LLMRunning ||
		entries[1].Call.Outcome != sandbox.LLMInterrupted || !entries[1].Call.Unknown || entries[1].Call.LeaseID != "lease-1" ||
		entries[1].Call.Cost != entries[0].Call.Cost || entries[1].Call.Cost == 0 {
		t.Errorf("it tells of %+v", entries)
	}
	must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), key) {
			t.Errorf("%s has the key", path)
		}
		return err
	}))
}
