package executortest

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

//go:embed testdata/reacher.go
var reacher string

// Outside stands in for the Internet. It answers for Host and Other over HTTP and HTTPS, on their usual ports.
type Outside struct {
	Host, Other string
	// PrivateCIDRs are the rules' private ranges, if the outside has a private address.
	PrivateCIDRs []string
	// Vouched means that variables of a sandbox name a CA that signed both certificates.
	Vouched bool
}

// rules allow one host.
func (o Outside) rules(host string) sandbox.Egress {
	return sandbox.Egress{Allow: []sandbox.EgressRule{{Host: host}}, PrivateCIDRs: o.PrivateCIDRs}
}

// restricted is a world with a restricted network.
type restricted struct {
	*world
	program []byte
}

// RunRestricted runs the part of the suite about restricted networks, on a backend with an outside.
func RunRestricted(t *testing.T, cfg Config, o Outside) {
	t.Run("Restricted", func(t *testing.T) {
		w := &restricted{world: newWorld(t, cfg), program: Compile(t, reacher, "CGO_ENABLED=0")}
		w.allow(t, o.rules(o.Host))
		t.Run("what is allowed is reached and logged", func(t *testing.T) { w.reachesWhatIsAllowed(t, o) })
		t.Run("what is not allowed is refused and logged", func(t *testing.T) { w.refusesTheRest(t, o) })
		t.Run("no network has no way out", func(t *testing.T) { w.noneHasNoWayOut(t, o) })
		t.Run("the way out outlives sleep", func(t *testing.T) { w.outlivesSleep(t, o) })
		t.Run("changed rules hold for sandboxes that run", func(t *testing.T) { w.heedsChangedRules(t, o) })
	})
}

// allow provisions the environment with rules.
func (w *restricted) allow(t *testing.T, rules sandbox.Egress) {
	t.Helper()
	spec := w.environment()
	spec.Network, spec.Egress = sandbox.NetworkRestricted, &rules
	must(t, w.x.Provision(t.Context(), w.ref, spec))
}

func (w *restricted) box(t *testing.T, rules sandbox.Egress) driver.Handle {
	t.Helper()
	h := w.spawn(t, func(s *driver.SandboxSpec) { s.Network, s.Egress = sandbox.NetworkRestricted, rules })
	w.give(t, h)
	return h
}

func (w *restricted) give(t *testing.T, h driver.Handle) {
	t.Helper()
	must(t, w.x.CopyTo(t.Context(), h, "/workspace", pack(t, executable("reacher", w.program))))
}

// reach requests an address from inside a sandbox.
func (w *restricted) reach(t *testing.T, h driver.Handle, address string) string {
	t.Helper()
	return strings.TrimSpace(w.sh(t, h, "/workspace/reacher "+address).stdout())
}

// log returns the log of a sandbox, and checks that its positions have no gap.
func (w *restricted) log(t *testing.T, h driver.Handle) (of []sandbox.EgressRecord) {
	t.Helper()
	var at sandbox.GatewayPosition
	for {
		lines, err := w.x.EgressLog(t.Context(), w.ref, at)
		must(t, err)
		if len(lines) == 0 {
			return of
		}
		for _, l := range lines {
			if l.Run == at.Run && l.Line != at.Line+1 || l.Run != at.Run && l.Line != 1 {
				t.Fatalf("line %+v follows %+v", l.GatewayPosition, at)
			}
			at = l.GatewayPosition
			if l.SandboxID == h.SandboxID {
				of = append(of, l)
			}
		}
	}
}

// awaitLine waits for a line of a sandbox's log.
func (w *restricted) awaitLine(t *testing.T, h driver.Handle, want sandbox.EgressRecord) sandbox.EgressRecord {
	t.Helper()
	var found sandbox.EgressRecord
	eventually(t, "the log has a line", func() bool {
		lines := w.log(t, h)
		i := slices.IndexFunc(lines, func(l sandbox.EgressRecord) bool {
			return l.Kind == want.Kind && l.Verdict == want.Verdict && l.Host == want.Host && l.Port == want.Port &&
				l.Reason == want.Reason
		})
		if i >= 0 {
			found = lines[i]
		}
		return i >= 0
	})
	if found.At.IsZero() || found.Attempt == "" || found.AgentDID != w.spec().AgentDID {
		t.Errorf("the line lacks something: %+v", found)
	}
	return found
}

func attempt(kind sandbox.EgressKind, verdict sandbox.EgressVerdict, host string, port int,
	reason string) sandbox.EgressRecord {
	return sandbox.EgressRecord{
		Kind:          kind,
		Verdict:       verdict,
		EgressAttempt: sandbox.EgressAttempt{Host: host, Port: port, Reason: reason},
	}
}

func (w *restricted) reachesWhatIsAllowed(t *testing.T, o Outside) {
	h := w.box(t, o.rules(o.Host))
	for scheme, port := range map[string]int{"http": 80, "https": 443} {
		address := scheme + "://" + o.Host + "/"
		if o.Vouched {
			address = "-verify " + address
		}
		if got := w.reach(t, h, address); !strings.HasPrefix(got, "reached 200") {
			t.Errorf("%s: %q", scheme, got)
		}
		opened := w.awaitLine(t, h, attempt(sandbox.EgressOpened, sandbox.EgressAllowed, o.Host, port, ""))
		closed := w.awaitLine(t, h, attempt(sandbox.EgressClosed, sandbox.EgressAllowed, o.Host, port, ""))
		if opened.Attempt != closed.Attempt || opened.Ended || !closed.Ended || closed.ReceivedBytes == 0 {
			t.Errorf("%s: it was opened as %+v and closed as %+v", scheme, opened, closed)
		}
	}
	refs, err := w.x.EgressLogs(t.Context(), w.ref.LedgerID)
	must(t, err)
	if !slices.Equal(refs, []driver.EnvironmentRef{w.ref}) {
		t.Errorf("the environments with a log are %+v", refs)
	}
}

func (w *restricted) refusesTheRest(t *testing.T, o Outside) {
	h := w.box(t, o.rules(o.Host))
	for address, want := range map[string]sandbox.EgressRecord{
		"http://" + o.Other + "/": attempt(sandbox.EgressClosed, sandbox.EgressRefused, o.Other, 80, "host_not_allowed"),
		"https://" + o.Other + "/": attempt(sandbox.EgressClosed, sandbox.EgressRefused, o.Other, 443,
			"host_not_allowed"),
		"http://sub." + o.Host + "/": attempt(sandbox.EgressClosed, sandbox.EgressRefused, "sub."+o.Host, 80,
			"host_not_allowed"),
		"https://evil" + o.Host + "/": attempt(sandbox.EgressClosed, sandbox.EgressRefused, "evil"+o.Host, 443,
			"host_not_allowed"),
		"http://198.51.100.7/":         {},
		"https://198.51.100.7/":        {},
		"http://169.254.169.254/":      {},
		"http://" + o.Host + ":8080/":  {},
		"https://" + o.Host + ":8443/": {},
	} {
		if got := w.reach(t, h, address); !strings.HasPrefix(got, "blocked:") {
			t.Errorf("%s: %q", address, got)
		}
		if want.Host != "" {
			w.awaitLine(t, h, want)
		}
	}
	for _, l := range w.log(t, h) {
		if l.Verdict == sandbox.EgressAllowed {
			t.Errorf("the log says that something was let out: %+v", l)
		}
	}
}

func (w *restricted) noneHasNoWayOut(t *testing.T, o Outside) {
	h := w.spawn(t)
	w.give(t, h)
	for _, scheme := range []string{"http", "https"} {
		if got := w.reach(t, h, scheme+"://"+o.Host+"/"); !strings.HasPrefix(got, "blocked:") {
			t.Errorf("%s: %q", scheme, got)
		}
	}
	if lines := w.log(t, h); len(lines) > 0 {
		t.Errorf("it has a log: %+v", lines)
	}
}

func (w *restricted) outlivesSleep(t *testing.T, o Outside) {
	h := w.box(t, o.rules(o.Host))
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	wake(t, w.x, h)
	w.give(t, h)
	if got := w.reach(t, h, "https://"+o.Host+"/"); !strings.HasPrefix(got, "reached 200") {
		t.Errorf("%q", got)
	}
	if got := w.reach(t, h, "https://"+o.Other+"/"); !strings.HasPrefix(got, "blocked:") {
		t.Errorf("%q", got)
	}
}

func (w *restricted) heedsChangedRules(t *testing.T, o Outside) {
	h := w.box(t, o.rules(o.Host))
	before, err := w.x.Inspect(t.Context(), h)
	must(t, err)
	defer w.allow(t, o.rules(o.Host))
	w.allow(t, o.rules(o.Other))
	eventually(t, "what was allowed is refused",
		func() bool { return strings.HasPrefix(w.reach(t, h, "http://"+o.Host+"/"), "blocked:") })
	if got := w.reach(t, h, "http://"+o.Other+"/"); !strings.HasPrefix(got, "reached 200") {
		t.Errorf("what is allowed now: %q", got)
	}
	after, err := w.x.Inspect(t.Context(), h)
	must(t, err)
	if after.State != sandbox.StateRunning || !after.StartedAt.Equal(before.StartedAt) {
		t.Errorf("it stood as %+v, and stands as %+v", before, after)
	}
}
