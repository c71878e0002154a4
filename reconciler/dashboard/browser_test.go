package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// chromium is a real browser with a fresh profile, which a test controls. Complaints of its pages fail the test: errors
// of scripts, missing files, and violations of the content security policy.
type chromium struct {
	*world
	ctx   context.Context
	shots string

	mu    sync.Mutex // guards the fields below
	quiet bool       // complaints are expected
}

// needsBrowser skips a test unless SANDBOX_TEST_ALL is set. scripts/test-dashboard installs the browser and axe-core.
func needsBrowser(t *testing.T) {
	t.Helper()
	if os.Getenv("SANDBOX_TEST_ALL") == "" {
		t.Skip("needs Chromium: run scripts/test-dashboard, or make test-all")
	}
}

// screenshots returns the directory for pictures of pages that people review.
func screenshots(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("SANDBOX_TEST_ARTIFACTS")
	if dir == "" {
		dir = "../../.tmp/artifacts"
	}
	dir = filepath.Join(dir, "screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startChromium starts a browser; it ends with the test.
func (w *world) startChromium() *chromium {
	w.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		w.Fatal("there is no chromium; scripts/test-dashboard installs it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))
	allocator, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator)
	ctx, timeout := context.WithTimeout(ctx, 10*time.Minute)
	c := &chromium{world: w, ctx: ctx, shots: screenshots(w.TB)}
	chromedp.ListenTarget(ctx, c.heed)
	w.Cleanup(func() {
		timeout()
		end()
		free()
	})
	c.run(log.Enable(), runtime.Enable(), emulation.SetDeviceMetricsOverride(1280, 900, 1, false))
	return c
}

// heed fails the test if a page complains.
func (c *chromium) heed(event any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quiet {
		return
	}
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError {
			c.Errorf("the browser complains of %s: %s", e.Entry.URL, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		c.Errorf("a script fails: %s", e.ExceptionDetails.Error())
	}
}

func (c *chromium) run(do ...chromedp.Action) {
	c.Helper()
	if err := chromedp.Run(c.ctx, do...); err != nil {
		c.Fatal(err)
	}
}

// open opens a page.
func (c *chromium) open(path string) {
	c.Helper()
	c.run(chromedp.Navigate(c.server.URL+path), chromedp.WaitVisible("main", chromedp.ByQuery))
}

// text returns the visible text of a selector, "" if it matches nothing.
func (c *chromium) text(selector string) (text string) {
	c.Helper()
	c.run(chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector), &text))
	return strings.TrimSpace(text)
}

// see waits until the page shows a text.
func (c *chromium) see(text string) {
	c.Helper()
	c.eventually("the page shows "+text, func() bool { return strings.Contains(c.text("main"), text) })
}

func (c *chromium) click(selector string) {
	c.Helper()
	c.run(chromedp.Click(selector, chromedp.ByQuery, chromedp.NodeVisible))
}

// logIn logs in as a user does.
func (c *chromium) logIn(token string) {
	c.Helper()
	c.open("/ui/")
	c.run(chromedp.SendKeys("#token", token+kb.Enter, chromedp.ByQuery),
		chromedp.WaitVisible("#environments", chromedp.ByQuery))
}

// theme sets light or dark colours and the width of the screen, without transitions.
func (c *chromium) theme(scheme string, width int64) {
	c.Helper()
	c.run(emulation.SetEmulatedMedia().
		WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}}),
		emulation.SetDeviceMetricsOverride(width, 900, 1, width < 600))
}

// shoot saves a picture of the whole page.
func (c *chromium) shoot(name string) {
	c.Helper()
	var png []byte
	c.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		png, err = page.CaptureScreenshot().WithCaptureBeyondViewport(true).Do(ctx)
		return err
	}))
	if err := os.WriteFile(filepath.Join(c.shots, name+".png"), png, 0o644); err != nil {
		c.Fatal(err)
	}
}

// axeSource returns axe-core, which scripts/test-dashboard fetches at the version of its lock file.
func axeSource(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("testdata/axe/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: scripts/test-dashboard fetches it", err)
	}
	return string(source)
}

// wantAccessible fails the test for violations of rules that axe-core finds. The page must have axe-core.
func (c *chromium) wantAccessible(rules, name string) {
	c.Helper()
	var found string
	c.run(
		chromedp.Evaluate(`axe.run(document, Object.assign({resultTypes: ["violations"]}, `+rules+`)).then(r => JSON.stringify(r.violations.map(v =>
		({id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.map(n => n.html + " " + n.failureSummary)}))))`, &found,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	var violations []struct {
		ID, Impact, Help string
		Nodes            []string
	}
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		c.Fatal(err)
	}
	for _, v := range violations {
		c.Errorf("%s: %s (%s): %s: %s", name, v.ID, v.Impact, v.Help, strings.Join(v.Nodes, "\n  "))
	}
}

// wantNoSidewaysScroll fails the test if the page is wider than the screen.
func (c *chromium) wantNoSidewaysScroll(name string) {
	c.Helper()
	var over int
	c.run(chromedp.Evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth", &over))
	if over > 0 {
		c.Errorf("%s is %d pixels wider than the screen", name, over)
	}
}

// campaign fills a world with objects for every page.
func (w *world) campaign() (l sandbox.Lease, execID string) {
	w.Helper()
	w.environment("catan-7", model, func(p *sandbox.PutEnvironment) {
		p.Budget = &sandbox.Budget{Monthly: 40 * sandbox.USD}
	})
	w.environment("rpg-shadowvale", func(p *sandbox.PutEnvironment) {
		p.Type, p.Budget = sandbox.TypeRPG, &sandbox.Budget{Monthly: 12 * sandbox.USD}
	})
	w.environment("coding-parser", func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeCoding })
	day := sandbox.Duration(24 * time.Hour)
	for i, agent := range []string{
		"did:plc:z72i7hdynmk6r22z27h6tvur", "did:plc:ewvi7nxzyoun6zhxrhs64oiz", "did:web:agents.example.com:scout",
		"did:plc:ragtjsm2j2vknwkz3zp4oxrd",
	} {
		for _, environment := range []string{"catan-7", "rpg-shadowvale", "coding-parser"}[:1+i%3] {
			_, err := w.Service.Acquire(w.Context(),
				sandbox.Acquire{AgentDID: agent, EnvironmentID: environment, Settings: sandbox.LeaseSettings{TTL: &day}})
			if err != nil {
				w.Fatal(err)
			}
		}
	}
	for range 4 {
		w.Advance(20 * time.Hour)
		leases, err := w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{Status: sandbox.LeaseActive})
		if err != nil {
			w.Fatal(err)
		}
		for _, l := range leases[:len(leases)/2+1] {
			w.run(l.ID, "echo", "turn taken")
		}
	}
	l = w.acquire("did:plc:44ybard66vv44zksje25o7dz", "catan-7")
	w.run(l.ID, "false")
	w.think(l, "main")
	w.serve(l, "chat", "Answers messages of the players.", "listen", "8080", "1ms")
	w.serve(l, "referee", "Checks moves.", "crash", "1ms", "3", "no use")
	w.write(l, "/workspace/board.json", `{"roads": 4, "settlements": 3}`)
	w.write(l, "/workspace/maps/coast.txt", "sea\n")
	if _, err := w.Service.CreateSession(w.Context(), sandbox.LeaseRef{ID: l.ID}, sandbox.CreateSession{ID: "turn-1"}); err != nil {
		w.Fatal(err)
	}
	if _, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: l.ID},
		sandbox.ExecRequest{Session: "turn-1", Command: []string{"echo", "cities 1"}}); err != nil {
		w.Fatal(err)
	}
	denied := attempt(l, sandbox.EgressRefused, "pypi.org", "host_not_allowed", w)
	failed := attempt(l, sandbox.EgressFailed, "api.github.com", "connect_failed", w)
	failed.Detail = "context canceled"
	w.Reach("catan-7", denied, denied, failed, attempt(l, sandbox.EgressRefused, "169.254.169.254", "invalid_host", w))
	execID = w.run(l.ID, "echo", "roads 4\nsettlements 3\ncities 1\n")
	w.Remove(w.acquire("did:plc:vpkhqolt662uhesyj6nxm7ys", "catan-7").SandboxID)
	w.Pass(time.Second)
	w.deliver("msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "agent.death", "rpg-shadowvale", "did:plc:ewvi7nxzyoun6zhxrhs64oiz")
	w.deliver("msg_27WPBgLlAfxdpx2AI54pPJ85f4W", "game.paused", "catan-7", "")
	w.Advance(time.Minute)
	resting := w.acquire("did:plc:resting4k2bo3tzq7d5hxm6", "catan-7")
	if _, err := w.Service.Sleep(w.Context(), sandbox.LeaseRef{ID: resting.ID}); err != nil {
		w.Fatal(err)
	}
	w.deliver("msg_28WPBgLlAfxdpx2AI54pPJ85f4W", "task.complete", "coding-parser", "")
	w.environment("rpg-shadowvale", func(p *sandbox.PutEnvironment) { // most of its budget is spent
		p.Type, p.Budget = sandbox.TypeRPG, &sandbox.Budget{Monthly: sandbox.USD / 50}
	})
	return l, execID
}

func TestInChromiumALeaseIsWatchedAndExpired(t *testing.T) {
	t.Parallel()
	needsBrowser(t)
	w := newWorld(t)
	l, _ := w.campaign()
	c := w.startChromium()
	c.open("/ui/leases?environment=catan-7") // redirects to the login, and back
	c.run(chromedp.SendKeys("#token", w.token("ops", sandbox.ScopeLease)+kb.Enter, chromedp.ByQuery),
		chromedp.WaitVisible("#leases table", chromedp.ByQuery))
	c.click(fmt.Sprintf(`a[href="%s"]`, w.pathOf("{lease}", l, "")))
	c.see("Timeline")
	if got := c.text("#head .state"); got != "ready" {
		t.Errorf("its sandbox is shown as %q", got)
	}
	var marked bool
	c.run(chromedp.Evaluate("document.body.marked = true", nil))
	if _, err := w.Service.Sleep(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the page shows that it sleeps", func() bool { return c.text("#head .state") == "asleep" })
	w.run(l.ID, "echo", "seen live")
	c.see("seen live")
	if c.run(chromedp.Evaluate("document.body.marked === true", &marked)); !marked {
		t.Error("the page was reloaded, and not kept")
	}

	c.click(".button.danger")
	c.see("cannot be undone")
	c.click("button.danger")
	c.see("Ended by")
	if now, err := w.Service.GetLease(t.Context(), l.ID); err != nil || now.EndedBy != sandbox.EndedByRelease {
		t.Errorf("the lease ended by %q, %v", now.EndedBy, err)
	}
	c.open("/ui/costs")
	c.see("By agent")
	c.open("/ui/drift?status=all")
	c.see("vanished")
}

func TestInChromiumPagesAreAccessibleAndLookRight(t *testing.T) {
	t.Parallel()
	needsBrowser(t)
	axe := axeSource(t)
	w := newWorld(t)
	l, execID := w.campaign()
	w.play(l)
	w.token("scoreboard", sandbox.ScopeRead, "catan-*")
	tokens, err := w.registry.ListTokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := w.startChromium()
	c.open("/ui/login")
	pages := []struct{ name, path string }{
		{"login", "/ui/login"}, {"environments", "/ui/"}, {"environment", "/ui/environments/catan-7"},
		{"leases", "/ui/leases?status=all"}, {"lease", "{lease}"}, {"usage", "{lease}/usage"}, {"commands", "{lease}/commands"}, {"processes", "{lease}/processes"},
		{"process", "{lease}/processes/referee"},
		{"sessions", "{lease}/sessions"}, {"session", "{lease}/sessions/turn-1"}, {"files", "{lease}/files"},
		{"file", "{lease}/files?path=/workspace/board.json"}, {"calls", "{lease}/calls"}, {"tokens", "/ui/tokens?status=all"},
		{"revoke", "/ui/tokens/{token}/revoke"}, {"audit", "/ui/audit"}, {"confinement", "/ui/audit/confinement?run=1"},
		{"ended", "/ui/environments/coding-parser"}, {"end", "/ui/environments/catan-7/end"},
		{"allow", "/ui/environments/catan-7/allow?host=pypi.org&port=443"}, {"no-leases", "/ui/leases?q=nobody"},
		{"egress-attempts", "/ui/egress?type=all"}, {"costs-by-kind", "/ui/costs?stack=sandboxes+and+models"},
		{"usage-of-a-day", "{lease}/usage?last=24h"}, {"command", "{lease}/execs/{exec}"}, {"confirm", "{lease}/expire"},
		{"agents", "/ui/agents"}, {"costs", "/ui/costs"}, {"costs-of-one", "/ui/costs?environment=catan-7"},
		{"costs-near-budget", "/ui/costs?environment=rpg-shadowvale"},
		{"drift", "/ui/drift?status=all"}, {"egress", "/ui/egress"}, {"models", "/ui/llm-calls"}, {"webhook", "/ui/webhook"},
		{"message", "/ui/webhook/message?id=msg_2KWPBgLlAfxdpx2AI54pPJ85f4W&environment=rpg-shadowvale"},
		{"error", "/ui/environments/nothing"},
	}
	for i, p := range pages {
		if i == 1 {
			c.logIn(w.token("operator", sandbox.ScopeAdmin))
		}
		if p.name == "error" {
			c.mu.Lock()
			c.quiet = true // the browser complains about its status
			c.mu.Unlock()
		}
		c.open(strings.ReplaceAll(w.pathOf(p.path, l, execID), "{token}", tokens[0].ID))
		c.run(chromedp.Evaluate(axe, nil))
		for _, look := range []struct {
			name, scheme string
			width        int64
			rules        string
		}{{"light", "light", 1280, "{}"}, {"dark", "dark", 1280, `{runOnly: ["color-contrast"]}`}, {"phone", "light", 390, "{}"}} {
			c.theme(look.scheme, look.width)
			name := p.name + "-" + look.name
			c.wantAccessible(look.rules, name)
			c.wantNoSidewaysScroll(name)
			c.shoot(name)
		}
	}
}

// play makes a lease's sandbox use CPU for 40 minutes, with a gap in the samples.
func (w *world) play(l sandbox.Lease) {
	w.Helper()
	operator := sandbox.WithActor(w.Context(), sandbox.Actor{Name: "token:operator", Address: "192.0.2.7"})
	for i := range 40 {
		if i == 34 {
			if _, err := w.Service.Sleep(operator, sandbox.LeaseRef{ID: l.ID}); err != nil {
				w.Fatal(err)
			}
			w.Pass(12 * time.Minute)
			if _, err := w.Service.Wake(operator, sandbox.LeaseRef{ID: l.ID}); err != nil {
				w.Fatal(err)
			}
		}
		if _, err := w.Service.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: l.ID}}); err != nil {
			w.Fatal(err)
		}
		w.Burn(l.SandboxID, time.Duration(i*i%50)*time.Second)
		if i > 20 && i < 28 {
			w.Pass(time.Minute)
		} else {
			w.Advance(time.Minute)
		}
	}
}

// TestInChromiumTheKeyboardIsEnough reaches and leaves the controls of a page by keys alone, and checks that the focus
// is visible.
func TestInChromiumTheKeyboardIsEnough(t *testing.T) {
	t.Parallel()
	needsBrowser(t)
	w := newWorld(t)
	w.campaign()
	c := w.startChromium()
	c.logIn(w.token("operator", sandbox.ScopeLease))
	focus := func() (what struct {
		Text    string
		Outline string
	}) {
		t.Helper()
		c.run(chromedp.Evaluate(`({text: document.activeElement.textContent.trim(), outline: getComputedStyle(document.activeElement).outlineStyle})`, &what))
		return what
	}
	var seen []string
	for range 20 {
		c.run(chromedp.KeyEvent(kb.Tab))
		at := focus()
		if at.Outline == "none" {
			t.Errorf("the focus on %q cannot be seen", at.Text)
		}
		seen = append(seen, at.Text)
	}
	if all := strings.Join(seen, ","); !strings.HasPrefix(all, "Skip to content,Sandbox leases,Log out,Environments,Leases,"+
		"Agents,Costs,Drift,Egress,Models,Webhook,Audit,,,Show,all,open,ended,Environment") {
		t.Errorf("the tab key goes through %s", all)
	}
	c.open("/ui/")
	c.run(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("catan"),
		chromedp.KeyEvent(kb.Enter))
	c.eventually("the search was made", func() bool { return !strings.Contains(c.text("#environments"), "rpg-shadowvale") })

	c.open("/ui/costs")
	c.run(chromedp.KeyEvent("/"))
	c.eventually("a page without a search leads to that of the leases", func() bool { return c.text("h1") == "Leases" })
	active := func(js string) (text string) {
		c.run(chromedp.Evaluate(js, &text))
		return text
	}
	c.eventually("the search has the focus", func() bool { return active("document.activeElement.id") == "q" })
	c.run(chromedp.KeyEvent("g"), chromedp.KeyEvent("l")) // the keys are typed into the field
	if text := active(`document.getElementById("q").value`); text != "gl" {
		t.Errorf("the search has the text %q", text)
	}
	c.open("/ui/costs")
	c.run(chromedp.KeyEvent("?"))
	c.eventually("the help is open", func() bool { return strings.Contains(c.text("#keys"), "webhook") })
	c.run(chromedp.Evaluate(axeSource(t), nil))
	c.wantAccessible("{}", "help")
	c.theme("light", 1280)
	c.shoot("help-light")
	c.run(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("g"), chromedp.KeyEvent("d"))
	c.eventually("the keys lead to the drift", func() bool { return c.text("h1") == "Drift" })
	c.eventually("the drift takes keys", func() bool { return active("document.readyState") == "complete" })
	c.run(chromedp.KeyEvent("?"), chromedp.Click("#keys-on", chromedp.ByQuery), chromedp.KeyEvent(kb.Escape),
		chromedp.KeyEvent("g"), chromedp.KeyEvent("l"))
	c.open("/ui/drift")
	c.run(chromedp.KeyEvent("g"), chromedp.KeyEvent("l"))
	if got := c.text("h1"); got != "Drift" {
		t.Errorf("keys that are off lead to %q", got)
	}

	c.open("/ui/environments/catan-7")
	c.see("Budget of 2026-08")
}
