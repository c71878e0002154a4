package cloudflare_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// rulesHold is longer than the Worker caches rules.
const rulesHold = 2500 * time.Millisecond

// outside starts the Internet of a test, a server that echoes the method and URL of a request. It returns its address.
func outside(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		case "/stream":
			for range 4 {
				fmt.Fprint(w, strings.Repeat("x", 256))
				_ = http.NewResponseController(w).Flush() // the sandbox may have gone
			}
		case "/broken":
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprintf(w, "%s %s%s", r.Method, r.Header.Get("X-Outside-Origin"), r.RequestURI)
		}
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// TestRestrictedNetworks tests the outbound interception of the real runtime. Its traffic goes to a server of this
// test.
func TestRestrictedNetworks(t *testing.T) {
	cloudflaretest.Need(t)
	d := cloudflaretest.NewDeployer(t)
	d.Outside = outside(t)
	executortest.RunRestricted(t, contract(t, d),
		executortest.Outside{Host: "good.test", Other: "other.test", Vouched: true})
}

// TestRulesThatOthersChangedAreADifference: a plan shows changed rules, and the next apply sets them again.
func TestRulesThatOthersChangedAreADifference(t *testing.T) {
	cloudflaretest.Need(t)
	d := cloudflaretest.NewDeployer(t)
	x := newExecutor(t, d)
	defer func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}()
	instance, err := x.Instance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ref := driver.EnvironmentRef{LedgerID: "ledgerofrules222", EnvironmentID: "rules-1", Instance: instance}
	spec := sandbox.EnvironmentSpec{
		Backend:   sandbox.Cloudflare,
		Image:     cloudflaretest.Reference(cloudflaretest.Busybox(t)),
		Resources: lite(t),
		Network:   sandbox.NetworkRestricted,
		Egress:    &sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "good.test", Ports: []int{443}}}},
	}.WithDefaults()
	differences := func() []driver.Difference {
		t.Helper()
		found, err := x.Differences(t.Context(), ref, spec)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, change := range []struct{ statement, found string }{
		{`UPDATE networks SET egress = '{"allow":[{"host":"*.evil.test"}]}'`, "*.evil.test"},
		{`DELETE FROM networks`, "no rules"},
	} {
		if err := x.Provision(t.Context(), ref, spec); err != nil {
			t.Fatal(err)
		}
		if found := differences(); len(found) > 0 {
			t.Errorf("provisioned, it differs by %+v", found)
		}
		d.Query(cloudflare.DeploymentName(ref.LedgerID, ref.EnvironmentID), change.statement)
		if want := []driver.Difference{
			{Setting: "egress", Wanted: "good.test 443", Found: change.found},
		}; !slices.Equal(differences(), want) {
			t.Errorf("after %s it differs by %+v", change.statement, differences())
		}
	}
	if err := x.Deprovision(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// network is a world with an outside and restricted sandboxes.
type network struct {
	*world
	ref driver.EnvironmentRef
	h   driver.Handle
}

// newNetwork returns a Worker with a sandbox that may reach good.test.
func newNetwork(t *testing.T) *network {
	t.Helper()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Outside: outside(t)})
	n := &network{world: &world{t, server, server.Worker()}}
	spec := n.spec()
	spec.Network = sandbox.NetworkRestricted
	n.h = spec.Handle
	n.ref = driver.EnvironmentRef{LedgerID: n.h.LedgerID, EnvironmentID: n.h.EnvironmentID, Instance: n.h.Instance}
	n.must(n.worker.SetRules(t.Context(), n.ref, sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "good.test"}}}))
	n.must(n.worker.Spawn(t.Context(), spec, cloudflare.Limits{}))
	return n
}

// lines returns the lines of the log for which of is true, once there are count of them.
func (n *network) lines(count int, of func(sandbox.EgressRecord) bool) (found []sandbox.EgressRecord) {
	n.Helper()
	testwait.NoError(n, patience, "the log has the lines", func() error {
		var at sandbox.GatewayPosition
		for found = nil; ; {
			page, err := n.worker.Attempts(n.Context(), n.ref, at)
			n.must(err)
			if len(page) == 0 {
				break
			}
			at = page[len(page)-1].GatewayPosition
			for _, l := range page {
				if of(l) {
					found = append(found, l)
				}
			}
		}
		if len(found) < count {
			return fmt.Errorf("it has %d, want %d", len(found), count)
		}
		return nil
	})
	return found
}

func refusedFor(reason string) func(sandbox.EgressRecord) bool {
	return func(l sandbox.EgressRecord) bool { return l.Verdict == sandbox.EgressRefused && l.Reason == reason }
}

// raw sends text to port 80 of a host, and returns the answer.
func (n *network) raw(text string) string {
	n.Helper()
	return n.sh(n.h, fmt.Sprintf(`printf '%s' | nc -w 5 good.test 80; true`, text))
}

func TestTheWayOutOfARestrictedSandbox(t *testing.T) {
	n := newNetwork(t)
	for name, row := range map[string]struct{ request, want, reason string }{
		"plain HTTP": {`GET /a?b=c HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n`,
			"GET http://good.test/a?b=c", ""},
		"another name in Host": {`GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n`, "(host_not_allowed)",
			"host_not_allowed"},
		"another port in Host": {`GET / HTTP/1.1\r\nHost: good.test:22\r\nConnection: close\r\n\r\n`, "(port_not_allowed)",
			"port_not_allowed"},
		"plain HTTP to 443": {`GET / HTTP/1.1\r\nHost: good.test:443\r\nConnection: close\r\n\r\n`,
			"(not_tls)", "not_tls"},
		"an address in Host": {`GET / HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n`,
			"(invalid_host)", "invalid_host"},
		"an absolute address": {`GET http://other.test/ HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n`,
			"(host_not_allowed)", "host_not_allowed"},
		"HTTP/2 by an upgrade": {`GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n`,
			"(upgrade_refused)", "upgrade_refused"},
		"a redirect is its own": {
			`GET /redirect?to=http://other.test/ HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n`, "302", "",
		},
	} {
		if got := n.raw(row.request); !strings.Contains(got, row.want) {
			t.Errorf("%s: %q", name, got)
		}
		if row.reason != "" {
			n.lines(1, refusedFor(row.reason))
		}
	}
	n.raw(`GET /stream HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n`)
	n.lines(1, func(l sandbox.EgressRecord) bool { return l.Ended && l.ReceivedBytes == 1024 })
	if got := n.raw(`GET /broken HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n`); !strings.Contains(got,
		" 50") {
		t.Errorf("a host that breaks off: %q", got)
	}
	n.trustsTheAuthority()
	n.survivesAReset()
}

// trustsTheAuthority: programs find the authority that signs for the TLS connections that the Worker decrypts.
func (n *network) trustsTheAuthority() {
	n.Helper()
	if got := n.sh(n.h, `head -n 1 "$SSL_CERT_FILE"; echo $NODE_EXTRA_CA_CERTS`); got != "-----BEGIN CERTIFICATE-----\n"+
		"/etc/cloudflare/certs/cloudflare-containers-ca.crt\n" {
		n.Errorf("it finds %q", got)
	}
}

// survivesAReset: a redeployed Worker allows the same requests as the old one, and no others.
func (n *network) survivesAReset() {
	n.Helper()
	n.server.Reset()
	n.worker = n.server.Worker()
	if got := n.raw(`GET /again HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n`); !strings.Contains(got,
		"http://good.test/again") {
		n.Errorf("after a reset: %q", got)
	}
	if got := n.raw(`GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n`); !strings.Contains(got,
		"(host_not_allowed)") {
		n.Errorf("after a reset, what is not allowed: %q", got)
	}
}

func TestARestrictedSandboxWithoutRulesReachesNothing(t *testing.T) {
	n := newNetwork(t)
	n.server.Query(`DELETE FROM networks`)
	time.Sleep(rulesHold) //nolint:forbidigo // cached rules expire
	if got := n.raw(`GET / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n`); !strings.Contains(got,
		"(no_policy)") {
		t.Errorf("without rules: %q", got)
	}
	l := n.lines(1, refusedFor("no_policy"))[0]
	if l.Host != "good.test" || l.SandboxID != n.h.SandboxID || l.AgentDID != n.spec().AgentDID {
		t.Errorf("the log says %+v", l)
	}
}

// TestALogHasEachLineOnceAndWhoseItIs: several ledgers and environments can share a database.
func TestALogHasEachLineOnceAndWhoseItIs(t *testing.T) {
	n := newNetwork(t)
	other := n.ref
	other.EnvironmentID = "worker-2"
	n.must(n.worker.SetRules(t.Context(), other, sandbox.Egress{Allow: []sandbox.EgressRule{}}))
	const count = 30
	n.sh(n.h, fmt.Sprintf(`for i in $(seq %d); do printf 'GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n' | nc -w 5 good.test 80; done`, count))
	lines := n.lines(count, refusedFor("host_not_allowed"))
	for i, l := range lines {
		if l.Line != int64(i)+1 || l.Run != lines[0].Run {
			t.Fatalf("line %d is %+v", i, l)
		}
	}
	attempts := map[string]bool{}
	for _, l := range lines {
		attempts[l.Attempt] = true
	}
	if len(lines) != count || len(attempts) != count {
		t.Errorf("%d attempts have %d lines of %d attempts", count, len(lines), len(attempts))
	}
	if page, err := n.worker.Attempts(t.Context(), other, sandbox.GatewayPosition{}); err != nil || len(page) > 0 {
		t.Errorf("the other environment's log has %+v, %v", page, err)
	}
	rest, err := n.worker.Attempts(t.Context(), n.ref, lines[count-3].GatewayPosition)
	if err != nil || len(rest) != 2 {
		t.Errorf("after the third last line there are %+v, %v", rest, err)
	}
	all, err := n.worker.Networks(t.Context(), n.ref.Instance, n.ref.LedgerID)
	if err != nil || !slices.Equal(all, []string{n.ref.EnvironmentID, other.EnvironmentID}) {
		t.Errorf("the restricted networks are %v, %v", all, err)
	}
	if got, err := n.worker.Networks(t.Context(), n.ref.Instance, strings.Repeat("z", 16)); err != nil || len(got) > 0 {
		t.Errorf("another ledger has the restricted networks %v, %v", got, err)
	}
	if rules, err := n.worker.Rules(t.Context(), other); err != nil || rules == nil || len(rules.Allow) > 0 {
		t.Errorf("its rules are %+v, %v", rules, err)
	}
}

// TestALogOfLongLinesIsReadInPages: an answer has at most 4 MiB.
func TestALogOfLongLinesIsReadInPages(t *testing.T) {
	n := newNetwork(t)
	const rows, lines = 20, 200
	n.server.Query(fmt.Sprintf(`WITH RECURSIVE batch(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM batch WHERE i < %d),
		line(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM line WHERE i < %d)
		INSERT INTO egress_lines (ledger, environment, run, last_line, batch, records)
		SELECT '%s', '%s', 1, i * %d, i, (SELECT json_group_array(json_object('kind', 'closed', 'at', 1, 'sandbox', 's',
			'detail', replace(hex(zeroblob(256)), '0', '€'))) FROM line) FROM batch`,
		rows, lines, n.ref.LedgerID, n.ref.EnvironmentID, lines))
	for i, l := range n.lines(rows*lines, func(l sandbox.EgressRecord) bool { return l.Run == 1 }) {
		if l.Line != int64(i)+1 {
			t.Fatalf("line %d is %d", i+1, l.Line)
		}
	}
}

// TestWhatASandboxOnCloudflareTriesToReachIsInTheLedger follows attempts from a deployment to the events of a
// reconciler.
func TestWhatASandboxOnCloudflareTriesToReachIsInTheLedger(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.environment("rpg-3", func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
	ref := h.acquire("rpg-3")
	ask := func(host string) string {
		t.Helper()
		return h.sh(ref,
			fmt.Sprintf(`printf 'GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' | nc -w 5 %s 80; true`, host, host))
	}
	wantEvents := func(want ...string) {
		t.Helper()
		var got []string
		testwait.Poll(patience, func() bool {
			events, err := h.service.ListEvents(t.Context(), sandbox.EventFilter{Type: "egress.*"})
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			for _, ev := range events {
				var a sandbox.EgressAttempt
				if err := json.Unmarshal(ev.Data, &a); err != nil || ev.LeaseID != ref.ID || a.AgentDID != "did:plc:ann" {
					t.Errorf("event %+v: %v", ev, err)
				}
				got = append(got, fmt.Sprintf("%s %s:%d %s", ev.Type, a.Host, a.Port, a.Reason))
			}
			return len(got) >= len(want)
		})
		if !slices.Equal(got, want) {
			t.Errorf("the events are %q, want %q", got, want)
		}
	}
	if got := ask("evil.test"); !strings.Contains(got, "403") ||
		!strings.Contains(got, "X-Sandbox-Gateway: host_not_allowed") {
		t.Errorf("it gets %q", got)
	}
	wantEvents("egress.denied evil.test:80 host_not_allowed")
	h.environment("rpg-3", func(p *sandbox.PutEnvironment) {
		p.Network, p.Egress = sandbox.NetworkRestricted, &sandbox.Egress{
			Allow: []sandbox.EgressRule{{Host: "evil.test", Ports: []int{443}}},
		}
	})
	time.Sleep(rulesHold) //nolint:forbidigo // as above
	if got := ask("evil.test"); !strings.Contains(got, "(port_not_allowed)") {
		t.Errorf("after the rules changed it gets %q", got)
	}
	wantEvents("egress.denied evil.test:80 host_not_allowed", "egress.denied evil.test:80 port_not_allowed")
	if l := h.lease(ref, func(sandbox.Lease) bool { return true }); l.Generation != 1 || l.Status != sandbox.LeaseActive {
		t.Errorf("the lease is %+v", l)
	}
}
