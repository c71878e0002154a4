package dashboard_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// pages are all pages about the lease of did:plc:ann in catan-7, about its command x, or about everything, with their
// expected text. {lease} is the lease's path.
var pages = map[string]string{
	"/ui/":                          "catan-7",
	"/ui/environments/catan-7":      "game:1",
	"/ui/leases":                    "did:plc:ann",
	"/ui/leases?status=all":         "did:plc:ann",
	"/ui/leases?status=expired":     "No expired leases",
	"/ui/leases?labels=team%3Dred":  "did:plc:ann",
	"/ui/leases?labels=team%3Dblue": "No active leases",
	"/ui/costs":                     "Costs of August 2026",
	"/ui/costs?month=2026-07":       "No usage",
	"/ui/drift?status=all":          "vanished",
	"/ui/egress":                    "No connection attempts",
	"/ui/agents":                    "Answers messages.",
	"/ui/llm-calls":                 "No model calls",
	"/ui/webhook":                   "agent.birth",
	"{lease}":                       "sandbox ready",
	"{lease}/commands":              "echo hello",
	"{lease}/processes":             "serves HTTP on port 8080",
	"{lease}/sessions":              "No sessions",
	"{lease}/calls":                 "No model calls",
	"/ui/audit":                     "No changes by callers",
	"/ui/audit/confinement":         "changes nothing",
	"/ui/audit/confinement?run=1":   "hardening rules",
	"{lease}/usage":                 "Processes and threads",
	"{lease}/execs/{exec}":          "hello",
}

// doings are the actions on a lease, each with the text of its confirmation.
var doings = map[string]string{
	"{lease}/renew": "starts again", "{lease}/sleep": "until its next use", "{lease}/expire": "cannot be undone",
}

func (w *world) pathOf(page string, l sandbox.Lease, exec string) string {
	return strings.NewReplacer("{lease}", "/ui/leases/"+url.PathEscape(l.ID), "{exec}", exec).Replace(page)
}

func TestPagesShowWhatThereIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, exec := w.game()
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	for page, shows := range pages {
		a := b.get(w.pathOf(page, l, exec))
		if a.StatusCode != 200 || !strings.Contains(a.body, shows) {
			t.Errorf("%s is answered with %d and without %q: %s", page, a.StatusCode, shows, a.body)
		}
		if strings.Contains(a.body, "%!") || strings.Contains(a.body, "ZgotmplZ") || strings.Contains(a.body, "<no value>") {
			t.Errorf("%s has a mistake: %s", page, a.body)
		}
	}
}

// textOf returns the text of a page.
func textOf(page string) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")), " ")
}

func TestCallsOfModelsAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.game()
	w.think(l, "main")
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	lease := url.QueryEscape(l.ID)
	for page, want := range map[string]string{
		"/ui/llm-calls": "claude-small main, now running $0.33 reserved – – – did:plc:ann::catan-7",
		"/ui/llm-calls?environment=catan-7&lease=" + lease: "claude-small main, now interrupted $0.33 at most – – 1 min",
		"/ui/llm-calls?lease=" + lease:                     "completed 200 $0.01 1,200 and 30,000 cached 800 1.25 s",
		"/ui/llm-calls?environment=rpg-1":                  "No model calls in rpg-1",
		"/ui/llm-calls?before=2026-01-01T00:00:00Z":        "No model calls",
		"/ui/llm-calls?before=yesterday": "must be next_before of the previous page, or a time " +
			"such as 2026-11-24T20:00:00Z",
		"/ui/leases/" + url.PathEscape(l.ID): "$0.34 for 2 calls , 32,000 tokens",
	} {
		if got := textOf(b.get(page).body); !strings.Contains(got, want) {
			t.Errorf("%s shows %s, want %s", page, got, want)
		}
	}
}

func TestAgentsAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.game()
	w.serve(l, "short", "", "crash", "1ms", "3", "no use")
	_, err := w.Service.WaitProcess(t.Context(), sandbox.ProcessWait{
		ProcessRef: sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: l.ID}, Name: "short"}, Exit: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	lease := url.QueryEscape(l.ID)
	for page, want := range map[string]string{
		"/ui/agents": "chat Answers messages. running did:plc:ann catan-7 now 8080 " +
			"short ended did:plc:ann catan-7 now 8080",
		"/ui/agents?state=ended":                             "Started Port short ended",
		"/ui/agents?state=asleep":                            "No asleep agents.",
		"/ui/agents?environment=catan-7&lease=" + lease:      "Only those of the lease did:plc:ann::catan-7 . Agent",
		"/ui/agents?environment=rpg-1":                       "No agents in rpg-1",
		"/ui/agents?after=" + url.QueryEscape(l.ID+"/chat"):  "Started Port short ended",
		"/ui/agents?after=" + url.QueryEscape(l.ID+"/short"): "No agents",
	} {
		if got := textOf(b.get(page).body); !strings.Contains(got, want) {
			t.Errorf("%s shows %s, want %s", page, got, want)
		}
	}
}

// TestTheOverviewCountsWhatTheCallerMaySee: only callers who may see everything see the total cost.
func TestTheOverviewCountsWhatTheCallerMaySee(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	if _, err := w.Service.Sleep(t.Context(), sandbox.LeaseRef{ID: w.acquire("did:plc:eve", "rpg-1").ID}); err != nil {
		t.Fatal(err)
	}
	shown := func(environments ...string) string {
		t.Helper()
		return textOf(w.loggedIn(w.token("reads"+strings.Join(environments, ""), sandbox.ScopeRead, environments...)).
			get("/ui/").body)
	}
	for of, want := range map[string]string{
		shown():        "Live leases 2 Asleep 1 Failed 0 Open drift 0 Cost this month $0.0",
		shown("rpg-1"): "Live leases 1 Asleep 1 Failed 0 Open drift 0 Search",
	} {
		if !strings.Contains(of, want) || !strings.Contains(of, "1 live leases of rpg-1 1 asleep") {
			t.Errorf("the overview says %s, want %s", of, want)
		}
	}
}

// TestCostsAreShownAgainstTheBudget of the selected environment, or of each.
func TestCostsAreShownAgainstTheBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	budget := func(p *sandbox.PutEnvironment) { p.Budget = &sandbox.Budget{Monthly: 40 * sandbox.USD} }
	w.environment("catan-7", budget)
	w.acquire("did:plc:ann", "catan-7")
	w.environment("rpg-1")
	w.Advance(time.Hour)
	b := w.loggedIn(w.token("reads", sandbox.ScopeRead))
	for page, shows := range map[string]bool{
		"/ui/costs?environment=catan-7":               true,
		"/ui/costs?environment=rpg-1":                 false,
		"/ui/costs?environment=catan-7&month=2026-07": false,
	} {
		if body := b.get(page).body; strings.Contains(body, "Against the budget") != shows ||
			strings.Contains(body, "$40.00 budget") != shows {
			t.Errorf("%s shows a budget: %t, want %t", page, !shows, shows)
		}
	}
	if body := b.get("/ui/costs").body; !strings.Contains(body, "reserved of $40.00") || !strings.Contains(body, "100 %") {
		t.Errorf("the costs of all do not show the environment's budget and share: %s", body)
	}
}

// TestPagesNeedScopesAndEnvironmentsAsTheAPIDoes requests every page with every scope, for its environment, for others
// and for none.
func TestPagesNeedScopesAndEnvironmentsAsTheAPIDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, exec := w.game()
	for _, c := range []struct {
		scope        sandbox.Scope
		environments []string
		sees, does   bool
	}{
		{sandbox.ScopeRead, nil, true, false},
		{sandbox.ScopeLease, nil, true, true},
		{sandbox.ScopeAdmin, nil, true, true},
		{sandbox.ScopeRead, []string{"catan-*"}, true, false},
		{sandbox.ScopeLease, []string{"catan-*"}, true, true},
		{sandbox.ScopeAdmin, []string{"rpg-*"}, false, false},
		{sandbox.ScopeRead, []string{"nowhere"}, false, false},
	} {
		name := string(c.scope) + strings.ReplaceAll(strings.Join(c.environments, ""), "*", "")
		b := w.loggedIn(w.token(name, c.scope, c.environments...))
		for page, shows := range pages {
			a := b.get(w.pathOf(page, l, exec))
			if c.sees && (a.StatusCode != 200 || !strings.Contains(a.body, shows)) {
				t.Errorf("%s: %s is answered with %d", name, page, a.StatusCode)
			}
			if !c.sees && strings.Contains(a.body, "did:plc:ann") && a.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s is answered with %d: %s", name, page, a.StatusCode, a.body)
			}
			if about := strings.HasPrefix(page, "{lease}") || strings.Contains(page, "catan-7"); !c.sees && about &&
				a.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s is answered with %d", name, page, a.StatusCode)
			}
		}
		shown := b.get(w.pathOf("{lease}", l, exec)).body
		for page := range doings {
			a := b.get(w.pathOf(page, l, exec))
			if want := map[bool]int{true: 200, false: 403}[c.does]; a.StatusCode != want {
				t.Errorf("%s: asking for %s is answered with %d, want %d", name, page, a.StatusCode, want)
			}
			if offered := strings.Contains(shown, html.EscapeString(w.pathOf(page, l, exec))+`"`); offered != c.does {
				t.Errorf("%s: %s is offered: %t, want %t", name, page, offered, c.does)
			}
			if c.does {
				continue
			}
			if a := b.post(w.pathOf(page, l, exec),
				url.Values{"csrf": {b.csrf}, "generation": {"1"}}); a.StatusCode != http.StatusForbidden {
				t.Errorf("%s: doing %s is answered with %d", name, page, a.StatusCode)
			}
		}
	}
	if now, err := w.Service.GetLease(t.Context(), l.ID); err != nil || now.Status != sandbox.LeaseActive ||
		now.Phase != sandbox.PhaseAwake {
		t.Errorf("%+v, %v: it has changed", now, err)
	}
}

func TestPagesLeadWhoHasNotLoggedInToTheLogInAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, exec := w.game()
	for page := range pages {
		path := w.pathOf(page, l, exec)
		a := w.browser().get(path)
		u, err := url.Parse(a.Header.Get("Location"))
		if err != nil || a.StatusCode != http.StatusSeeOther || u.Path != "/ui/login" ||
			path != "/ui/" && u.Query().Get("next") != path {
			t.Errorf("%s is answered with %d to %s", page, a.StatusCode, a.Header.Get("Location"))
		}
	}
	for page := range doings {
		if a := w.browser().post(w.pathOf(page, l, exec),
			url.Values{"generation": {"1"}}); a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/ui/login" {
			t.Errorf("%s is answered with %d to %s", page, a.StatusCode, a.Header.Get("Location"))
		}
	}
	if a := w.browser().get("/"); a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/ui/" {
		t.Errorf("the root is answered with %d to %s", a.StatusCode, a.Header.Get("Location"))
	}
	if a := w.browser().get("/ui/live"); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("following is answered with %d", a.StatusCode)
	}
	token := w.token("ops", sandbox.ScopeRead)
	for next, leads := range map[string]string{
		"/ui/leases?status=all":    "/ui/leases?status=all",
		"":                         "/ui/",
		"https://evil.example/ui/": "/ui/",
		"//evil.example/ui/":       "/ui/",
		"/v1/leases":               "/ui/",
		"/ui/../v1/leases":         "/ui/",
		"/ui/%2e%2E/v1/leases":     "/ui/",
		"/\\evil.example":          "/ui/",
		"/ui/logout":               "/ui/",
		"javascript:alert(1)":      "/ui/",
	} {
		if a := w.browser().
			post("/ui/login", url.Values{"token": {token}, "next": {next}}); a.Header.Get("Location") != leads {
			t.Errorf("a log-in with the next page %q leads to %s, want %s", next, a.Header.Get("Location"), leads)
		}
	}
}

func TestUnknownPagesAndLeasesAreSaidToBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.loggedIn(w.token("ops", sandbox.ScopeAdmin))
	for path, status := range map[string]int{
		"/ui/nothing":                   404,
		"/ui/static/nothing.js":         404,
		"/ui/environments/nothing":      404,
		"/ui/leases/did:plc:x::nothing": 404,
		"/ui/leases/nonsense":           404,
		"/ui/leases?status=nonsense":    422,
		"/ui/live?after=x":              422,
		"/ui/live?lease=x":              422,
	} {
		if a := b.get(path); a.StatusCode != status && (path != "/ui/leases/nonsense" || a.StatusCode != 422) {
			t.Errorf("%s is answered with %d, want %d: %s", path, a.StatusCode, status, a.body)
		}
	}
}

func TestListOfLeasesIsPagedAndFiltered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.environment("catan-7")
	w.environment("rpg-1")
	var want []string
	for i := range 60 {
		agent := "did:plc:agent" + string(rune('a'+i/10)) + string(rune('0'+i%10))
		w.acquire(agent, "catan-7")
		want = append(want, agent)
	}
	w.acquire("did:plc:other", "rpg-1")
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	var got []string
	path := "/ui/leases?environment=catan-7"
	for range 3 {
		a := b.get(path)
		for _, agent := range want {
			if strings.Contains(a.body, ">"+agent+"<") {
				got = append(got, agent)
			}
		}
		if strings.Contains(a.body, "did:plc:other") {
			t.Error("a lease of another environment is listed")
		}
		_, link, more := strings.Cut(a.body, `rel="next" href="`)
		if !more {
			break
		}
		link, _, _ = strings.Cut(link, `"`)
		path = html.UnescapeString(link)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the pages list %v", got)
	}
	if a := b.get("/ui/leases?agent=did:plc:other"); !strings.Contains(a.body, ">did:plc:other<") ||
		strings.Contains(a.body, "did:plc:agent") {
		t.Errorf("the leases of one agent are %s", a.body)
	}
}

// A label links to the leases that have it.
func TestLabelsAreLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.game()
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	for _, page := range []string{"/ui/leases/" + url.PathEscape(l.ID), "/ui/environments/catan-7"} {
		_, link, found := strings.Cut(b.get(page).body, `<dt>Labels</dt><dd><a href="`)
		link, _, _ = strings.Cut(link, `"`)
		if !found || !strings.Contains(b.get(html.UnescapeString(link)).body, ">did:plc:ann<") {
			t.Errorf("the labels of %s lead to %q", page, link)
		}
	}
}

func TestWhoIsLimitedToEnvironmentsIsShownTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	w.acquire("did:plc:bob", "rpg-1")
	b := w.loggedIn(w.token("rpg", sandbox.ScopeRead, "rpg-*"))
	if a := b.get("/ui/leases"); a.StatusCode != 200 || !strings.Contains(a.body, "did:plc:bob") ||
		strings.Contains(a.body, "did:plc:ann") {
		t.Errorf("the list is %d %s", a.StatusCode, a.body)
	}
	if a := b.get("/ui/leases?environment=catan-7"); a.StatusCode != http.StatusForbidden {
		t.Errorf("another environment is answered with %d", a.StatusCode)
	}
}

func TestNamesOfOthersAreShownAndNotObeyed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const hostile = `"><script>alert(1)</script><img src=x onerror='alert(2)'>` + "\x1b[2J"
	w.environment("catan-7", func(p *sandbox.PutEnvironment) {
		p.Image, p.Owner = hostile, hostile
	})
	l := w.acquire("did:plc:ann", "catan-7")
	exec := w.run(l.ID, "echo", hostile)
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	for _, page := range []string{
		"/ui/environments/catan-7", "{lease}", "{lease}/execs/{exec}", "/ui/leases?agent=" + url.QueryEscape(hostile),
		"/ui/" + url.PathEscape(hostile), "/ui/login?next=" + url.QueryEscape(hostile),
	} {
		a := b.get(w.pathOf(page, l, exec))
		if strings.Contains(a.body, "<script>") || strings.Contains(a.body, "<img") || strings.Contains(a.body, "\x1b") {
			t.Errorf("%s is hostile: %s", page, a.body)
		}
		if !strings.Contains(page, "login") && !strings.Contains(a.body, "&lt;script&gt;alert(1)") {
			t.Errorf("%s does not show it: %s", page, a.body)
		}
	}
}
