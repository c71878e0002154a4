package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (w *world) env(id string) sandbox.Environment {
	w.Helper()
	e, err := w.Service.GetEnvironment(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return e
}

// send requests a change and sends the form of its confirmation.
func (b *browser) send(path string, form url.Values) answer {
	b.w.Helper()
	form.Set("csrf", b.csrf)
	return b.post(path, form)
}

func TestEnvironmentsAreEndedAndReopened(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.game()
	w.Pass(time.Second) // an environment cannot end in the instant in which its last lease began
	reader := w.loggedIn(w.token("reads", sandbox.ScopeRead))
	if body := reader.get("/ui/environments/catan-7").body; strings.Contains(body, "/end\"") {
		t.Errorf("a reader is offered the end: %s", body)
	}
	b := w.loggedIn(w.token("ops", sandbox.ScopeAdmin))
	page := b.get("/ui/environments/catan-7")
	if rows := rowNames(page.body); !slices.Contains(rows, l.AgentDID) || !slices.Contains(rows, "github.com") {
		t.Errorf("its page shows %q", rows)
	}
	ask := b.get(page.linkTo(t, "End"))
	if !strings.Contains(ask.body, "sends the condition game.finished") || !strings.Contains(ask.body, "has 1 live lease.") {
		t.Errorf("the confirmation says %s", textOf(ask.body))
	}
	if a := b.post("/ui/environments/catan-7/end", url.Values{}); a.StatusCode != http.StatusForbidden {
		t.Errorf("without the CSRF token it is answered with %d", a.StatusCode)
	}
	if a := b.send("/ui/environments/catan-7/end", url.Values{}); a.StatusCode != http.StatusSeeOther ||
		a.Header.Get("Location") != "/ui/environments/catan-7" {
		t.Errorf("ending it is answered with %d: %s", a.StatusCode, a.body)
	}
	if e := w.env("catan-7"); e.Status != sandbox.EnvironmentClosed || e.EndedBy != "game.finished" || e.Leases.Live() != 0 {
		t.Errorf("it is %s by %q with %d leases", e.Status, e.EndedBy, e.Leases.Live())
	}
	if e := w.env("rpg-1"); e.Status != sandbox.EnvironmentOpen {
		t.Errorf("another environment is %s", e.Status)
	}
	list, err := w.Service.ListDeliveries(t.Context(), sandbox.DeliveryFilter{EnvironmentID: "catan-7", Limit: 1})
	if err != nil || list[0].Source != "token:ops" || list[0].Matched != 1 {
		t.Errorf("the message is %+v, %v", list, err)
	}
	if a := b.send("/ui/environments/catan-7/end", url.Values{}); a.StatusCode != http.StatusConflict {
		t.Errorf("ending it again is answered with %d", a.StatusCode)
	}
	reopen := b.get("/ui/environments/catan-7").linkTo(t, "Reopen")
	b.get(reopen)
	if a := b.send(reopen, url.Values{}); a.StatusCode != http.StatusSeeOther || w.env("catan-7").Status != sandbox.EnvironmentOpen {
		t.Errorf("reopening it is answered with %d: %s", a.StatusCode, a.body)
	}
	w.environment("solo", func(p *sandbox.PutEnvironment) { p.ExpiryConditions = []string{"agent.death"} })
	if body := b.get("/ui/environments/solo").body; strings.Contains(body, "/solo/end") {
		t.Errorf("an environment without a condition for all is offered an end: %s", body)
	}
}

// attempt returns a denied attempt of a lease's sandbox.
func attempt(l sandbox.Lease, verdict sandbox.EgressVerdict, host, reason string, w *world) sandbox.EgressRecord {
	return sandbox.EgressRecord{
		Kind: sandbox.EgressClosed, SandboxID: l.SandboxID, Verdict: verdict,
		EgressAttempt: sandbox.EgressAttempt{Attempt: host + reason, At: w.Now(), AgentDID: l.AgentDID, Protocol: "tls",
			Host: host, Port: 443, Reason: reason, Ended: true},
	}
}

func TestHostsAreCountedAndAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.game()
	denied := attempt(l, sandbox.EgressRefused, "pypi.org", "host_not_allowed", w)
	other := attempt(l, sandbox.EgressFailed, "github.com", "connect_failed", w)
	other.Detail = "context canceled"
	w.Reach("catan-7", denied, denied, denied, other,
		attempt(l, sandbox.EgressRefused, "10.0.0.7", "invalid_host", w))
	b := w.loggedIn(w.token("ops", sandbox.ScopeAdmin))
	page := b.get("/ui/egress?sort=-denied")
	if rows := rowNames(page.body); !slices.Equal(rows,
		[]string{"pypi.org:443 host not allowed", "10.0.0.7:443 invalid host", "github.com:443 connect failed"}) {
		t.Errorf("the hosts are %q", rows)
	}
	if text := textOf(page.body); !strings.Contains(text, "pypi.org:443 host not allowed 0 3 0") ||
		strings.Count(text, " Allow ") != 1 {
		t.Errorf("the page says %s", text)
	}
	if rows := rowNames(b.get("/ui/egress?q=PYPI").body); len(rows) != 1 {
		t.Errorf("a search finds %q", rows)
	}
	if text := textOf(b.get("/ui/egress?type=failed").body); !strings.Contains(text, "the sandbox closed the connection first") {
		t.Errorf("the failure is shown as %s", text)
	}
	link := page.linkTo(t, "Allow pypi.org")
	if body := w.loggedIn(w.token("leases", sandbox.ScopeLease)).get("/ui/egress").body; strings.Contains(body, "/allow") {
		t.Errorf("a token without the right gets an offer to allow: %s", body)
	}
	if a := w.loggedIn(w.token("leases2", sandbox.ScopeLease)).get(link); a.StatusCode != http.StatusForbidden {
		t.Errorf("a token without the right gets the confirmation: %d", a.StatusCode)
	}
	before := w.env("catan-7")
	if a := b.get(link); !strings.Contains(a.body, "Allow pypi.org in catan-7?") || !strings.Contains(a.body, "If Terraform manages") {
		t.Errorf("the confirmation is %d %s", a.StatusCode, textOf(a.body))
	}
	form := url.Values{"host": {"pypi.org"}, "port": {"443"}}
	if a := b.send("/ui/environments/catan-7/allow", form); a.StatusCode != http.StatusSeeOther {
		t.Errorf("allowing it is answered with %d: %s", a.StatusCode, a.body)
	}
	after := w.env("catan-7")
	if rules := after.Egress.Allow; len(rules) != len(sandbox.DefaultEgress().Allow)+1 || rules[len(rules)-1].Host != "pypi.org" {
		t.Errorf("the rules are %+v", rules)
	}
	after.Egress, after.UpdatedAt, after.LastEventID = before.Egress, before.UpdatedAt, before.LastEventID
	if !slices.Equal(after.Secrets, before.Secrets) || len(after.LLM) != len(before.LLM) || after.Owner != before.Owner ||
		after.Status != before.Status || after.Image != before.Image {
		t.Errorf("it changed from %+v to %+v", before, after)
	}
	if text := textOf(b.get("/ui/egress").body); !strings.Contains(text, "allowed now") || strings.Contains(text, " Allow ") {
		t.Errorf("the page says %s", text)
	}
	form.Set("port", "8443")
	b.send("/ui/environments/catan-7/allow", form)
	if rules := w.env("catan-7").Egress.Allow; !slices.Equal(rules[len(rules)-1].Ports, []int{443, 80, 8443}) {
		t.Errorf("with another port the rules are %+v", rules)
	}
	for _, bad := range []url.Values{{"host": {"10.0.0.7"}, "port": {"443"}}, {"host": {"a.example"}, "port": {"x"}}} {
		if a := b.send("/ui/environments/catan-7/allow", bad); a.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%v is answered with %d", bad, a.StatusCode)
		}
	}
	w.environment("open", func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkFull })
	if a := b.send("/ui/environments/open/allow", form); a.StatusCode != http.StatusConflict {
		t.Errorf("in an open network it is answered with %d", a.StatusCode)
	}
}

// TestOperatorsWhoAllowHostsAtOnceLoseNoRule tests both databases.
func TestOperatorsWhoAllowHostsAtOnceLoseNoRule(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, w *world) {
		w.environment("catan-7")
		var operators sync.WaitGroup
		for i := range 6 {
			b := w.loggedIn(w.token(fmt.Sprintf("ops-%d", i), sandbox.ScopeAdmin))
			b.get("/ui/tokens") // their forms have the CSRF token
			operators.Go(func() {
				form := url.Values{"host": {fmt.Sprintf("host-%d.example", i)}, "port": {"443"}}
				if a := b.send("/ui/environments/catan-7/allow", form); a.StatusCode != http.StatusSeeOther {
					t.Errorf("allowing host %d is answered with %d: %s", i, a.StatusCode, textOf(a.body))
				}
			})
		}
		operators.Wait()
		rules := w.env("catan-7").Egress.Allow
		for i := range 6 {
			if !slices.ContainsFunc(rules, func(r sandbox.EgressRule) bool { return r.Host == fmt.Sprintf("host-%d.example", i) }) {
				t.Errorf("the rule for host %d is lost: %+v", i, rules)
			}
		}
	})
}

func TestTokensAreListedAndRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := w.token("bot", sandbox.ScopeLease, "catan-*")
	b := w.loggedIn(w.token("ops", sandbox.ScopeAdmin))
	page := b.get("/ui/tokens?q=BOT")
	if rows := rowNames(page.body); len(rows) != 1 || !strings.HasPrefix(rows[0], "bot tok_") || strings.Contains(page.body, text) {
		t.Errorf("the tokens are %q", rows)
	}
	link := page.linkTo(t, "Revoke")
	if a := b.get(link); !strings.Contains(a.body, "with the scopes lease and access to catan-*") {
		t.Errorf("the confirmation says %s", textOf(a.body))
	}
	if a := b.send(link, url.Values{}); a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/ui/tokens" {
		t.Errorf("revoking it is answered with %d: %s", a.StatusCode, a.body)
	}
	if rows := rowNames(b.get("/ui/tokens?status=ended").body); len(rows) != 1 {
		t.Errorf("the ended tokens are %q", rows)
	}
	if a := b.get(link); a.StatusCode != http.StatusConflict {
		t.Errorf("asking again is answered with %d", a.StatusCode)
	}
	if text := textOf(b.get("/ui/audit?type=tokens").body); !strings.Contains(text, "token revoked") ||
		!strings.Contains(text, "token:ops 127.0.0.1") {
		t.Errorf("the audit says %s", text)
	}
	limited := w.loggedIn(w.token("own", sandbox.ScopeAdmin, "catan-*"))
	if a := limited.get("/ui/tokens"); a.StatusCode != http.StatusForbidden || strings.Contains(limited.get("/ui/").body, "/ui/tokens") {
		t.Errorf("a limited token is answered with %d", a.StatusCode)
	}
}

func TestTheAuditShowsWhatIsWeak(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.game()
	w.Weaken(l.SandboxID, "runs as root")
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	if text := textOf(b.get("/ui/audit/confinement?environment=catan-7&run=1").body); !strings.Contains(text, "1 finding ") ||
		!strings.Contains(text, "runs as root") {
		t.Errorf("the audit says %s", text)
	}
}
