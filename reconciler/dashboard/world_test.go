package dashboard_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/logtest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.M(m)) }

// world is a dashboard of a service in the same process.
type world struct {
	testing.TB
	servicetest.Env
	store    *ledger.Store
	registry *access.Registry
	handler  http.Handler
	server   *httptest.Server
	log      *logtest.Buffer
}

func newWorld(t testing.TB, change ...func(*api.Config, *dashboard.Config)) *world {
	t.Helper()
	env, store := inprocess.NewStored(t)
	return serve(t, env, store, change...)
}

// onBothDatabases runs a test in a world on SQLite and in one on PostgreSQL.
func onBothDatabases(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for name, url := range map[string]func(t *testing.T) string{
		"SQLite":     inprocess.SQLite,
		"PostgreSQL": func(t *testing.T) string { return postgrestest.New(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, store := inprocess.NewStoredOn(t, url(t))
			test(t, serve(t, env, store))
		})
	}
}

// serve serves a dashboard of a service until the test ends.
func serve(t testing.TB, env servicetest.Env, store *ledger.Store,
	change ...func(*api.Config, *dashboard.Config)) *world {
	t.Helper()
	w := &world{TB: t, Env: env, store: store, registry: access.New(access.Config{Store: store}), log: &logtest.Buffer{}}
	log := slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ac := api.Config{Service: w.Service, Access: w.registry, Now: w.Now, Logger: log}
	dc := dashboard.Config{Events: w.Service, Now: w.Now, Logger: log}
	for _, f := range change {
		f(&ac, &dc)
	}
	handler, err := api.New(ac)
	if err != nil {
		t.Fatal(err)
	}
	dc.Gate = handler.Gate()
	d, err := dashboard.New(dc)
	if err != nil {
		t.Fatal(err)
	}
	d.Mount(handler)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { d.Run(ctx) })
	w.handler, w.server = handler, httptest.NewServer(handler)
	t.Cleanup(func() {
		w.server.CloseClientConnections()
		w.server.Close()
		stop()
		wg.Wait()
	})
	return w
}

// token creates a token and returns its text.
func (w *world) token(name string, scope sandbox.Scope, environments ...string) string {
	w.Helper()
	made, err := w.registry.CreateToken(w.Context(),
		sandbox.CreateToken{Name: name, Scopes: []sandbox.Scope{scope}, Environments: environments})
	if err != nil {
		w.Fatal(err)
	}
	return string(made.Text)
}

// browser is a user's browser that follows no redirects.
type browser struct {
	w       *world
	cookies map[string]string
	csrf    string // of the last page
}

func (w *world) browser() *browser { return &browser{w: w, cookies: map[string]string{}} }

// loggedIn returns a browser that has logged in with a token.
func (w *world) loggedIn(token string) *browser {
	w.Helper()
	b := w.browser()
	if a := b.logIn(token); a.StatusCode != http.StatusSeeOther {
		w.Fatalf("logging in is answered with %d: %s", a.StatusCode, a.body)
	}
	b.get("/ui/")
	return b
}

func (b *browser) logIn(token string, header ...string) answer {
	b.w.Helper()
	return b.post("/ui/login", url.Values{"token": {token}}, header...)
}

// answer is a reply and its body.
type answer struct {
	*http.Response
	body string
}

func (b *browser) get(path string, header ...string) answer {
	b.w.Helper()
	return b.do(b.request(http.MethodGet, path, nil, header...))
}

// post sends a form as a page of the dashboard does.
func (b *browser) post(path string, form url.Values, header ...string) answer {
	b.w.Helper()
	return b.do(b.request(http.MethodPost, path, strings.NewReader(form.Encode()), append([]string{
		"Content-Type", "application/x-www-form-urlencoded", "Origin", b.w.server.URL, "Sec-Fetch-Site", "same-origin"},
		header...)...))
}

func (b *browser) request(method, path string, body io.Reader, header ...string) *http.Request {
	b.w.Helper()
	r, err := http.NewRequestWithContext(b.w.Context(), method, b.w.server.URL+path, body)
	if err != nil {
		b.w.Fatal(err)
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

var csrfInForm = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

func (b *browser) do(r *http.Request) answer {
	b.w.Helper()
	resp, err := b.w.server.Client().Transport.RoundTrip(r)
	if err != nil {
		b.w.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.w.Fatal(err)
	}
	for _, c := range resp.Cookies() {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	if found := csrfInForm.FindSubmatch(body); found != nil {
		b.csrf = string(found[1])
	}
	return answer{resp, string(body)}
}

// environment creates an environment.
func (w *world) environment(id string, change ...func(*sandbox.PutEnvironment)) {
	w.Helper()
	p := sandbox.PutEnvironment{ID: id, EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCatan, Image: "game:1"}}
	for _, c := range change {
		c(&p)
	}
	if _, err := w.Service.PutEnvironment(w.Context(), p); err != nil {
		w.Fatal(err)
	}
}

// model gives an environment a route to one model.
func model(p *sandbox.PutEnvironment) {
	p.SecretValues = map[string]sandbox.Secret{"model_key": "sk-none"}
	p.LLM = map[string]sandbox.LLMRoute{"main": {
		API: sandbox.LLMAnthropic, Credential: "model_key",
		Models: map[string]sandbox.LLMModel{"claude-small": {Input: sandbox.USD, Output: 5 * sandbox.USD}},
	}}
}

// serve starts an agent in a lease's sandbox.
func (w *world) serve(l sandbox.Lease, name, description string, command ...string) {
	w.Helper()
	_, err := w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: l.ID}, sandbox.ProcessSpec{
		Name: name, Command: command, Endpoint: &sandbox.Endpoint{Port: 8080, Description: description},
	})
	if err != nil {
		w.Fatal(err)
	}
}

// think makes a lease's sandbox call a model: one call ends, one is interrupted and one still runs.
func (w *world) think(l sandbox.Lease, route string) {
	w.Helper()
	call := sandbox.LLMCall{LeaseID: l.ID, Generation: l.Generation, SandboxID: l.SandboxID, AgentDID: l.AgentDID,
		Route: route, Model: "claude-small", StartedAt: w.Now()}
	done, cut, running := call, call, call
	done.ID, done.EndedAt, done.Outcome, done.Status = l.SandboxID+"-1", w.Now().Add(1250*time.Millisecond), sandbox.LLMCompleted, 200
	done.Tokens, done.Cost = sandbox.LLMTokens{Input: 1200, CachedInput: 30_000, Output: 800}, sandbox.USD/125
	cut.ID, cut.EndedAt, cut.Outcome, cut.Unknown = l.SandboxID+"-2", w.Now().Add(time.Minute), sandbox.LLMInterrupted, true
	cut.Cost = sandbox.USD / 3
	running.ID, running.Outcome, running.Cost = l.SandboxID+"-3", sandbox.LLMRunning, sandbox.USD/3
	w.CallModels(l.EnvironmentID, done, cut, running)
}

func (w *world) acquire(agent, environment string) sandbox.Lease {
	w.Helper()
	a, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: environment})
	if err != nil {
		w.Fatal(err)
	}
	return a.Lease
}

// run runs a command in a lease's sandbox, and returns its id.
func (w *world) run(lease string, command ...string) string {
	w.Helper()
	r, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: lease}, sandbox.ExecRequest{Command: command})
	if err != nil {
		w.Fatal(err)
	}
	return r.ExecID
}

// game creates an environment with two leases: one has run a command, and the sandbox of the other was removed out of
// band. It also sends a message that matches nothing.
func (w *world) game() (sandbox.Lease, string) {
	w.Helper()
	w.environment("catan-7", model, func(p *sandbox.PutEnvironment) { p.Labels = map[string]string{"team": "red"} })
	w.environment("rpg-1")
	w.Remove(w.acquire("did:plc:bea", "catan-7").SandboxID)
	w.Advance(time.Minute)
	l := w.acquire("did:plc:ann", "catan-7")
	w.serve(l, "chat", "Answers messages.", "listen", "8080", "1ms")
	w.deliver("msg-1", "agent.birth", "catan-7", l.AgentDID)
	return l, w.run(l.ID, "echo", "hello")
}

// deliver sends a condition for one agent, or for all of them.
func (w *world) deliver(id, condition, environment, agent string) sandbox.Receipt {
	w.Helper()
	c := sandbox.Condition{
		Type:      condition,
		Timestamp: w.Now(),
		Data:      sandbox.ConditionData{EnvironmentID: environment, AgentDID: agent},
	}
	body, err := json.Marshal(c)
	if err != nil {
		w.Fatal(err)
	}
	r, err := w.Service.Deliver(w.Context(), sandbox.Delivery{ID: id, Body: body, Source: "secret:1", Condition: c})
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// eventually waits until ok returns true, for at most a minute.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	testwait.Until(w, time.Minute, what, ok)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func proxies(network string) []net.IPNet {
	_, n, err := net.ParseCIDR(network)
	if err != nil {
		panic(err)
	}
	return []net.IPNet{*n}
}
