package reconciler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// onPostgreSQL gives a world a ledger that replicas can share.
func onPostgreSQL(t *testing.T) func(*reconciler.Config) {
	return func(c *reconciler.Config) { c.LedgerURL = postgrestest.New(t) }
}

// signal freezes a replica (SIGSTOP) or continues it (SIGCONT).
func (w *world) signal(s syscall.Signal) {
	w.Helper()
	if err := w.process.Process.Signal(s); err != nil {
		w.Fatal(err)
	}
}

// takeover is the time limit within which a replica continues the claimed work of a dead one.
const takeover = 10 * time.Second

// TestWorkOfADeadReplicaIsTakenOver kills a replica in the middle of a call to the engine. It measures when the other
// one makes the same call.
func TestWorkOfADeadReplicaIsTakenOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		call   string // the call at which the replica dies
		answer bool   // whether the engine has completed it
	}{
		{"start the container", false},
		{"start the container", true},
		{"remove the container", false},
		{"remove the container", true},
	} {
		t.Run(fmt.Sprintf("%s, made: %t", c.call, c.answer), func(t *testing.T) {
			t.Parallel()
			call := steps[slices.IndexFunc(steps, func(s step) bool { return s.name == c.call })]
			proxies := []*dockertest.Proxy{dockertest.NewProxy(t), dockertest.NewProxy(t)}
			a := newWorld(t, proxies[0].Host(), onPostgreSQL(t))
			b := a.join(proxies[1].Host())
			a.environment("catan", rpg)
			if call.name == "remove the container" {
				a.acquire(agent(1), "catan")
			}
			b.signal(syscall.SIGSTOP) // otherwise it might be faster than the replica that must die
			died := dieAt(a, proxies[0], call, c.answer)
			taken, done := firstChange(proxies[1])
			if call.name == "remove the container" {
				a.lastPost("msg_1", sandbox.Condition{Type: "agent.death", Timestamp: time.Now(),
					Data: sandbox.ConditionData{EnvironmentID: "catan", AgentDID: agent(1)}})
			} else if _, err := a.service.Acquire(t.Context(),
				sandbox.Acquire{AgentDID: agent(1), EnvironmentID: "catan"}); err == nil {
				t.Error("the dead replica answered")
			}
			at := <-died
			b.signal(syscall.SIGCONT)
			id := sandbox.LeaseID(agent(1), "catan")
			want, containers := sandbox.LeaseActive, 1
			if call.name == "remove the container" {
				want, containers = sandbox.LeaseDestroyed, 0
			}
			b.eventually("the work is done", func() bool { return b.lease(id).Status == want })
			done() // there may have been nothing left to change
			if d := (<-taken).Sub(at); d > takeover {
				t.Errorf("it was taken over after %s, want at most %s", d, takeover)
			} else {
				t.Logf("taken over after %s", d)
			}
			if l, n := b.lease(id), b.containers(); l.Generation != 1 || n != containers {
				t.Errorf("generation %d, and there are %d containers; want the first and %d", l.Generation, n, containers)
			}
			proxies[0].Set(nil)
			a.start() // it finds nothing to do
		})
	}
}

// dieAt kills a replica at a call to its engine. The engine completes the call or never receives it.
func dieAt(w *world, p *dockertest.Proxy, call step, made bool) <-chan time.Time {
	died := make(chan time.Time, 1)
	var once atomic.Bool
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if !call.is(r) || once.Swap(true) {
			pass(rw, r)
			return
		}
		if made {
			pass(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		}
		w.kill()
		died <- time.Now()
		panic(http.ErrAbortHandler)
	})
	return died
}

// firstChange returns when a replica first changed something on its engine, or when callOff was called.
func firstChange(p *dockertest.Proxy) (at <-chan time.Time, callOff func()) {
	times := make(chan time.Time, 1)
	var once sync.Once
	now := func() { once.Do(func() { times <- time.Now() }) }
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if r.Method != http.MethodGet {
			now()
		}
		pass(rw, r)
	})
	return times, now
}

// TestReplicasServeOneLedger continues on each replica what began on the other one.
func TestReplicasServeOneLedger(t *testing.T) {
	t.Parallel()
	a := newWorld(t, "", onPostgreSQL(t))
	b := a.join("")
	a.environment("catan", rpg)

	l := a.acquire(agent(1), "catan")
	if out := b.exec(l.ID, "cat", "/workspace/config.json"); !strings.Contains(out, l.SandboxID) {
		t.Errorf("through the other replica its config.json is %q", out)
	}
	if again := b.acquire(agent(1), "catan"); again.SandboxID != l.SandboxID || again.Generation != 1 {
		t.Errorf("acquired again it is %+v", again)
	}
	if _, err := b.service.Sleep(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Error(err)
	}
	a.exec(l.ID, "true")
	if _, err := b.service.Release(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Error(err)
	}
	if got := a.lease(l.ID); got.EndedBy != sandbox.EndedByRelease {
		t.Errorf("it is %s by %s", got.Status, got.EndedBy)
	}
	doTwice(a, b)
	a.eventually("nothing is left", func() bool { return a.containers() == 0 })
}

// doTwice makes both replicas do the same at the same time: begin a lease, use it and end it.
func doTwice(a, b *world) {
	a.Helper()
	both := func(do func(w *world) error) {
		a.Helper()
		var wg sync.WaitGroup
		for range 4 {
			for _, w := range []*world{a, b} {
				wg.Go(func() {
					if err := do(w); err != nil {
						w.Error(err)
					}
				})
			}
		}
		wg.Wait()
	}
	var fresh atomic.Int64
	id := sandbox.LeaseID(agent(2), "catan")
	both(func(w *world) error {
		got, err := w.service.Acquire(w.Context(), sandbox.Acquire{AgentDID: agent(2), EnvironmentID: "catan"})
		if got.IsNew {
			fresh.Add(1)
		}
		return err
	})
	if n := a.docker("ps", "-q", "--filter", "label=io.sandbox-lease.sandbox="+a.lease(id).SandboxID); fresh.Load() != 1 ||
		len(strings.Fields(n)) != 1 {
		a.Errorf("%d callers created it, and its containers are %q", fresh.Load(), n)
	}
	both(func(w *world) error {
		_, err := w.service.Exec(w.Context(), sandbox.LeaseRef{ID: id}, sandbox.ExecRequest{Command: []string{"true"}})
		return err
	})
	died := sandbox.Condition{
		Type:      "agent.death",
		Timestamp: time.Now(),
		Data:      sandbox.ConditionData{EnvironmentID: "catan", AgentDID: agent(2)},
	}
	var applied atomic.Int64
	both(func(w *world) error {
		status, receipt := w.post("msg_twice", died)
		if status != http.StatusAccepted || receipt.Matched != 1 {
			return fmt.Errorf("the condition: %d %+v", status, receipt)
		}
		if !receipt.Duplicate {
			applied.Add(1)
		}
		return nil
	})
	if applied.Load() != 1 {
		a.Errorf("the condition was applied %d times", applied.Load())
	}
	both(func(w *world) error { // it has ended already; release returns once it is destroyed
		_, err := w.service.Release(w.Context(), sandbox.LeaseRef{ID: id})
		return err
	})
	ends := 0
	events, err := a.service.ListEvents(a.Context(), sandbox.EventFilter{LeaseID: id})
	for _, e := range events {
		if e.Type == sandbox.EventEnded || e.Type == sandbox.EventDeleted {
			ends++
		}
	}
	if err != nil || ends != 2 {
		a.Errorf("it was ended and destroyed %d times, in all: %v", ends, err)
	}
}

// TestReplicasHearOfEachOther streams from one replica the events of requests to the other one.
func TestReplicasHearOfEachOther(t *testing.T) {
	t.Parallel()
	a := newWorld(t, "", onPostgreSQL(t))
	b := a.join("")
	a.environment("catan")
	const conditions = 200
	heard := make(chan heardOf, conditions)
	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() {
		followed <- b.service.FollowEvents(ctx, sandbox.EventFilter{EnvironmentID: "catan"}, func(e sandbox.Event) error {
			if e.Type == sandbox.EventConditionUnmatched {
				heard <- heardOf{e, time.Now()}
			}
			return nil
		})
	}()
	took := make([]time.Duration, conditions)
	for i := range took {
		id := fmt.Sprintf("msg_%d", i)
		a.post(id, sandbox.Condition{
			Type:      "agent.death",
			Timestamp: time.Now(),
			Data:      sandbox.ConditionData{EnvironmentID: "catan", AgentDID: agent(i)},
		})
		accepted := time.Now()
		h := <-heard
		if delivery := h.delivery(t); delivery != id {
			t.Fatalf("after %s the other replica reported %s", id, delivery)
		}
		took[i] = max(h.at.Sub(accepted), 0)
	}
	stop()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Errorf("following: %v", err)
	}
	slices.Sort(took)
	p50, p99 := took[conditions/2], took[conditions*99/100]
	t.Logf("from the reply of one replica to the stream of the other: p50 %s, p99 %s", p50, p99)
	if p50 > 50*time.Millisecond {
		t.Errorf("half of them took more than %s, want at most 50ms", p50)
	}
}

type heardOf struct {
	sandbox.Event
	at time.Time
}

func (h heardOf) delivery(t *testing.T) string {
	t.Helper()
	var data struct{ Delivery string }
	if err := json.Unmarshal(h.Data, &data); err != nil {
		t.Fatal(err)
	}
	return data.Delivery
}

// TestReplicaLeavesAnotherEnginesSandboxesAlone runs two replicas, each with its own engine.
func TestReplicaLeavesAnotherEnginesSandboxesAlone(t *testing.T) {
	t.Parallel()
	a := newWorld(t, "", onPostgreSQL(t))
	a.environment("catan")
	l := a.acquire(agent(1), "catan")
	other := dockertest.StartDaemon(t)
	b := a.join(other.Host())

	if _, err := b.service.ObserveLease(t.Context(), l.ID); sandbox.ReasonOf(err) != sandbox.ReasonOtherInstance {
		t.Errorf("observed through another engine: %v", err)
	}
	a.kill()
	b.post("msg_1",
		sandbox.Condition{Type: "game.finished", Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: "catan"}})
	if _, err := b.service.Release(t.Context(), sandbox.LeaseRef{ID: l.ID}); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("released where its engine is not: %v", err)
	}
	if got := b.lease(l.ID); got.Status != sandbox.LeaseExpired || got.EndedBy != sandbox.EndedByCondition {
		t.Errorf("it is %s by %s", got.Status, got.EndedBy)
	}
	if found, err := b.service.ListDrift(t.Context(), sandbox.DriftFilter{}); err != nil || len(found) != 0 {
		t.Errorf("findings %+v, %v", found, err)
	}
	if a.docker("inspect", "--format", "{{.State.Running}}",
		a.docker("ps", "-q", "--filter", "label=io.sandbox-lease.sandbox="+l.SandboxID)) != "true" {
		t.Error("its container no longer runs")
	}
	a.start()
	b.eventually("it is destroyed", func() bool { return b.lease(l.ID).Status == sandbox.LeaseDestroyed })
}

// TestReplicasOfTwoVersionsShareALedger changes the ledger as a newer program would: first compatibly, then so that
// this program must stop.
func TestReplicasOfTwoVersionsShareALedger(t *testing.T) {
	t.Parallel()
	a := newWorld(t, "", onPostgreSQL(t))
	a.environment("catan")
	for _, statement := range []string{
		"INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, true)",
		"ALTER TABLE sandboxes ADD COLUMN novelty TEXT NOT NULL DEFAULT 'x'",
		"CREATE TABLE novelties (id BIGINT PRIMARY KEY)",
	} {
		postgrestest.Exec(t, a.config.LedgerURL, statement)
	}
	b := a.join("")
	b.exec(a.acquire(agent(1), "catan").ID, "true")
	a.exec(b.acquire(agent(2), "catan").ID, "true")

	postgrestest.Exec(t, a.config.LedgerURL, "UPDATE ledgers SET min_reader = 1000")
	for name, w := range map[string]*world{"older": a, "younger": b} {
		_, err := w.service.Release(t.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID(agent(1), "catan")})
		if sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "upgrade and restart") {
			t.Errorf("the %s process, which is too old now: %v", name, err)
		}
	}
	if out, err := a.reconciler().CombinedOutput(); err == nil || !strings.Contains(string(out), "upgrade this program") {
		t.Errorf("a process that starts then: %v, %s", err, out)
	}
	if n := a.containers(); n != 2 {
		t.Errorf("there are %d containers, want 2", n)
	}
	postgrestest.Exec(t, a.config.LedgerURL, "UPDATE ledgers SET min_reader = 2") // so that the test can clean up
}

// TestReplicasDoNotOverfillAPool makes the database itself count a pool at each commit.
func TestReplicasDoNotOverfillAPool(t *testing.T) {
	t.Parallel()
	a := newWorld(t, "", onPostgreSQL(t))
	b := a.join("")
	const size = 3
	for _, statement := range []string{
		"CREATE TABLE pool_peak (n BIGINT)",
		"INSERT INTO pool_peak VALUES (0)",
		`CREATE FUNCTION note_pool() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			UPDATE pool_peak SET n = greatest(n, (SELECT count(*) FROM sandboxes WHERE lease_id IS NULL AND desired = 'present'));
			RETURN NULL;
		END $$`,
		`CREATE CONSTRAINT TRIGGER note_pool AFTER INSERT OR UPDATE ON sandboxes
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_pool()`,
	} {
		postgrestest.Exec(t, a.config.LedgerURL, statement)
	}
	a.environment("catan", func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: size} })
	seen := make(map[string]bool)
	for range 6 {
		for _, w := range []*world{a, b} {
			l := w.acquire(agent(len(seen)), "catan")
			if seen[l.SandboxID] {
				t.Errorf("sandbox %s was given out twice", l.SandboxID)
			}
			seen[l.SandboxID] = true
		}
	}
	b.eventually("the pool is full", func() bool { return b.poolReady() == size })
	if n := a.containers(); n != size+len(seen) {
		t.Errorf("there are %d containers for %d leases and a pool of %d", n, len(seen), size)
	}
	conn, err := pgx.Connect(t.Context(), a.config.LedgerURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var peak int
	if err := conn.QueryRow(t.Context(), "SELECT n FROM pool_peak").Scan(&peak); err != nil || peak != size {
		t.Errorf("at most %d waited at the same time, want %d: %v", peak, size, err)
	}
}
