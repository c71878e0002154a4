package dashboard_test

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var updateMatrix = flag.Bool("update-access", false, "write testdata/access.txt in place of comparing with it")

// matrixPages are all pages and forms, with each way to name their target in the URL. {env} is the environment, {lease}
// the path of did:plc:ann's lease in it, and {exec} a command of that lease.
var matrixPages = []string{
	"GET /ui/", "GET /ui/environments/{env}", "GET /ui/leases", "GET /ui/leases?environment={env}",
	"GET /ui/leases?environment={env}&agent=did:plc:ann", "GET {lease}", "GET {lease}/usage", "GET {lease}/execs/{exec}",
	"GET {lease}/execs/x", "GET /ui/leases/no-lease", "GET /ui/costs", "GET /ui/costs?environment={env}",
	"GET /ui/drift", "GET /ui/drift?environment={env}", "GET /ui/egress", "GET /ui/egress?environment={env}",
	"GET /ui/agents", "GET /ui/agents?environment={env}", "GET /ui/agents?environment={env}&lease={id}",
	"GET /ui/agents?environment=catan-7&lease={id}",
	"GET /ui/llm-calls", "GET /ui/llm-calls?environment={env}", "GET /ui/llm-calls?environment={env}&lease={id}",
	"GET /ui/llm-calls?environment=catan-7&lease={id}", "GET /ui/webhook", "GET /ui/webhook?environment={env}", "GET /ui/webhook/message",
	"GET /ui/webhook/message?id=m-{env}", "GET /ui/webhook/message?id=m-{env}&environment={env}",
	"GET /ui/webhook/message?id=m-rpg-1&environment=catan-7", "GET /ui/live", "GET /ui/live?environment={env}",
	"GET /ui/live?lease={id}", "GET /ui/live?environment=catan-7&lease={id}",
	"GET /ui/live?environment={env}&lease=did:plc:ann::catan-7", "GET /ui/live?lease=no-lease", "GET {lease}/renew",
	"GET {lease}/sleep", "GET {lease}/expire", "POST {lease}/renew", "POST {lease}/sleep", "POST {lease}/expire",
	"POST /ui/environments/{env}", "GET /ui/nothing", "GET {lease}/wake", "POST {lease}/wake",
	"GET {lease}/commands", "GET {lease}/processes", "GET {lease}/processes/x", "GET {lease}/processes/talks",
	"GET {lease}/sessions", "GET {lease}/sessions/x", "GET {lease}/files",
	"GET {lease}/files?path=/data", "GET {lease}/files?path=/etc", "GET {lease}/calls",
	"GET /ui/environments/{env}/end", "POST /ui/environments/{env}/end", "GET /ui/environments/{env}/reopen",
	"POST /ui/environments/{env}/reopen", "GET /ui/environments/{env}/allow?host=example.com&port=443",
	"POST /ui/environments/{env}/allow", "GET /ui/audit", "GET /ui/audit?environment={env}",
	"GET /ui/audit/confinement?run=1", "GET /ui/audit/confinement?environment={env}&run=1", "GET /ui/tokens",
	"GET /ui/tokens/{token}/revoke", "POST /ui/tokens/{token}/revoke",
}

// look returns an answer in short form: its status, with S for a missing scope and E for a forbidden environment. It
// adds ! if the page shows anything of rpg-1 to a token that is limited to others.
func (b *browser) look(method, path string, limited bool) string {
	b.w.Helper()
	r := b.request(method, path, nil)
	if method == http.MethodPost {
		form := url.Values{"csrf": {b.csrf}, "generation": {"1"}, "host": {"example.com"}, "port": {"443"}}
		r = b.request(method, path, strings.NewReader(form.Encode()), "Content-Type", "application/x-www-form-urlencoded",
			"Origin", b.w.server.URL, "Sec-Fetch-Site", "same-origin")
	}
	a, err := b.w.server.Client().Transport.RoundTrip(r)
	if err != nil {
		b.w.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	text := fmt.Sprint(a.StatusCode)
	if strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream") {
		return text
	}
	body, err := io.ReadAll(a.Body)
	if err != nil {
		b.w.Fatal(err)
	}
	switch {
	case strings.Contains(string(body), " has the scope"):
		text += "S"
	case strings.Contains(string(body), " is limited to the environments ") || strings.Contains(string(body), " may not use environment "):
		text += "E"
	case limited && a.StatusCode == http.StatusOK && strings.Contains(string(body), "of rpg-1"):
		text += "!"
	}
	return text
}

// TestWhatEveryTokenIsShown requests every page and sends every form with a token of every scope that may log in, once
// unlimited and once limited to catan-*. It compares the answers with a table. Requests that the table refuses must
// stay refused.
func TestWhatEveryTokenIsShown(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	cells := map[string][]string{}
	table.WriteString("#")
	for _, scope := range []sandbox.Scope{sandbox.ScopeRead, sandbox.ScopeLease, sandbox.ScopeAdmin} {
		for _, c := range []struct {
			name, environment string
			limit             []string
		}{{"all", "rpg-1", nil}, {"own", "catan-7", []string{"catan-*"}}, {"other", "rpg-1", []string{"catan-*"}}} {
			fmt.Fprintf(&table, " %s/%s", scope, c.name)
			w := newWorld(t)
			exec := map[string]string{}
			for _, environment := range []string{"catan-7", "rpg-1"} {
				w.environment(environment, model, func(p *sandbox.PutEnvironment) { p.Image = "of " + environment })
				l := w.acquire("did:plc:ann", environment)
				w.think(l, "of "+environment)
				w.serve(l, "talks", "", "listen", "8080", "1ms")
				exec[environment] = w.run(l.ID, "echo", "of "+environment)
				w.deliver("m-"+environment, "agent.birth", environment, l.AgentDID)
			}
			w.Pass(time.Second) // an environment cannot end in the instant in which it opened
			b := w.loggedIn(w.token("looks", scope, c.limit...))
			w.token("another", sandbox.ScopeRead)
			tokens, err := w.registry.ListTokens(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			id := "did:plc:ann::" + c.environment
			names := strings.NewReplacer("{env}", c.environment, "{lease}", "/ui/leases/"+url.PathEscape(id), "{id}",
				url.QueryEscape(id), "{exec}", exec[c.environment], "{token}", tokens[0].ID)
			for _, page := range matrixPages {
				method, path, _ := strings.Cut(names.Replace(page), " ")
				cells[page] = append(cells[page], b.look(method, path, c.limit != nil))
			}
		}
	}
	table.WriteString("\n")
	for _, page := range slices.SortedFunc(slices.Values(matrixPages), cmp.Compare[string]) {
		fmt.Fprintf(&table, "%s\n\t%s\n", page, strings.Join(cells[page], " "))
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
