package llm_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LLM_TEST_KILLED"); dir != "" {
		serveUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait; it is generous because test machines are busy.
const patience = 20 * time.Second

// secretKey is the upstream's key.
const secretKey = "sk-test-5ecre7-K3y/of+the=upstream"

// Model m costs 1,000, 100, 1,250 and 10,000 billionths of a dollar for a token of each class.
func modelM() sandbox.LLMModel {
	cached, write := sandbox.USD/10, sandbox.USD*5/4
	return sandbox.LLMModel{
		Input: sandbox.USD, CachedInput: &cached, CacheWrite: &write, Output: 10 * sandbox.USD,
		MaxInputTokens: 10_000, MaxOutputTokens: 1000,
	}
}

func route(api sandbox.LLMAPI, address string) llm.Route {
	return llm.Route{
		LLMRoute: sandbox.LLMRoute{
			API: api, Upstream: address, Credential: "KEY", Models: map[string]sandbox.LLMModel{"m": modelM()},
		},
		Key: secretKey,
	}
}

func config(api sandbox.LLMAPI, address string) llm.Config {
	return llm.Config{
		Environment: "env-1", Account: "acct-1", Routes: map[string]llm.Route{"main": route(api, address)},
	}
}

// world is a broker with an upstream, and a sandbox's path to it.
type world struct {
	t      testing.TB
	broker *llm.Broker
	out    *outside
	dir    string
	front  *httptest.Server
	caller atomic.Pointer[llm.Caller]
	close  func()
}

type option func(*llm.Options)

func newWorld(t testing.TB, options ...option) *world {
	t.Helper()
	w := &world{t: t, out: newOutside(t), dir: filepath.Join(t.TempDir(), "llm")}
	w.caller.Store(&llm.Caller{Sandbox: "box-1", Agent: "did:plc:ann", Lease: "lease-1", Generation: 3})
	w.open(options...)
	t.Cleanup(func() { w.close() })
	return w
}

func (w *world) open(options ...option) {
	w.t.Helper()
	var n atomic.Int64
	prefix := strconv.FormatInt(time.Now().UnixNano(), 36)
	o := llm.Options{
		Dir: w.dir, Dialer: &egress.Dialer{Resolver: w.out, Connect: w.out.connect}, Roots: w.out.roots,
		NewID: func() string { return prefix + "-" + strconv.FormatInt(n.Add(1), 10) },
	}
	for _, set := range options {
		set(&o)
	}
	b, err := llm.Open(o)
	must(w.t, err)
	w.broker = b
	w.front = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b.Serve(rw, r, *w.caller.Load())
	}))
	w.front.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.front.Start()
	w.close = sync.OnceFunc(func() {
		w.front.CloseClientConnections()
		w.front.Close()
		must(w.t, b.Close())
	})
}

func (w *world) set(c llm.Config) {
	w.t.Helper()
	must(w.t, w.broker.Set(c))
}

// answer is the answer that a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (a answer) reason() string { return a.header.Get(llm.ReasonHeader) }

// request prepares a call.
func (w *world) request(ctx context.Context, path, body string, header ...string) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.front.URL+path, strings.NewReader(body))
	must(w.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// do makes a call.
func (w *world) do(r *http.Request) answer {
	w.t.Helper()
	res, err := w.front.Client().Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(b), err}
}

func (w *world) post(path, body string, header ...string) answer {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return w.do(w.request(ctx, path, body, header...))
}

// entries returns all lines of the journal.
func (w *world) entries() []llm.Entry {
	w.t.Helper()
	var all []llm.Entry
	for at := (audit.Position{}); ; {
		list, err := w.broker.Calls(at)
		must(w.t, err)
		if len(list) == 0 {
			return all
		}
		all, at = append(all, list...), list[len(list)-1].Position
	}
}

// calls returns the state of all calls, in the order of their beginning.
func (w *world) calls() []sandbox.LLMCall {
	w.t.Helper()
	var list []sandbox.LLMCall
	at := map[string]int{}
	for _, e := range w.entries() {
		i, ok := at[e.Call.ID]
		if !ok {
			i = len(list)
			at[e.Call.ID], list = i, append(list, e.Call)
		}
		list[i] = e.Call
	}
	return list
}

// ended waits until all calls have ended.
func (w *world) ended() []sandbox.LLMCall {
	w.t.Helper()
	eventually(w.t, "all calls have ended", func() bool { return w.broker.Status().Running == 0 })
	return w.calls()
}

// last waits for the end of the latest call.
func (w *world) last() sandbox.LLMCall {
	w.t.Helper()
	list := w.ended()
	if len(list) == 0 {
		w.t.Fatal("the journal has no call")
	}
	return list[len(list)-1]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testwait.Until(t, patience, what, ok)
}

// outside is a test's Internet. llm.example serves handler with TLS, plain.example without.
type outside struct {
	roots *x509.CertPool

	mu      sync.Mutex // guards what follows
	names   map[string]netip.Addr
	servers map[netip.AddrPort]string
	handler http.HandlerFunc
	seen    []*seen
	dialled int
}

// seen is a request that an upstream got.
type seen struct {
	header http.Header
	body   string
	path   string
	proto  string
}

const (
	secure = "https://llm.example.com"
	plain  = "http://plain.example"
)

func newOutside(t testing.TB) *outside {
	t.Helper()
	o := &outside{
		roots: x509.NewCertPool(), servers: map[netip.AddrPort]string{},
		names: map[string]netip.Addr{
			"plain.example": netip.MustParseAddr("203.0.114.2"),
			"down.example":  netip.MustParseAddr("203.0.114.3"), "private.example": netip.MustParseAddr("10.1.0.1"),
			"metadata.example": netip.MustParseAddr("169.254.169.254"), "wrong.example": netip.MustParseAddr("203.0.114.1"),
		},
	}
	o.handler = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }
	serve := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(b)))
		o.mu.Lock()
		handler := o.handler
		o.seen = append(o.seen, &seen{r.Header.Clone(), string(b), r.URL.RequestURI(), r.Proto})
		o.mu.Unlock()
		handler(w, r)
	}
	tls := httptest.NewUnstartedServer(http.HandlerFunc(serve))
	tls.EnableHTTP2 = true
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	t.Cleanup(tls.Close)
	// The certificate of httptest is for example.com and *.example.com.
	o.names["llm.example.com"] = o.names["wrong.example"]
	o.roots.AddCert(tls.Certificate())
	unsecured := httptest.NewUnstartedServer(http.HandlerFunc(serve))
	unsecured.Config.ErrorLog = log.New(io.Discard, "", 0)
	unsecured.Start()
	t.Cleanup(unsecured.Close)
	t.Cleanup(func() { tls.CloseClientConnections(); unsecured.CloseClientConnections() })
	o.servers[netip.MustParseAddrPort("203.0.114.1:443")] = tls.Listener.Addr().String()
	for _, at := range []string{"203.0.114.2:80", "10.1.0.1:80", "169.254.169.254:80"} {
		o.servers[netip.MustParseAddrPort(at)] = unsecured.Listener.Addr().String()
	}
	return o
}

func (o *outside) serve(h http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handler = h
}

// got returns the requests so far.
func (o *outside) got() []*seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*seen(nil), o.seen...)
}

// LookupNetIP implements egress.Resolver.
func (o *outside) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, ok := o.names[strings.TrimSuffix(host, ".")]
	if !ok || network != "ip4" {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{a}, nil
}

func (o *outside) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	o.mu.Lock()
	o.dialled++
	local, ok := o.servers[to]
	o.mu.Unlock()
	if !ok {
		return nil, errors.New("connection refused")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", local)
}

// say answers with JSON.
func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
}

// stream answers with events, one flush each.
func stream(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			_, _ = io.WriteString(w, e+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// then serves before, then after.
func then(before http.HandlerFunc, after func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		before(w, r)
		_ = http.NewResponseController(w).Flush()
		after(w, r)
	}
}

// hang waits until the gateway disconnects.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// abort breaks the answer off.
func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

const (
	chatPath      = "/llm/main/v1/chat/completions"
	responsesPath = "/llm/main/v1/responses"
	embedPath     = "/llm/main/v1/embeddings"
	messagesPath  = "/llm/main/v1/messages"

	chatBody     = `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":100}`
	chatStream   = `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":100,"stream":true}`
	messageBody  = `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`
	messageEvent = `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"stream":true}`

	chatUsage = `"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27,"prompt_tokens_details":{"cached_tokens":5}}`
)

// chatTokens and chatCost are the values of chatUsage.
var chatTokens = sandbox.LLMTokens{Input: 15, CachedInput: 5, Output: 7}

const chatCost = 15*1000 + 5*100 + 7*10_000

// hidden fails if text contains the key in any form.
func hidden(t testing.TB, where, text string) {
	t.Helper()
	for _, form := range []string{
		secretKey, base64.StdEncoding.EncodeToString([]byte(secretKey)), base64.RawURLEncoding.EncodeToString([]byte(secretKey)),
		hex.EncodeToString([]byte(secretKey)), url.QueryEscape(secretKey), secretKey[8:],
	} {
		if strings.Contains(text, form) {
			t.Errorf("%s contains the key: %.300s", where, text)
		}
	}
}

// hiddenOnDisk fails if a file of the journal contains the key.
func (w *world) hiddenOnDisk() {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, "*"))
	must(w.t, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		must(w.t, err)
		hidden(w.t, file, string(b))
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return string(b)
}

// firstLine starts a call, and returns when the first line of its answer arrives.
func (w *world) firstLine(ctx context.Context, path, body string) (*http.Response, *bufio.Reader) {
	w.t.Helper()
	res, err := w.front.Client().Do(w.request(ctx, path, body))
	must(w.t, err)
	in := bufio.NewReader(res.Body)
	_, err = in.ReadString('\n')
	must(w.t, err)
	return res, in
}

func event(format string, args ...any) string { return "data: " + fmt.Sprintf(format, args...) }
