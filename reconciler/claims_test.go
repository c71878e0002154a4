package reconciler_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// onBothDatabases runs a test with a ledger on each database.
func onBothDatabases(t *testing.T, f func(t *testing.T, on func(*reconciler.Config))) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		f(t, func(*reconciler.Config) {})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		f(t, onPostgreSQL(t))
	})
}

// removal returns the call that kills a sandbox.
func (w *world) removal() step {
	steps := w.ground.steps()
	return steps[slices.IndexFunc(steps, func(s step) bool { return s.name == "remove the container" })]
}

// die ends the lease of an agent with its death.
func (w *world) die(id string, agent string) {
	w.Helper()
	if status, _ := w.post(id, sandbox.Condition{Type: "agent.death", Timestamp: time.Now(),
		Data: sandbox.ConditionData{EnvironmentID: "catan", AgentDID: agent}}); status != http.StatusAccepted {
		w.Fatalf("the condition is answered with %d", status)
	}
}

// TestKillsOfADeadProcessAreTakenOverAtTheNextStart kills the reconciler while it kills sandboxes.
func TestKillsOfADeadProcessAreTakenOverAtTheNextStart(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, on func(*reconciler.Config)) {
		w, proxy := newProxiedWorld(t, on)
		w.environment("catan", rpg)
		const players = 3
		for i := range players {
			w.acquire(agent(i), "catan")
		}
		removal, under := w.removal(), make(chan struct{}, 100)
		proxy.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
			if !removal.is(r) {
				pass(rw, r)
				return
			}
			under <- struct{}{}
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		})
		for i := range players {
			w.die(sandbox.RandomIDs(8), agent(i))
		}
		for range players {
			<-under
		}
		w.kill()
		died := time.Now()
		proxy.Set(nil)
		w.start()
		started := time.Now()
		for i := range players {
			id := sandbox.LeaseID(agent(i), "catan")
			w.eventually("its sandbox is gone", func() bool { return w.lease(id).Status == sandbox.LeaseDestroyed })
		}
		took := time.Since(started)
		t.Logf("gone %s after the start, %s after the death", took, time.Since(died))
		if took > 4*time.Second {
			t.Errorf("they were gone %s after the start, want 4s: a claim lasts for 8s", took)
		}
	})
}

// TestKillsOfAProcessWhoseDeathShowsLateAreTakenOver starts a replica before the other one dies: it sees the same as a
// replica that starts while the database has not yet noticed a death.
func TestKillsOfAProcessWhoseDeathShowsLateAreTakenOver(t *testing.T) {
	t.Parallel()
	w, proxy := newProxiedWorld(t, onPostgreSQL(t))
	w.environment("catan", rpg)
	l := w.acquire(agent(0), "catan")
	removal, under := w.removal(), make(chan struct{}, 100)
	proxy.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if !removal.is(r) {
			pass(rw, r)
			return
		}
		under <- struct{}{}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
	w.die("msg_1", agent(0))
	<-under
	replica := w.join(dockertest.NewProxy(t).Host())
	w.kill()
	died := time.Now()
	replica.eventually("its sandbox is gone", func() bool { return replica.lease(l.ID).Status == sandbox.LeaseDestroyed })
	if took := time.Since(died); took > 6*time.Second {
		t.Errorf("it was gone %s after the death, want 6s: a claim runs out 6 to 8s after it", took)
	}
	proxy.Set(nil)
	w.start() // for the world's cleanup
}

// TestClaimsOfALivingReplicaAreNotTaken starts a replica while another one kills a sandbox.
func TestClaimsOfALivingReplicaAreNotTaken(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, on func(*reconciler.Config)) {
		a, first := newProxiedWorld(t, on)
		a.environment("catan", rpg)
		l := a.acquire(agent(0), "catan")
		removal, under, healed := a.removal(), make(chan struct{}, 100), make(chan struct{})
		first.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
			if removal.is(r) {
				under <- struct{}{}
				faulttest.Hung(healed)(rw, r, pass)
			}
			pass(rw, r)
		})
		a.die("msg_1", agent(0))
		<-under

		second := dockertest.NewProxy(t)
		var mu sync.Mutex
		taken := 0
		second.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
			if removal.is(r) {
				mu.Lock()
				taken++
				mu.Unlock()
			}
			pass(rw, r)
		})
		a.join(second.Host())
		time.Sleep(10 * time.Second) //nolint:forbidigo // a claim lasts 8 s unless it is extended
		mu.Lock()
		if taken != 0 {
			t.Errorf("the second replica killed the sandbox of the first one's claim %d times", taken)
		}
		mu.Unlock()
		first.Set(nil)
		close(healed)
		a.eventually("its sandbox is gone", func() bool { return a.lease(l.ID).Status == sandbox.LeaseDestroyed })
	})
}
