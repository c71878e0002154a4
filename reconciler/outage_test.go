package reconciler_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// outage is how long the reconciler is down.
const outage = 8 * time.Second

// TestAnOutageIsNotBilled ends a sandbox while no reconciler can record it, and compares the billed time with the
// engine's own events.
func TestAnOutageIsNotBilled(t *testing.T) {
	t.Parallel()
	t.Run("KilledOnceTheContainerWasRemoved", func(t *testing.T) {
		t.Parallel()
		w, proxy := newProxiedWorld(t)
		w.environment("catan", rpg)
		begun := time.Now()
		l := w.acquire("did:plc:ann", "catan")
		w.exec(l.ID, "true")
		remove := steps[slices.IndexFunc(steps, func(s step) bool { return s.name == "remove the container" })]
		hit := w.killAt(proxy, remove, true)
		w.lastPost("msg_end",
			sandbox.Condition{Type: "game.finished", Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: "catan"}})
		<-hit
		before := time.Since(begun).Seconds()
		w.stayDown(proxy)
		w.wantBilledAsExisted(l, before)
	})
	t.Run("RemovedByHandWhileItWasDown", func(t *testing.T) {
		t.Parallel()
		w, proxy := newProxiedWorld(t)
		w.environment("catan", func(p *sandbox.PutEnvironment) { rpg(p); p.TTL = sandbox.Duration(5 * time.Second) })
		begun := time.Now()
		l := w.acquire("did:plc:ann", "catan")
		w.exec(l.ID, "true")
		name := w.docker("ps", "-q", "--no-trunc", "--filter", w.labelled(), "--filter", sandboxes)
		w.kill()
		w.docker("rm", "-f", name)
		before := time.Since(begun).Seconds()
		w.stayDown(proxy)
		w.wantBilledAsExisted(l, before)
	})
}

// stayDown starts the reconciler again after an outage.
func (w *world) stayDown(proxy interface{ Set(f faulttest.Fault) }) {
	w.Helper()
	time.Sleep(outage) //nolint:forbidigo // the outage itself
	proxy.Set(nil)
	w.start()
}

// wantBilledAsExisted checks the billed time of a sandbox that is gone. If the engine remembers its container's time,
// both agree within 2 s. Otherwise at most the time before the outage is billed.
func (w *world) wantBilledAsExisted(l sandbox.Lease, before float64) {
	w.Helper()
	w.eventually("the lease is destroyed", func() bool { return w.lease(l.ID).Status == sandbox.LeaseDestroyed })
	report, err := w.service.Costs(w.Context(), sandbox.CostQuery{})
	if err != nil {
		w.Fatal(err)
	}
	billed := report.Total.AwakeSeconds + report.Total.AsleepSeconds
	started, removed := w.remembered(l)
	existed := removed.Sub(started).Seconds()
	if started.IsZero() || removed.IsZero() { // events of other containers have displaced them
		existed = 0
		w.Logf("the engine has forgotten when it had the container")
	}
	w.Logf("%.1f s are billed, and the engine had the container for %.1f s", billed, existed)
	if existed > 0 && billed < existed-2 || billed > max(existed, before)+2 {
		w.Errorf("%.1f s are billed, and the engine had its container for %.1f s", billed, existed)
	}
}

// remembered returns when the engine started and removed a sandbox's container by its own events, zero times if it has
// forgotten them.
func (w *world) remembered(l sandbox.Lease) (started, removed time.Time) {
	w.Helper()
	now := strconv.FormatInt(time.Now().Unix()+1, 10)
	events := w.docker("events", "--since", "1", "--until", now, "--filter", "type=container",
		"--filter", "label=io.sandbox-lease.sandbox="+l.SandboxID, "--filter", "label=io.sandbox-lease.role=sandbox",
		"--format", "{{.Action}} {{.TimeNano}}")
	for line := range strings.Lines(events) {
		action, nanos, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			continue // the event of a command has another form
		}
		switch action {
		case "start":
			started = time.Unix(0, n)
		case "destroy":
			removed = time.Unix(0, n)
		}
	}
	return started, removed
}
