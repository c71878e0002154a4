package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
)

// answering serves LLM calls with a function.
type answering func(w http.ResponseWriter, r *http.Request, c llm.Caller)

// Serve implements proxy.LLM.
func (a answering) Serve(w http.ResponseWriter, r *http.Request, c llm.Caller) { a(w, r, c) }

// newLLMWorld is a world without a policy whose proxy has an LLM broker.
func newLLMWorld(t *testing.T, serve answering) *world {
	t.Helper()
	w := &world{t: t, out: newOutside(t), text: &lines{}}
	w.log = audit.New(w.text, nil)
	w.proxy = proxy.New(proxy.Config{
		Dialer: &egress.Dialer{Resolver: w.out, Connect: w.out.connect}, Log: w.log, LLM: serve,
		NewID: func() string { return "a" },
	})
	t.Cleanup(func() { w.proxy.Close(); w.log.Close() })
	return w
}

// ask sends a raw request, and returns the answer and its body.
func (w *world) ask(request string) (*http.Response, string) {
	w.t.Helper()
	conn := w.dial()
	if _, err := io.WriteString(conn, request); err != nil {
		w.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res, string(body)
}

// TestLLMCallsOfClientsThatProxyEveryAddress: these clients ignore NO_PROXY and name the sandbox's own address. No
// other address is an LLM call.
func TestLLMCallsOfClientsThatProxyEveryAddress(t *testing.T) {
	t.Parallel()
	w := newLLMWorld(t, func(rw http.ResponseWriter, r *http.Request, _ llm.Caller) {
		_, _ = io.WriteString(rw, "called "+r.URL.Path)
	})
	w.path = w.add("box-1", "did:plc:ann", false)
	for address, want := range map[string]string{
		"http://127.0.0.1:3128/llm/main/v1/messages": "called /llm/main/v1/messages",
		"http://[::1]:3128/llm/main":                 "called /llm/main",
		"http://127.0.0.1:3128/other":                "",
		"http://10.0.0.1:3128/llm/main":              "",
		"http://localhost.evil.example/llm/main":     "",
		"https://127.0.0.1:3128/llm/main":            "",
	} {
		_, got := w.ask("GET " + address + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if want != "" && got != want || want == "" && strings.Contains(got, "called") {
			t.Errorf("%s is answered with %q", address, got)
		}
	}
}

func TestLLMCallsGoToTheBrokerWithTheirCaller(t *testing.T) {
	t.Parallel()
	w := newLLMWorld(t, func(rw http.ResponseWriter, r *http.Request, c llm.Caller) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(rw, strings.Join([]string{r.URL.Path, string(body), c.Sandbox, c.Agent, c.Lease}, " "))
	})
	w.path = w.add("pooled", "", false)
	call := "POST /llm/main/v1/messages HTTP/1.1\r\nHost: 127.0.0.1:3128\r\nContent-Length: 2\r\n\r\nhi"
	if res, body := w.ask(call); res.StatusCode != http.StatusOK || body != "/llm/main/v1/messages hi pooled  " {
		t.Errorf("it says %d %q", res.StatusCode, body)
	}
	w.proxy.Assign(proxy.Sandbox{Caller: llm.Caller{Sandbox: "pooled", Agent: "did:plc:bob", Lease: "lease-7", Generation: 2}})
	if _, body := w.ask(call); body != "/llm/main/v1/messages hi pooled did:plc:bob lease-7" {
		t.Errorf("it says %q", body)
	}
}

func TestOnlyRequestsInOriginFormAreLLMCalls(t *testing.T) {
	t.Parallel()
	w := newLLMWorld(t, func(rw http.ResponseWriter, _ *http.Request, _ llm.Caller) { rw.WriteHeader(http.StatusTeapot) })
	w.path = w.add("box-1", "did:plc:ann", false)
	for request, reason := range map[string]policy.Reason{
		"GET http://good.example/llm/main/v1/models HTTP/1.1\r\nHost: good.example\r\n\r\n": policy.NoPolicy,
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":                                                 proxy.InvalidRequest,
		"GET /llm HTTP/1.1\r\nHost: x\r\n\r\n":                                              proxy.InvalidRequest,
		"GET /LLM/main HTTP/1.1\r\nHost: x\r\n\r\n":                                         proxy.InvalidRequest,
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n":                                             "",
	} {
		res, _ := w.ask(request)
		if res.StatusCode == http.StatusTeapot || res.Header.Get(proxy.ReasonHeader) != string(reason) {
			t.Errorf("%q is answered with %d %s", request, res.StatusCode, res.Header.Get(proxy.ReasonHeader))
		}
	}
}

func TestASandboxIsRemovedOnceItsLLMCallsHaveEnded(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	var ended atomic.Bool
	w := newLLMWorld(t, func(_ http.ResponseWriter, r *http.Request, _ llm.Caller) {
		_, _ = io.ReadAll(r.Body)
		close(begun)
		<-r.Context().Done()
		ended.Store(true)
	})
	w.path = w.add("box-1", "did:plc:ann", false)
	conn := w.dial()
	if _, err := io.WriteString(conn, "POST /llm/main/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"); err != nil {
		t.Fatal(err)
	}
	<-begun
	w.proxy.Remove("box-1")
	if !ended.Load() {
		t.Error("the call still runs")
	}
	gone(t, conn)
}

func TestABrokerAnswersOnTheSocketOfASandbox(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "llm")
	w := newLLMWorld(t, nil)
	broker, err := llm.Open(llm.Options{Dir: dir, Dialer: &egress.Dialer{Resolver: w.out, Connect: w.out.connect},
		NewID: func() string { return "call" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Close(); err != nil {
			t.Error(err)
		}
	})
	p := proxy.New(proxy.Config{Dialer: &egress.Dialer{}, Log: w.log, LLM: broker, NewID: func() string { return "a" }})
	t.Cleanup(p.Close)
	w.proxy = p
	w.path = w.add("box-1", "did:plc:ann", false)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", w.path) },
		DisableKeepAlives: true,
	}}
	res, err := client.Post("http://127.0.0.1:3128/llm/main/v1/messages", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get(llm.ReasonHeader) != "not_configured" {
		t.Errorf("it says %+v", res)
	}
}
