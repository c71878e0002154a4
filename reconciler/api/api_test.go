package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/logtest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.M(m)) }

// world is the API of a service in the same process.
type world struct {
	*testing.T
	servicetest.Env
	store   *ledger.Store
	url     string
	handler http.Handler
	admin   string // a token for everything
	catan   string // a token for the environments catan-*
	secret  webhook.Secret
	client  *http.Client
	log     *logtest.Buffer
}

func newWorld(t *testing.T, change ...func(c *api.Config)) *world {
	t.Helper()
	env, store := inprocess.NewStored(t)
	w := &world{T: t, Env: env, store: store, admin: access.NewToken(), catan: access.NewToken(), log: &logtest.Buffer{}}
	c := api.Config{
		Service:   w.Service,
		Connector: w.Service.(service.Connector),
		Access:    access.New(access.Config{Store: store}),
		Version:   "1.2.3",
		Now:       w.Now,
		Logger:    slog.New(slog.NewJSONHandler(w.log, nil)),
	}
	for _, token := range []struct {
		name, text   string
		environments []string
	}{{"admin", w.admin, nil}, {"game", w.catan, []string{"catan-*"}}} {
		made, err := access.MakeToken(token.name, token.text, token.environments...)
		if err != nil {
			t.Fatal(err)
		}
		c.Tokens = append(c.Tokens, made)
	}
	var err error
	if w.secret, err = webhook.ParseSecret(webhook.NewSecret()); err != nil {
		t.Fatal(err)
	}
	c.Secrets = webhook.Secrets{w.secret}
	for _, f := range change {
		f(&c)
	}
	handler, err := api.New(c)
	if err != nil {
		t.Fatal(err)
	}
	w.handler = handler
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	w.url, w.client = server.URL, server.Client()
	return w
}

// answer is a reply and its body.
type answer struct {
	*http.Response
	body string
}

// do sends a request with the admin's token, unless header says otherwise.
func (w *world) do(method, path, body string, header ...string) answer {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.admin)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	return w.send(r)
}

func (w *world) send(r *http.Request) answer {
	w.Helper()
	resp, err := w.client.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	return answer{resp, string(b)}
}

// want checks the status and decodes the body.
func want[V any](w *world, a answer, status int) (v V) {
	w.Helper()
	if a.StatusCode != status {
		w.Fatalf("%s %s is answered with %d, want %d: %s", a.Request.Method, a.Request.URL.Path, a.StatusCode, status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		w.Fatalf("%v in %s", err, a.body)
	}
	return v
}

// wantProblem checks an error reply.
func (w *world) wantProblem(a answer, status int, code sandbox.Code, fields ...string) wire.Problem {
	w.Helper()
	p := want[wire.Problem](w, a, status)
	var names []string
	for _, f := range p.Fields {
		names = append(names, f.Name)
	}
	if p.Code != code || p.Status != status || p.Title == "" || p.Detail == "" || p.Type == "" ||
		strings.Join(names, " ") != strings.Join(fields, " ") {
		w.Errorf("the problem is %s, want %s with fields %q", a.body, code, fields)
	}
	if got := a.Header.Get("Content-Type"); got != wire.ProblemJSON {
		w.Errorf("a problem has content type %s", got)
	}
	if a.Header.Get(wire.HeaderRequestID) == "" {
		w.Error("a problem has no request id")
	}
	return p
}

const (
	put   = `{"image":"player","network":"none","type":"catan","sleep_after":"0s"}`
	ann   = "did:plc:ann"
	annIn = "/v1/leases/did:plc:ann::catan-7"
)

// game creates the environment catan-7 with ann's lease, and advances the clock by a second.
func (w *world) game() sandbox.Lease {
	w.Helper()
	want[sandbox.Environment](w, w.do("PUT", "/v1/environments/catan-7", put), 200)
	got := want[sandbox.Acquired](w,
		w.do("POST", "/v1/leases", `{"agent_did":"did:plc:ann","environment_id":"catan-7"}`), 201)
	w.Advance(time.Second)
	return got.Lease
}

func TestOwnerDefaultsToTheToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if l := w.game(); l.Owner != "token:admin" {
		t.Errorf("the lease's owner is %q", l.Owner)
	}
	if e := want[sandbox.Environment](w, w.do("GET", "/v1/environments/catan-7", ""), 200); e.Owner != "token:admin" {
		t.Errorf("the environment's owner is %q", e.Owner)
	}
	got := want[sandbox.Acquired](w,
		w.do("POST", "/v1/leases", `{"agent_did":"did:plc:bob","environment_id":"catan-7","owner":"terraform:x"}`), 201)
	if got.Lease.Owner != "terraform:x" {
		t.Errorf("the named owner became %q", got.Lease.Owner)
	}
	again := want[sandbox.Acquired](w,
		w.do("POST", "/v1/leases", `{"agent_did":"did:plc:ann","environment_id":"catan-7"}`), 200)
	if again.IsNew {
		t.Error("the second acquire is new")
	}
}

func TestEverythingUnderV1NeedsAToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bodies := map[string]bool{}
	for _, route := range routes {
		for _, authorization := range []string{"", "Bearer", "Bearer wrong", "Basic " + w.admin, "Bearer " + w.admin[1:]} {
			method, path, _ := strings.Cut(route, " ")
			if !strings.HasPrefix(path, "/v1/") {
				continue
			}
			a := w.do(method, path, "", "Authorization", authorization, "X-Request-Id", "the-same")
			w.wantProblem(a, 401, sandbox.Unauthenticated)
			bodies[a.body] = true
			if a.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s does not say how to authenticate", route)
			}
		}
	}
	// The response to a signed message reveals nothing. The response to a token says whether it is missing or wrong.
	if len(bodies) != 3 {
		t.Errorf("there are %d different replies to wrong credentials: %v", len(bodies), bodies)
	}
	w.wantProblem(w.do("GET", "/v1/no/such/path", "", "Authorization", ""), 401, sandbox.Unauthenticated)
}

func TestATokenIsLimitedToItsEnvironments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.game()
	want[sandbox.Environment](w, w.do("PUT", "/v1/environments/rpg-1", put), 200)
	token := []string{"Authorization", "Bearer " + w.catan}
	for _, allowed := range []string{
		"GET /v1/environments/catan-7", "GET " + annIn, "GET /v1/leases?environment_id=catan-7",
		"GET /v1/events?environment_id=catan-7", "GET /v1/events?lease_id=did:plc:ann::catan-7",
		"GET /v1/costs?environment_id=catan-7", "GET /v1/drift?environment_id=catan-7",
		"GET /v1/drift?lease_id=did:plc:ann::catan-7", "GET /v1/ledger", "POST " + annIn + "/sleep",
		"POST " + annIn + "/wake",
	} {
		method, path, _ := strings.Cut(allowed, " ")
		if a := w.do(method, path, "", token...); a.StatusCode != 200 {
			t.Errorf("%s is answered with %d: %s", allowed, a.StatusCode, a.body)
		}
	}
	const other = "/v1/leases/did:plc:ann::rpg-1"
	for _, refused := range []struct{ request, body string }{
		{"GET /v1/environments/rpg-1", ""}, {"PUT /v1/environments/rpg-1", put},
		{"DELETE /v1/environments/rpg-1?force=true", ""}, {"POST /v1/environments/rpg-1/reopen", ""},
		{"POST /v1/leases", `{"agent_did":"did:plc:ann","environment_id":"rpg-1"}`}, {"GET /v1/leases", ""},
		{"GET /v1/leases?environment_id=rpg-1", ""}, {"GET " + other, ""}, {"GET " + other + "?observe=true", ""},
		{"POST " + other + "/renew", "{}"}, {"POST " + other + "/release", ""}, {"DELETE " + other, ""},
		{"POST " + other + "/sleep", ""}, {"POST " + other + "/wake", ""},
		{"POST " + other + "/exec", `{"command":["echo"]}`}, {"GET " + other + "/files?path=/workspace", ""},
		{"PUT " + other + "/files?path=/workspace/a", "{}"}, {"DELETE " + other + "/files?path=/workspace/a", ""},
		{"GET " + other + "/files/list?path=/workspace", ""}, {"GET " + other + "/files/stat?path=/workspace", ""},
		{"GET " + other + "/files?path=/workspace/a", ""}, {"GET /v1/events", ""},
		{"GET /v1/events?sandbox_id=" + l.SandboxID, ""},
		{"GET /v1/events?environment_id=rpg-1&lease_id=did:plc:ann::catan-7", ""}, {"GET /v1/costs", ""},
		{"GET /v1/drift", ""}, {"GET /v1/drift?lease_id=did:plc:ann::rpg-1", ""}, {"GET " + other + "/usage", ""},
		{"GET " + other + "/health", ""}, {"POST /v1/runs", `{"environment_id":"rpg-1","command":["echo"]}`},
		{"POST /v1/sweep", `{"dry_run":true}`}, {"POST /v1/adopt", `{"environment_id":"catan-7"}`}, {"POST /v1/audit", "{}"},
		{"POST /v1/audit", `{"environment_id":"rpg-1"}`},
	} {
		method, path, _ := strings.Cut(refused.request, " ")
		a := w.do(method, path, refused.body, token...)
		w.wantProblem(a, 403, sandbox.Forbidden, unlimited(a)...)
	}
	if page := want[wire.EnvironmentPage](w, w.do("GET", "/v1/environments", "", token...),
		200); len(page.Environments) != 1 || page.Environments[0].ID != "catan-7" {
		t.Errorf("the list of environments is %+v", page)
	}
	// The lines of accounts would reveal the costs of other environments.
	const costs = "/v1/costs?environment_id=catan-7"
	all, own := want[sandbox.CostReport](w, w.do("GET", costs, ""), 200), want[sandbox.CostReport](w,
		w.do("GET", costs, "", token...), 200)
	if len(all.Accounts) != 1 || own.Accounts == nil || len(own.Accounts) != 0 || len(own.Rows) != 1 {
		t.Errorf("an unlimited token sees the accounts %+v, and a limited one %+v", all.Accounts, own.Accounts)
	}
}

func TestRequestsAreReadStrictly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	w.wantProblem(w.do("PUT", "/v1/environments/catan-7", `{"image":"player","netwerk":"none"}`), 422,
		sandbox.Invalid, "netwerk")
	w.wantProblem(w.do("PUT", "/v1/environments/catan-7", put+put), 422, sandbox.Invalid, "body")
	w.wantProblem(w.do("PUT", "/v1/environments/catan-7", `{"id":"other","image":"player"}`), 422, sandbox.Invalid, "id")
	w.wantProblem(w.do("PUT", "/v1/environments/catan-7", `{"ttl":"a day"}`), 422, sandbox.Invalid, "ttl")
	w.wantProblem(w.do("PUT", "/v1/environments/catan-7", `{"ttl":"secret-value`), 422, sandbox.Invalid, "body")
	w.wantProblem(w.do("PUT", "/v1/environments/catan-7", ""), 400, sandbox.Invalid)
	w.wantProblem(w.do("PUT", "/v1/environments/catan-7", put, "Content-Type", "text/plain"), 415, sandbox.Invalid)
	w.wantProblem(w.do("PUT", "/v1/environments/catan-7", `"`+strings.Repeat("x", 8<<20)+`"`), 413, sandbox.Invalid)
	w.wantProblem(w.do("GET", "/v1/leases?environmentid=catan-7", ""), 422, sandbox.Invalid, "environmentid")
	w.wantProblem(w.do("GET", "/v1/leases?limit=many", ""), 422, sandbox.Invalid, "limit")
	w.wantProblem(w.do("GET", annIn+"/files", ""), 422, sandbox.Invalid, "path")
	w.wantProblem(w.do("POST", annIn+"/exec", `{"command":["echo"],"shell":true}`), 422, sandbox.Invalid, "shell")
	w.wantProblem(w.do("POST", annIn+"/exec", `{"command":["echo"]}`, "Content-Type", "text/plain"), 415, sandbox.Invalid)
	w.wantProblem(w.do("GET", "/v1/costs?from=yesterday", ""), 422, sandbox.Invalid, "from")
}

func TestUnknownPathsAndMethodsAreProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wantProblem(w.do("GET", "/", ""), 404, sandbox.NotFound)
	w.wantProblem(w.do("GET", "/v1/nothing", ""), 404, sandbox.NotFound)
	a := w.do("PATCH", "/v1/environments/catan-7", "")
	w.wantProblem(a, 405, sandbox.Invalid)
	if allow := a.Header.Get("Allow"); !strings.Contains(allow, "PUT") {
		t.Errorf("405 allows %q", allow)
	}
	if !strings.Contains(a.body, "has no method PATCH; its methods are DELETE, GET, HEAD, PUT") {
		t.Errorf("405 says %s", a.body)
	}
}

func TestPagesNameTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	want[sandbox.Acquired](w, w.do("POST", "/v1/leases", `{"agent_did":"did:plc:bob","environment_id":"catan-7"}`), 201)
	first := want[wire.LeasePage](w, w.do("GET", "/v1/leases?limit=1", ""), 200)
	if len(first.Leases) != 1 || first.NextAfter != "did:plc:ann::catan-7" {
		t.Fatalf("the first page is %+v", first)
	}
	second := want[wire.LeasePage](w, w.do("GET", "/v1/leases?limit=5&after="+first.NextAfter, ""), 200)
	if len(second.Leases) != 1 || second.Leases[0].AgentDID != "did:plc:bob" || second.NextAfter != "" {
		t.Errorf("the second page is %+v", second)
	}
	if a := w.do("GET", "/v1/drift", ""); a.body != "{\"findings\":[]}\n" {
		t.Errorf("an empty list is %q", a.body)
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var down error
	w := newWorld(t, func(c *api.Config) {
		c.Ready = func(context.Context) error { mu.Lock(); defer mu.Unlock(); return down }
	})
	for _, path := range []string{"/livez", "/readyz"} {
		if a := w.do("GET", path, "", "Authorization", ""); a.StatusCode != 200 {
			t.Errorf("%s is answered with %d: %s", path, a.StatusCode, a.body)
		}
	}
	mu.Lock()
	down = sandbox.Errorf(sandbox.Unavailable, "the disk is full")
	mu.Unlock()
	if a := w.do("GET", "/readyz", ""); a.StatusCode != 200 {
		t.Errorf("within a second it is asked again: %d", a.StatusCode)
	}
	w.Pass(time.Second)
	p := w.wantProblem(w.do("GET", "/readyz", "", "Authorization", ""), 503, sandbox.Unavailable)
	if strings.Contains(p.Detail, "the disk") { // probes need no token
		t.Errorf("readyz says %s", p.Detail)
	}
	if log := w.log.String(); !strings.Contains(log, "the disk is full") || !strings.Contains(log, `"level":"WARN"`) {
		t.Errorf("the log does not say why: %s", log)
	}
	if a := w.do("GET", "/livez", ""); a.StatusCode != 200 {
		t.Errorf("/livez is answered with %d", a.StatusCode)
	}
}

func TestMetricsAreForTokensThatMaySeeEverything(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1) // the observer hears of a request after its answer
	w := newWorld(t, func(c *api.Config) {
		// The client may have disconnected.
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "sandbox_sandboxes 7\n")
		})
		c.Observer = observer{ended: func(route string, status int) { seen <- fmt.Sprint(route, " ", status) }}
	})
	wantSeen := func(want string) {
		t.Helper()
		if got := <-seen; got != want {
			t.Errorf("a request was seen as %q, want %q", got, want)
		}
	}
	if a := w.do("GET", "/metrics", ""); a.StatusCode != 200 || a.body != "sandbox_sandboxes 7\n" {
		t.Errorf("%d %q", a.StatusCode, a.body)
	}
	wantSeen("GET /metrics 200")
	w.wantProblem(w.do("GET", "/metrics", "", "Authorization", ""), 401, sandbox.Unauthenticated)
	wantSeen("GET /metrics 401")
	w.wantProblem(w.do("GET", "/metrics", "", "Authorization", "Bearer "+w.catan), 403, sandbox.Forbidden)
	wantSeen("GET /metrics 403")
	w.do("GET", "/v1/leases/did:plc:ann::catan-7", "")
	wantSeen("GET /v1/leases/{id} 404")
	w.do("PURGE", "/v1/anything", "")
	wantSeen(" 404")
}
