package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// needs lists the routes by the scope that they need. A route that is missing here or in the document fails the tests.
var needs = map[sandbox.Scope][]string{
	"": {"GET /livez", "GET /readyz"},
	sandbox.ScopeRead: {
		"GET /v1/environments", "GET /v1/environments/{id}", "GET /v1/leases", "GET /v1/leases/{id}",
		"GET /v1/leases/{id}/usage", "GET /v1/leases/{id}/usage/history", "GET /v1/leases/{id}/health",
		"GET /v1/leases/{id}/execs", "GET /v1/leases/{id}/execs/{exec}", "GET /v1/leases/{id}/execs/{exec}/{stream}",
		"GET /v1/leases/{id}/sessions",
		"GET /v1/leases/{id}/sessions/{session}", "GET /v1/leases/{id}/sessions/{session}/events",
		"GET /v1/agents",
		"GET /v1/leases/{id}/processes", "GET /v1/leases/{id}/processes/{process}", "GET /v1/costs", "GET /v1/drift",
		"GET /v1/deliveries", "GET /v1/events", "GET /v1/ledger", "GET /v1/llm-calls", "GET /v1/states", "POST /v1/audit",
	},
	sandbox.ScopeLease: {
		"POST /v1/leases", "POST /v1/leases/batch", "DELETE /v1/leases/{id}",
		"POST /v1/leases/{id}/exec", "POST /v1/leases/{id}/execs/{exec}/cancel", "POST /v1/leases/{id}/processes",
		"DELETE /v1/leases/{id}/processes/{process}", "POST /v1/leases/{id}/processes/{process}/wait",
		"GET /v1/leases/{id}/processes/{process}/logs", "GET /v1/leases/{id}/companions/{companion}/logs",
		"GET /v1/leases/{id}/files", "PUT /v1/leases/{id}/files",
		"DELETE /v1/leases/{id}/files", "GET /v1/leases/{id}/files/list", "GET /v1/leases/{id}/files/stat",
		"GET /v1/leases/{id}/workspace/bundle", "GET /v1/leases/{id}/workspace/diff",
		"POST /v1/leases/{id}/workspace/push",
		"POST /v1/leases/{id}/release", "POST /v1/leases/{id}/renew", "POST /v1/leases/{id}/sleep",
		"POST /v1/leases/{id}/wake", "POST /v1/leases/{id}/sessions", "DELETE /v1/leases/{id}/sessions/{session}",
		"POST /v1/leases/{id}/sessions/{session}/exec", "POST /v1/runs",
		"GET /v1/leases/{id}/agents/{agent}/{path}", "POST /v1/leases/{id}/agents/{agent}/{path}",
		"PUT /v1/leases/{id}/agents/{agent}/{path}", "DELETE /v1/leases/{id}/agents/{agent}/{path}",
	},
	sandbox.ScopeConditions: {"POST /v1/conditions"},
	sandbox.ScopeAdmin: {
		"PUT /v1/environments/{id}", "DELETE /v1/environments/{id}", "POST /v1/environments/{id}/reopen",
		"POST /v1/environments/{id}/check", "DELETE /v1/states/{key}", "POST /v1/sweep", "POST /v1/adopt",
		"GET /v1/tokens", "POST /v1/tokens", "POST /v1/tokens/{token}/rotate", "DELETE /v1/tokens/{token}",
	},
}

// routes are all routes of the API.
var routes = func() (all []string) {
	for _, some := range needs {
		all = append(all, some...)
	}
	return all
}()

// mayDo lists by hand the scopes that each scope includes.
var mayDo = map[sandbox.Scope][]sandbox.Scope{
	sandbox.ScopeRead:       {sandbox.ScopeRead},
	sandbox.ScopeLease:      {sandbox.ScopeRead, sandbox.ScopeLease},
	sandbox.ScopeConditions: {sandbox.ScopeConditions},
	sandbox.ScopeAdmin:      {sandbox.ScopeRead, sandbox.ScopeLease, sandbox.ScopeConditions, sandbox.ScopeAdmin},
}

// everyRoute calls do with each route that needs a token, and a request for it. The request concerns the environment
// rpg-1 or all environments.
func (w *world) everyRoute(do func(needed sandbox.Scope, route string, ask func(token string) answer)) {
	w.Helper()
	w.everyRouteIn("rpg-1", do)
}

func (w *world) everyRouteIn(id string, do func(needed sandbox.Scope, route string, ask func(token string) answer)) {
	w.Helper()
	names := strings.NewReplacer("/environments/{id}", "/environments/"+id, "{id}", "did:plc:ann::"+id, "{stream}",
		"stdout", "{exec}", "x", "{session}", "s", "{process}", "p", "{agent}", "p", "{path}", "talk", "{key}", "k", "{token}", "nobody")
	bodies := map[string]string{
		"POST /v1/leases":                               `{"agent_did":"did:plc:ann","environment_id":"rpg-1"}`,
		"POST /v1/runs":                                 `{"environment_id":"rpg-1","command":["echo"]}`,
		"POST /v1/leases/batch":                         `{"environment_id":"rpg-1","items":[{"agent_did":"did:plc:ann"}]}`,
		"POST /v1/leases/{id}/exec":                     `{"command":["echo"]}`,
		"POST /v1/leases/{id}/sessions/{session}/exec":  `{"command":["echo"]}`,
		"POST /v1/leases/{id}/processes":                `{"name":"p","command":["echo"]}`,
		"POST /v1/leases/{id}/processes/{process}/wait": `{}`,
		"POST /v1/leases/{id}/sessions":                 "{}", "POST /v1/leases/{id}/renew": "{}",
		"PUT /v1/environments/{id}": put, "POST /v1/environments/{id}/check": put,
		"PUT /v1/leases/{id}/files": "{}",
		"POST /v1/conditions":       w.condition("game.finished", `{"environment_id":"rpg-1"}`), "POST /v1/audit": "{}",
		"POST /v1/adopt": "{}",
		"POST /v1/sweep": `{"dry_run":true}`, "POST /v1/tokens": `{"name":"x","scopes":["read"]}`,
		"POST /v1/tokens/{token}/rotate": "{}",
	}
	for needed, some := range needs {
		for _, route := range some {
			if needed == "" {
				continue
			}
			method, path, _ := strings.Cut(route, " ")
			path = names.Replace(path)
			if strings.Contains(route, "/files") {
				path += "?path=/workspace/a"
			}
			do(needed, route, func(token string) answer {
				authorization := "Bearer " + token
				if token == "" {
					authorization = ""
				}
				return w.do(method, path, strings.ReplaceAll(bodies[route], "rpg-1", id), "Authorization", authorization)
			})
		}
	}
}

// issue creates a token in the ledger.
func (w *world) issue(c sandbox.CreateToken) sandbox.CreatedToken {
	w.Helper()
	made, err := access.New(access.Config{Store: w.store}).CreateToken(w.Context(), c)
	if err != nil {
		w.Fatal(err)
	}
	return made
}

func TestEveryRouteNeedsItsScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, has := range sandbox.Scopes() {
		token := w.issue(sandbox.CreateToken{Name: "only-" + string(has), Scopes: []sandbox.Scope{has}})
		w.everyRoute(func(needed sandbox.Scope, route string, ask func(string) answer) {
			a := ask(string(token.Text))
			if slices.Contains(mayDo[has], needed) {
				if a.StatusCode == 401 || a.StatusCode == 403 {
					t.Errorf("%s with the scope %s is answered with %d: %s", route, has, a.StatusCode, a.body)
				}
				return
			}
			p := w.wantProblem(a, 403, sandbox.Forbidden)
			if p.Reason != sandbox.ReasonScopeMissing ||
				!strings.Contains(p.Detail, fmt.Sprintf("only-%s has the scope %s, but the request needs %s", has, has, needed)) {
				t.Errorf("%s with the scope %s says %s", route, has, a.body)
			}
		})
	}
}

func TestEveryRouteRefusesTokensThatAreNotAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := []sandbox.Scope{sandbox.ScopeAdmin}
	expired := w.issue(sandbox.CreateToken{Name: "old", Scopes: admin, ExpiresAt: w.Now().Add(time.Minute)})
	revoked := w.issue(sandbox.CreateToken{Name: "gone", Scopes: admin})
	if a := w.do("DELETE", "/v1/tokens/gone", ""); a.StatusCode != 200 {
		t.Fatalf("revoking is answered with %d: %s", a.StatusCode, a.body)
	}
	w.Pass(time.Minute)
	for _, c := range []struct{ token, says string }{
		{"", "missing token"}, {"sbl_" + strings.Repeat("x", 43), "unknown token"},
		{string(expired.Text), "token old (" + expired.ID + ") expired at"},
		{string(revoked.Text), "token gone (" + revoked.ID + ") was revoked at"},
	} {
		w.everyRoute(func(_ sandbox.Scope, route string, ask func(string) answer) {
			if route == "POST /v1/conditions" && c.token == "" {
				return // that is an unsigned message
			}
			if p := w.wantProblem(ask(c.token), 401, sandbox.Unauthenticated); !strings.Contains(p.Detail, c.says) {
				t.Errorf("%s says %q, want %q", route, p.Detail, c.says)
			}
		})
	}
}

func TestEveryRouteRefusesATokenForOtherEnvironments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.issue(sandbox.CreateToken{
		Name:         "catan",
		Scopes:       []sandbox.Scope{sandbox.ScopeAdmin},
		Environments: []string{"catan-*"},
	})
	w.everyRoute(func(_ sandbox.Scope, route string, ask func(string) answer) {
		a := ask(string(token.Text))
		if route == "GET /v1/environments" || route == "GET /v1/ledger" { // they reveal no other environment
			if a.StatusCode != 200 {
				t.Errorf("%s is answered with %d: %s", route, a.StatusCode, a.body)
			}
			return
		}
		if p := w.wantProblem(a, 403, sandbox.Forbidden, unlimited(a)...); p.Reason != sandbox.ReasonEnvironmentNotAllowed ||
			!strings.Contains(p.Detail, "catan-*") {
			t.Errorf("%s says %s", route, a.body)
		}
	})
}

// unlimited returns the field that a refused request must set to name one environment.
func unlimited(refused answer) []string {
	if strings.Contains(refused.body, ` is limited to the environments catan-*"`) {
		return []string{"environment_id"}
	}
	return nil
}

func TestTheDocumentNamesScopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	doc := want[openAPI](w, w.do("GET", "/openapi.json", "", "Authorization", ""), 200)
	for needed, some := range needs {
		for _, route := range some {
			method, path, _ := strings.Cut(route, " ")
			told := ""
			for _, requirement := range doc.Paths[path][strings.ToLower(method)].Security {
				told += strings.Join(requirement["token"], " ")
			}
			if told != string(needed) {
				t.Errorf("the document says that %s needs %q, want %q", route, told, needed)
			}
		}
	}
}

func TestTokensAreMadeListedRotatedAndRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := want[sandbox.CreatedToken](w,
		w.do("POST", "/v1/tokens", `{"name":"ci","scopes":["lease"],"environments":["catan-*"],"expires_at":"`+
			w.Now().Add(time.Hour).Format(time.RFC3339)+`"}`), 201)
	if made.CreatedBy != "token:admin" || !strings.HasPrefix(string(made.Text), "sbl_") {
		t.Errorf("the token is %+v", made.Token)
	}
	w.wantProblem(w.do("POST", "/v1/tokens", `{"name":"ci","scopes":["read"]}`), 409, sandbox.Conflict)
	w.wantProblem(w.do("POST", "/v1/tokens",
		`{"name":"tok_x","scopes":["root"],"environments":["["],"expires_at":"2020-01-01T00:00:00Z"}`), 422, sandbox.Invalid,
		"name", "scopes", "environments", "expires_at")
	// An empty list must not mean "no limit".
	none := w.wantProblem(w.do("POST", "/v1/tokens", `{"name":"x","scopes":["admin"],"environments":[]}`), 422,
		sandbox.Invalid, "environments")
	if want := "must not be empty; leave it out for all environments"; none.Fields[0].Problem != want {
		t.Errorf("an empty list of environments %s, want %s", none.Fields[0].Problem, want)
	}
	if text, err := json.Marshal(sandbox.CreateToken{Environments: []string{}}); err != nil ||
		!strings.Contains(string(text), `"environments":[]`) {
		t.Errorf("a client sends %s, %v", text, err)
	}
	w.Pass(30 * time.Minute)
	next := want[sandbox.CreatedToken](w, w.do("POST", "/v1/tokens/ci/rotate", `{"overlap":"10m"}`), 201)
	if !next.ExpiresAt.Equal(w.Now().Add(time.Hour)) || next.ID == made.ID || !slices.Equal(next.Scopes, made.Scopes) ||
		!slices.Equal(next.Environments, made.Environments) {
		t.Errorf("the next token is %+v after %+v", next.Token, made.Token)
	}
	ask := func(text sandbox.Secret) int {
		return w.do("GET", "/v1/environments", "", "Authorization", "Bearer "+string(text)).StatusCode
	}
	if old, now := ask(made.Text), ask(next.Text); old != 200 || now != 200 {
		t.Errorf("while they overlap, the old token is answered with %d and the new one with %d", old, now)
	}
	w.Pass(10 * time.Minute)
	if old, now := ask(made.Text), ask(next.Text); old != 401 || now != 200 {
		t.Errorf("afterwards, the old token is answered with %d and the new one with %d", old, now)
	}
	w.wantProblem(w.do("POST", "/v1/tokens/nobody/rotate", "{}"), 404, sandbox.NotFound)
	w.wantProblem(w.do("DELETE", "/v1/tokens/nobody", ""), 404, sandbox.NotFound)
	a := w.do("DELETE", "/v1/tokens/"+next.ID, "")
	if page := want[wire.TokenPage](w, a, 200); len(page.Tokens) != 1 || page.Tokens[0].RevokedBy != "token:admin" {
		t.Errorf("revoking returns %s", a.body)
	}
	if now := ask(next.Text); now != 401 {
		t.Errorf("the revoked token is answered with %d", now)
	}
	list := w.do("GET", "/v1/tokens", "")
	if page := want[wire.TokenPage](w, list, 200); len(page.Tokens) != 2 || page.Tokens[0].ID != next.ID ||
		page.Tokens[1].ID != made.ID {
		t.Errorf("the list is %s", list.body)
	}
	if strings.Contains(list.body, "sbl_") || strings.Contains(w.log.String(), "sbl_") {
		t.Error("the list or the log shows a token's text")
	}
	var told []string
	for _, e := range want[wire.EventPage](w, w.do("GET", "/v1/events?type=token.*", ""), 200).Events {
		told = append(told, fmt.Sprint(e.Type, " by ", e.Actor, " from ", e.Address))
	}
	if got := strings.Join(told, ", "); got != "token.created by token:admin from 127.0.0.1, token.rotated by "+
		"token:admin from 127.0.0.1, token.revoked by token:admin from 127.0.0.1" {
		t.Errorf("events: %s", got)
	}
}

func TestEventsTellWhoAskedForChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.game()
	w.send(w.signed("m-1", w.condition("game.finished", `{"environment_id":"catan-7"}`)))
	by := map[sandbox.EventType]string{}
	for _, e := range want[wire.EventPage](w, w.do("GET", "/v1/events", ""), 200).Events {
		by[e.Type] = e.Actor + " " + e.Address
	}
	for event, who := range map[sandbox.EventType]string{
		sandbox.EventEnvironmentCreated: "token:admin 127.0.0.1", sandbox.EventAccepted: "token:admin 127.0.0.1",
		sandbox.EventConditionApplied: w.secret.Source() + " 127.0.0.1", sandbox.EventEnded: w.secret.Source() + " 127.0.0.1",
	} {
		if by[event] != who {
			t.Errorf("%s of %s happened on behalf of %q, want %q", event, l.ID, by[event], who)
		}
	}
}
