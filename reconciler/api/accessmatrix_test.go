package api_test

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var updateMatrix = flag.Bool("update-access", false, "write testdata/access.txt in place of comparing with it")

// variants are more requests of each route, which name their target in other ways. {env} is the target environment.
var variants = []struct{ request, body string }{
	{"GET /v1/leases?environment_id={env}", ""}, {"GET /v1/leases?agent_did=did:plc:ann", ""},
	{"GET /v1/leases/did:plc:ann::{env}?observe=true", ""}, {"GET /v1/leases/no-lease", ""},
	{"GET /v1/leases/no-lease/execs", ""},
	{"GET /v1/agents?environment_id={env}", ""}, {"GET /v1/agents?lease_id=did:plc:ann::{env}", ""},
	{"GET /v1/agents?environment_id={env}&lease_id=did:plc:ann::catan-7", ""},
	{"PATCH /v1/leases/did:plc:ann::{env}/agents/p/talk", ""}, {"GET /v1/leases/no-lease/agents/p/talk", ""},
	{"GET /v1/events?environment_id={env}", ""}, {"GET /v1/events?lease_id=did:plc:ann::{env}", ""},
	{"GET /v1/events?lease_id=no-lease", ""}, {"GET /v1/events?sandbox_id=x", ""}, {"GET /v1/events?type=token.*", ""},
	{"GET /v1/events?environment_id=catan-7&lease_id=did:plc:ann::{env}", ""},
	{"GET /v1/events?environment_id={env}&lease_id=did:plc:ann::catan-7", ""},
	{"GET /v1/costs?environment_id={env}", ""}, {"GET /v1/costs?agent_did=did:plc:ann", ""},
	{"GET /v1/drift?environment_id={env}", ""}, {"GET /v1/drift?lease_id=did:plc:ann::{env}", ""},
	{"GET /v1/drift?environment_id={env}&lease_id=did:plc:ann::catan-7", ""},
	{"GET /v1/llm-calls?environment_id={env}", ""}, {"GET /v1/llm-calls?lease_id=did:plc:ann::{env}", ""},
	{"GET /v1/llm-calls?environment_id={env}&lease_id=did:plc:ann::catan-7", ""},
	{"GET /v1/deliveries?environment_id={env}", ""}, {"GET /v1/deliveries?id=m", ""},
	{"GET /v1/states?environment_id={env}", ""}, {"GET /v1/states?agent_did=did:plc:ann", ""},
	{"POST /v1/audit", `{"environment_id":"{env}"}`}, {"POST /v1/adopt", `{"environment_id":"{env}"}`},
	{"POST /v1/leases", `{"agent_did":"did:plc:ann"}`}, {"POST /v1/leases/batch", `{"items":[]}`},
	{"POST /v1/leases/batch", `{"items":[{"agent_did":"did:plc:ann","environment_id":"catan-7"},` +
		`{"agent_did":"did:plc:ann","environment_id":"{env}"}]}`},
	{"POST /v1/runs", `{"command":["echo"]}`}, {"POST /v1/conditions", `{"type":"agent.birth"}`},
	{"PUT /v1/environments/{env}", `{"id":"catan-8","image":"player"}`},
	{"GET /v1/leases/did:plc:ann::{env}/files?path=/workspace/a", "tar"},
	{"PUT /v1/leases/did:plc:ann::{env}/files?path=/workspace", "tar"},
	{"GET /v1/events?lease_id=did:plc:ann::{env}&latest=true", "follow"},
	{"GET /v1/leases/did:plc:ann::{env}/sessions/s/events", "follow"},
}

// cell returns an answer in short form: its status, with S for a missing scope and E for a forbidden environment.
func cell(a answer) string {
	text := fmt.Sprint(a.StatusCode)
	switch {
	case strings.Contains(a.body, `"`+string(sandbox.ReasonScopeMissing)+`"`):
		return text + "S"
	case strings.Contains(a.body, `"`+string(sandbox.ReasonEnvironmentNotAllowed)+`"`):
		return text + "E"
	}
	return text
}

// matrixRequests calls do with every request about an environment. Requests that change nothing come first.
func (w *world) matrixRequests(environment string, do func(name string, ask func(token string) answer)) {
	w.Helper()
	asks := map[string]func(string) answer{}
	w.everyRouteIn(environment, func(_ sandbox.Scope, route string, ask func(string) answer) { asks[route] = ask })
	about := strings.NewReplacer("{env}", environment)
	for _, q := range variants {
		method, path, _ := strings.Cut(about.Replace(q.request), " ")
		body, header := about.Replace(q.body), []string(nil)
		switch body {
		case "tar":
			body, header = "", []string{"Accept", wire.Tar, "Content-Type", wire.Tar}
		case "follow":
			body, header = "", []string{"Accept", wire.EventStream}
		}
		asks[q.request+" "+q.body] = func(token string) answer {
			return w.do(method, path, body, append(header, "Authorization", "Bearer "+token)...)
		}
	}
	asks["GET /metrics"] = func(token string) answer {
		return w.do("GET", "/metrics", "", "Authorization", "Bearer "+token)
	}
	names := []string{}
	for name := range asks {
		names = append(names, name)
	}
	rank := func(name string) int { // requests that end a lease come after those that use it
		method, _, _ := strings.Cut(name, " ")
		if strings.Contains(name, "/release") {
			method = "release"
		}
		return slices.Index([]string{"GET", "PUT", "POST", "release", "DELETE"}, method)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	for _, name := range names {
		do(name, asks[name])
	}
}

// TestWhatEveryTokenIsAnswered sends every request with a token of every scope, once unlimited and once limited to
// catan-*. It compares the answers with a table. Requests that the table refuses must stay refused.
func TestWhatEveryTokenIsAnswered(t *testing.T) {
	t.Parallel()
	var names []string
	cells := map[string][]string{}
	columns := []string{}
	for _, scope := range sandbox.Scopes() {
		for _, c := range []struct {
			name, environment string
			limit             []string
		}{{"all", "rpg-1", nil}, {"own", "catan-7", []string{"catan-*"}}, {"other", "rpg-1", []string{"catan-*"}}} {
			columns = append(columns, string(scope)+"/"+c.name)
			w := newWorld(t, func(c *api.Config) {
				c.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			})
			for _, environment := range []string{"catan-7", "rpg-1"} {
				want[sandbox.Environment](w, w.do("PUT", "/v1/environments/"+environment, put), 200)
				want[sandbox.Acquired](w,
					w.do("POST", "/v1/leases", `{"agent_did":"did:plc:ann","environment_id":"`+environment+`"}`), 201)
			}
			w.Advance(time.Second)
			token := w.issue(sandbox.CreateToken{Name: "asks", Scopes: []sandbox.Scope{scope}, Environments: c.limit})
			names = names[:0]
			w.matrixRequests(c.environment, func(name string, ask func(string) answer) {
				names = append(names, name)
				cells[name] = append(cells[name], cell(ask(string(token.Text))))
			})
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "# %s\n", strings.Join(columns, " "))
	for _, name := range names {
		fmt.Fprintf(&table, "%s\n\t%s\n", strings.TrimSpace(name), strings.Join(cells[name], " "))
	}
	const file = "testdata/access.txt"
	if *updateMatrix {
		if err := os.WriteFile(file, []byte(table.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wanted, got := strings.Split(string(stored), "\n"), strings.Split(table.String(), "\n")
	for i := range min(len(wanted), len(got)) {
		if wanted[i] != got[i] {
			t.Errorf("%s: %s\nwant %s", got[max(i-1, 0)], got[i], wanted[i])
		}
	}
	if len(wanted) != len(got) {
		t.Errorf("%s has %d lines, not %d:\n%s", file, len(wanted), len(got), table.String())
	}
}
