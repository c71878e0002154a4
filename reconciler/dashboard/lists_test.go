package dashboard_test

import (
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// rowNames returns the texts of the row headers of a page, in order.
func rowNames(page string) (names []string) {
	for _, m := range regexp.MustCompile(`(?s)<th scope="row"[^>]*>(.*?)</th>`).FindAllStringSubmatch(page, -1) {
		names = append(names, textOf(m[1]))
	}
	return names
}

// linkTo returns the URL of the first link of a page with a text.
func (a answer) linkTo(t *testing.T, text string) string {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?s)<a [^>]*href="([^"]*)"[^>]*>(.*?)</a>`).FindAllStringSubmatch(a.body, -1) {
		if textOf(m[2]) == text {
			return html.UnescapeString(m[1])
		}
	}
	t.Fatalf("no link says %q: %s", text, textOf(a.body))
	return ""
}

// TestLeasesAreFoundAndSorted: a part of an id finds leases, and sorting and the tabs keep the filters.
func TestLeasesAreFoundAndSorted(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, leasesAreFoundAndSorted)
}

func leasesAreFoundAndSorted(t *testing.T, w *world) {
	w.environment("catan-7", func(p *sandbox.PutEnvironment) { p.Labels = map[string]string{"team": "red"} })
	w.environment("rpg-1")
	ann := w.acquire("did:plc:ann", "catan-7")
	w.acquire("did:plc:joanna", "rpg-1")
	w.acquire("did:plc:bob", "catan-7")
	w.Pass(time.Minute)
	if _, err := w.Service.Renew(t.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: ann.ID}}); err != nil {
		t.Fatal(err)
	}
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	for path, want := range map[string][]string{
		"/ui/leases?q=ANN":                           {"did:plc:ann", "did:plc:joanna"},
		"/ui/leases?q=catan":                         {"did:plc:ann", "did:plc:bob"},
		"/ui/leases?q=n::c":                          {"did:plc:ann"},
		"/ui/leases?q=%25":                           nil,
		"/ui/leases?sort=-id":                        {"did:plc:joanna", "did:plc:bob", "did:plc:ann"},
		"/ui/leases?sort=-activity&labels=team=red":  {"did:plc:ann", "did:plc:bob"},
		"/ui/leases?sort=-environment":               {"did:plc:joanna", "did:plc:bob", "did:plc:ann"},
		"/ui/leases?sort=expiry&environment=catan-7": {"did:plc:bob", "did:plc:ann"},
		"/ui/?q=RPG":                                 {"rpg-1"},
		"/ui/?labels=team=red":                       {"catan-7"},
		"/ui/?status=ended":                          nil,
		"/ui/?sort=-leases":                          {"catan-7", "rpg-1"},
		"/ui/?sort=-id":                              {"rpg-1", "catan-7"},
	} {
		if got := rowNames(b.get(path).body); !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q", path, got, want)
		}
	}
	page := b.get("/ui/leases?q=ann&status=all")
	sorted := page.linkTo(t, "Ends")
	if u, err := url.Parse(sorted); err != nil || u.Query().Get("q") != "ann" || u.Query().Get("status") != "all" {
		t.Errorf("sorting loses the filters: %s", sorted)
	}
	page = b.get(sorted)
	if again := page.linkTo(t, "Ends"); !strings.Contains(again, "sort=-expiry") ||
		!strings.Contains(page.body, `aria-sort="ascending"`) {
		t.Errorf("sorting again leads to %s", again)
	}
	if tab := page.linkTo(t, "destroyed"); !strings.Contains(tab, "q=ann") || !strings.Contains(tab, "sort=expiry") {
		t.Errorf("the tabs lose the filters: %s", tab)
	}
	for _, path := range []string{"/ui/leases?sort=cost", "/ui/?sort=x", "/ui/?labels==x", "/ui/?status=x", "/ui/egress?sort=x",
		"/ui/drift?sort=x", "/ui/costs?sort=x"} {
		if a := b.get(path); a.StatusCode != 422 {
			t.Errorf("%s is answered with %d", path, a.StatusCode)
		}
	}
}

// TestFailedCommandsAreRed: they show their exit code, and need no extra column for it.
func TestFailedCommandsAreRed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.environment("catan-7")
	l := w.acquire("did:plc:ann", "catan-7")
	w.run(l.ID, "echo", "hello")
	id := w.run(l.ID, "false")
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	for _, page := range []string{"{lease}", "{lease}/commands", "{lease}/execs/{exec}"} {
		body := b.get(w.pathOf(page, l, id)).body
		if !strings.Contains(body, `<span class="state bad">failed, exit 127</span>`) {
			t.Errorf("%s does not show the failure: %s", page, body)
		}
		if good := strings.Contains(body, `<span class="state good">finished</span>`); good != !strings.Contains(page, "exec") {
			t.Errorf("%s shows the command that succeeded: %t", page, good)
		}
	}
	if body := b.get(w.pathOf("{lease}", l, id)).body; !strings.Contains(body, `<li class="bad"><span class="what"><b>command finished`) {
		t.Errorf("the timeline does not show the failure: %s", body)
	}
}

// TestTheLifeOfALeaseIsDrawn in lanes, with text for users who cannot see them.
func TestTheLifeOfALeaseIsDrawn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.environment("catan-7", model)
	l := w.acquire("did:plc:ann", "catan-7")
	w.run(l.ID, "false")
	w.think(l, "main")
	w.Pass(time.Hour)
	if _, err := w.Service.Sleep(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	w.Pass(3 * time.Hour)
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	page := func() string { return b.get(w.pathOf("{lease}", l, "")).body }
	body := page()
	for _, want := range []string{
		"leased for 4 h", "Sandbox asleep for 3 h awake for 1 h", "awake for 1 h, asleep for 3 h", "1 command, 1 failed",
		"Models", "3 calls",
	} {
		if !strings.Contains(textOf(body), want) {
			t.Errorf("the life does not say %q: %s", want, textOf(body))
		}
	}
	if !strings.Contains(body, `class="lane-asleep" x="250" width="750"`) || !strings.Contains(body, `class="lane-failed" x="0" width="3"`) {
		t.Errorf("the lanes are drawn wrongly: %s", body)
	}
	if _, err := w.Service.Release(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	w.Pass(time.Hour)
	if body := textOf(page()); !strings.Contains(body, "leased for 4 h") || strings.Contains(body, "leased for 5 h") {
		t.Errorf("the life continues after its end: %s", body)
	}
}

// TestCostsAreStackedAndForecast: the parts of a month are separate, and only accounts have fees.
func TestCostsAreStackedAndForecast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"catan-7", "rpg-1"} {
		w.environment(id, model)
	}
	l := w.acquire("did:plc:ann", "catan-7")
	w.acquire("did:plc:ann", "rpg-1")
	w.think(l, "main")
	w.Advance(4 * time.Hour)
	b := w.loggedIn(w.token("reads", sandbox.ScopeRead))
	for path, want := range map[string][]string{
		"/ui/costs":                            {`class="part-1"`, `class="part-2"`, "15 August, catan-7: $", "15 August, rpg-1: $"},
		"/ui/costs?stack=sandboxes+and+models": {"15 August, Sandboxes: $", "15 August, Model calls: $"},
		"/ui/costs?environment=catan-7":        {"15 August, Sandboxes: $", "15 August, Model calls: $0.34"},
	} {
		body := b.get(path).body
		for _, one := range append(want, "Forecast for August", "the mean rate since 15 August") {
			if !strings.Contains(body, one) {
				t.Errorf("%s lacks %q: %s", path, one, body)
			}
		}
		if has := strings.Contains(body, "Plan fee"); has != (path != "/ui/costs?environment=catan-7") {
			t.Errorf("%s shows plan fees: %t", path, has)
		}
	}
	body := w.loggedIn(w.token("own", sandbox.ScopeRead, "catan-*")).get("/ui/costs").body
	if strings.Contains(body, "Plan fee") || strings.Contains(body, "rpg-1") {
		t.Errorf("a limited token is shown the accounts: %s", body)
	}
	if body := b.get("/ui/costs?month=2026-07").body; strings.Contains(body, "Forecast") {
		t.Errorf("a month that is over has a forecast: %s", body)
	}
}

// TestNumbersAreFormatted for people.
func TestNumbersAreFormatted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.environment("catan-7", func(p *sandbox.PutEnvironment) { p.Resources.MemoryMB = 8192 })
	l := w.acquire("did:plc:ann", "catan-7")
	w.run(l.ID, "echo", "hello")
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	for _, page := range []string{"{lease}", "/ui/environments/catan-7"} {
		if body := b.get(w.pathOf(page, l, "")).body; !strings.Contains(body, "8,192 MiB") ||
			regexp.MustCompile(`\d\.\d{6}`).MatchString(body) {
			t.Errorf("%s shows %s", page, body)
		}
	}
}
