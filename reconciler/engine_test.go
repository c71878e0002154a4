package reconciler_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestEngineThatIsAwayOrAnotherEndsNothing stops the engine under living and ending leases, starts another engine in
// its place, and restores the first one.
func TestEngineThatIsAwayOrAnotherEndsNothing(t *testing.T) {
	t.Parallel()
	d := dockertest.StartDaemon(t)
	dir, err := os.MkdirTemp("", "engine") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	answers := func(host string) {
		t.Helper()
		next := socket + ".next"
		if err := os.Symlink(strings.TrimPrefix(host, "unix://"), next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, socket); err != nil {
			t.Fatal(err)
		}
	}
	answers(d.Host())
	w := newWorld(t, "unix://"+socket)
	w.environment("catan")
	w.environment("rpg")
	ending, living := w.acquire(agent(0), "catan"), w.acquire(agent(1), "rpg")

	d.Stop()
	if status, r := w.post("msg_1", sandbox.Condition{Type: "game.finished", Timestamp: time.Now(),
		Data: sandbox.ConditionData{EnvironmentID: "catan"}}); status != 202 || r.Matched != 1 {
		t.Fatalf("%d %+v", status, r)
	}
	if _, err := w.service.Release(t.Context(),
		sandbox.LeaseRef{ID: ending.ID}); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("releasing while the engine is away: %v", err)
	}
	if _, err := w.service.ObserveLease(t.Context(), living.ID); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("observing while the engine is away: %v", err)
	}
	unchanged := func(when string) {
		t.Helper()
		if l := w.lease(ending.ID); l.Status != sandbox.LeaseExpired || l.EndedBy != sandbox.EndedByCondition {
			t.Errorf("%s: the ending lease is %s by %s", when, l.Status, l.EndedBy)
		}
		if l := w.lease(living.ID); l.Status != sandbox.LeaseActive {
			t.Errorf("%s: the living lease is %s by %s (%s)", when, l.Status, l.EndedBy, l.EndReason)
		}
		if found, err := w.service.ListDrift(t.Context(), sandbox.DriftFilter{}); err != nil || len(found) != 0 {
			t.Errorf("%s: findings %+v, %v", when, found, err)
		}
	}
	unchanged("the engine is away")

	other := dockertest.StartDaemon(t)
	proxy := dockertest.NewProxyTo(t, other.Host())
	var asked atomic.Int64
	proxy.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if strings.HasSuffix(r.URL.Path, "/info") {
			asked.Add(1)
		}
		pass(rw, r)
	})
	answers(proxy.Host())
	w.eventually("the loop has connected to it twice", func() bool { return asked.Load() >= 2 })
	if _, err := w.service.ObserveLease(t.Context(), living.ID); sandbox.ReasonOf(err) != sandbox.ReasonOtherInstance {
		t.Errorf("observing through another engine: %v", err)
	}
	unchanged("another engine answers")

	other.Stop()
	answers(d.Host())
	d.Start()
	w.eventually("the ending lease is destroyed",
		func() bool { return w.lease(ending.ID).Status == sandbox.LeaseDestroyed })
	w.eventually("the living lease can be observed", func() bool {
		l, err := w.service.ObserveLease(t.Context(), living.ID)
		return err == nil && l.Status == sandbox.LeaseActive
	})
	w.exec(living.ID, "true")
}
