package leasing_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// withPool gives an environment a warm pool.
func withPool(size int64) func(p *sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: size} }
}

// wantPool checks the state of the environment's pool, and its sandboxes.
func (w *world) wantPool(ready, pending int64) {
	w.Helper()
	env, err := w.engine.GetEnvironment(w.Context(), game)
	if err != nil {
		w.Fatal(err)
	}
	if env.Pool == nil || env.Pool.Ready != ready || env.Pool.Pending != pending {
		w.Fatalf("the pool is %+v, want %d ready and %d pending", env.Pool, ready, pending)
	}
}

// paused returns the ids of the paused sandboxes on the backend.
func (w *world) paused() map[string]bool {
	ids := make(map[string]bool)
	for id, o := range w.backend.Sandboxes() {
		if o.State == sandbox.StatePaused {
			ids[id] = true
		}
	}
	return ids
}

func TestPoolIsFilledAndAnAcquireTakesFromIt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(2))
		later(time.Second)
		w.wantPool(2, 0)
		waiting := w.paused()
		if len(waiting) != 2 {
			t.Fatalf("%d sandboxes sleep, want 2", len(waiting))
		}
		leases, err := w.engine.ListLeases(w.Context(), sandbox.LeaseFilter{})
		if err != nil || len(leases) != 0 {
			t.Fatalf("waiting sandboxes show as %d leases: %v", len(leases), err)
		}
		w.backend.Fail(fake.OpSpawn, sandbox.Errorf(sandbox.Failed, "an acquire must not make one"))
		a, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		if err != nil || !a.IsNew {
			t.Fatalf("is_new %v: %v", a.IsNew, err)
		}
		w.want(a.Lease, sandbox.LeaseActive, "")
		if !waiting[a.Lease.SandboxID] || a.Lease.Generation != 1 || a.Lease.Phase != sandbox.PhaseAwake {
			t.Errorf("the lease got sandbox %s in generation %d, %s", a.Lease.SandboxID, a.Lease.Generation, a.Lease.Phase)
		}
		spec := w.backend.Spec(a.Lease.SandboxID)
		if spec.AgentDID != ann || spec.LeaseID != annLease || !spec.Deadline.Equal(a.Lease.LeasedAt.Add(240*time.Hour)) ||
			len(spec.Config) == 0 {
			t.Errorf("the sandbox got %+v", spec)
		}
		w.wantEvents(a.Lease.SandboxID, sandbox.EventAccepted, sandbox.EventPreparing, sandbox.EventReady,
			sandbox.EventAsleep, sandbox.EventAccepted, sandbox.EventPreparing, sandbox.EventReady)
		w.backend.Fail(fake.OpSpawn, nil)
		later(time.Minute)
		w.wantPool(2, 0)
		if w.paused()[a.Lease.SandboxID] {
			t.Error("the lease's sandbox waits in the pool")
		}
		if again := w.acquire(ann); again.SandboxID != a.Lease.SandboxID {
			t.Error("acquiring again gave another sandbox")
		}
	})
}

func (w *world) wantEvents(sandboxID string, want ...sandbox.EventType) {
	w.Helper()
	events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: sandboxID})
	if err != nil {
		w.Fatal(err)
	}
	var got []sandbox.EventType
	for _, e := range events {
		got = append(got, e.Type)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("its events are %v, want %v", got, want)
	}
}

func TestManyTakeFromAPoolAndNoSandboxIsGivenTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(4))
		later(time.Second)
		waiting := w.paused()
		got := make(chan sandbox.Lease)
		for i := range 8 {
			go func() {
				a, err := w.engine.Acquire(w.Context(),
					sandbox.Acquire{AgentDID: fmt.Sprintf("did:plc:a%d", i), EnvironmentID: game, Owner: "test"})
				if err != nil {
					t.Error(err)
				}
				got <- a.Lease
			}()
		}
		seen, warm := make(map[string]bool), 0
		for range 8 {
			l := <-got
			if seen[l.SandboxID] {
				t.Errorf("two leases have sandbox %s", l.SandboxID)
			}
			seen[l.SandboxID] = true
			if waiting[l.SandboxID] {
				warm++
			}
		}
		if warm != 4 {
			t.Errorf("%d came from the pool of 4", warm)
		}
		later(time.Minute)
		w.wantPool(4, 0)
	})
}

func TestSeveralReconcilersDoNotOverfillAPool(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withPool(3))
		others := make(chan error)
		for range 4 {
			other := w.newEngine(w.store)
			go func() {
				err := other.ReconcilePools(context.Background())
				if e := other.Close(); err == nil {
					err = e
				}
				others <- err
			}()
		}
		for range 4 {
			if err := <-others; err != nil {
				t.Error(err)
			}
		}
		w.wantPool(0, 3)
	})
}

func TestSandboxesOfAPoolAreReplacedAtTheirTTL(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resync = time.Hour
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) {
			p.WarmPool = &sandbox.WarmPool{Size: 1, TTL: sandbox.Duration(2 * time.Hour)}
		})
		later(time.Minute)
		first := w.paused()
		later(2*time.Hour - 2*time.Minute)
		for id := range first {
			if !w.paused()[id] {
				t.Error("it was replaced before its time")
			}
		}
		later(3 * time.Minute)
		w.wantPool(1, 0)
		for id := range first {
			if w.paused()[id] {
				t.Error("it still waits after its ttl")
			}
		}
		if n := len(w.backend.Sandboxes()); n != 1 {
			t.Errorf("%d sandboxes exist, want 1", n)
		}
	})
}

func TestLeaseFromAPoolHasItsWholeMaxLifetime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resync = time.Hour
		w.startSlowLoop()
		w.environment(withPool(1))
		later(23 * time.Hour)
		waiting := w.paused()
		l := w.acquire(ann)
		if !waiting[l.SandboxID] {
			t.Fatal("it did not come from the pool")
		}
		if got := w.backend.Spec(l.SandboxID).Deadline.Sub(l.LeasedAt); got != 240*time.Hour {
			t.Errorf("its backend ends it after %s, want 240h", got)
		}
		tooLong := sandbox.Duration(300 * time.Hour)
		later(time.Minute)
		a, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: bob, EnvironmentID: game, Owner: "test",
			Settings: sandbox.LeaseSettings{MaxLifetime: &tooLong}})
		if err != nil {
			t.Fatal(err)
		}
		if w.backend.Spec(a.Lease.SandboxID).Deadline.Sub(a.Lease.LeasedAt) != 300*time.Hour {
			t.Error("a lease that outlives the waiting sandbox got less than it asked for")
		}
	})
}

func TestPoolFollowsItsEnvironment(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(3))
		later(time.Second)
		before := w.paused()
		w.environment(withPool(1))
		later(time.Minute)
		w.wantPool(1, 0)
		w.environment(withPool(1), func(p *sandbox.PutEnvironment) { p.Image = "player:2" })
		later(time.Minute)
		w.wantPool(1, 0)
		for id, o := range w.backend.Sandboxes() {
			if before[id] || o.Image != "player:2" {
				t.Errorf("sandbox %s of %s still waits", id, o.Image)
			}
		}
		w.environment()
		later(time.Minute)
		if n := len(w.backend.Sandboxes()); n != 0 {
			t.Errorf("%d sandboxes wait, and the environment wants none", n)
		}
	})
}

func TestOutdatedSandboxIsNotGivenOut(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(2))
		later(time.Second)
		w.stop() // no loop fills the pool
		w.environment(withPool(2), func(p *sandbox.PutEnvironment) { p.Image = "player:2" })
		if l := w.acquire(ann); l.Image != "player:2" || w.backend.Spec(l.SandboxID).Image != "player:2" {
			t.Errorf("the lease got %s", l.Image)
		}
	})
}

func TestSandboxFromAPoolHasTheModelsOfItsEnvironment(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(2), withModel, func(p *sandbox.PutEnvironment) { p.LLM = nil })
		later(time.Second)
		before := w.paused()
		w.stop() // the pool is not filled again
		w.environment(withPool(2), withModel)
		if l := w.acquire(ann); w.backend.Spec(l.SandboxID).LLM["main"] == "" {
			t.Error("the sandbox of the lease was created without the model")
		}
		w.startLoop()
		later(time.Minute)
		w.wantPool(2, 0)
		for id := range w.paused() {
			if before[id] {
				t.Errorf("sandbox %s, created without the model, still waits", id)
			}
		}
	})
}

func TestClosedEnvironmentKeepsNoPool(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(2))
		l := w.acquire(ann)
		later(time.Minute)
		w.wantPool(2, 0)
		if r := w.condition("game.finished", ""); r.Matched != 1 {
			t.Errorf("%d leases matched, want ann's alone", r.Matched)
		}
		later(time.Minute)
		w.want(w.lease(l.ID), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		w.wantPool(0, 0)
		if n := len(w.backend.Sandboxes()); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
		if _, err := w.engine.ReopenEnvironment(w.Context(), game); err != nil {
			t.Fatal(err)
		}
		later(time.Minute)
		w.wantPool(2, 0)
		if err := w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game}); err != nil {
			t.Fatalf("a waiting sandbox is no active lease: %v", err)
		}
		later(time.Minute)
		if n := len(w.backend.Sandboxes()); n != 0 {
			t.Errorf("%d sandboxes are left of a deleted environment", n)
		}
	})
}

func TestPausedPoolIsNotRefilled(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(2))
		later(time.Second)
		waiting := w.paused()
		w.environment(func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 2, Paused: true} })
		if l := w.acquire(ann); !waiting[l.SandboxID] {
			t.Error("a sandbox in a paused pool is not given out")
		}
		later(10 * time.Minute)
		w.wantPool(1, 0)
	})
}

func TestFailingPoolBacksOffAndGivesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		var tries atomic.Int64
		w.backend.Fault(fake.OpSpawn, func(context.Context) error {
			tries.Add(1)
			return sandbox.Errorf(sandbox.Failed, "no seat is free")
		})
		w.startLoop()
		w.environment(withPool(5))
		later(time.Second)
		first := tries.Load()
		if first > 6 {
			t.Errorf("%d tries in the first second", first)
		}
		status := func() sandbox.PoolStatus {
			env, err := w.engine.GetEnvironment(w.Context(), game)
			if err != nil {
				t.Fatal(err)
			}
			return *env.Pool
		}
		if s := status(); s.Failures == 0 || s.LastError == "" || s.RetryAt.IsZero() {
			t.Errorf("after the first failures the pool says %+v", s)
		}
		later(time.Hour)
		given := tries.Load()
		if s := status(); s.Failures != sandbox.MaxPoolFailures || !s.RetryAt.IsZero() {
			t.Errorf("in the end the pool says %+v", s)
		}
		later(3 * time.Hour)
		if n := tries.Load(); n != given || given > 5+sandbox.MaxPoolFailures {
			t.Errorf("%d tries, and %d more after it gave up", given, n-given)
		}
		w.backend.Fault(fake.OpSpawn, nil)
		w.environment(withPool(5))
		later(time.Minute)
		w.wantPool(5, 0)
		if s := status(); s.Failures != 0 || s.LastError != "" {
			t.Errorf("it works again and is %+v", s)
		}
	})
}

func TestClaimOnAPooledSandboxIsFinishedAfterACrash(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(1))
		later(time.Second)
		w.stop()
		waiting := w.paused()
		// A process claims a pooled sandbox and dies: its call never answers and its heartbeat ends.
		ctx, cancel := context.WithCancel(context.Background())
		hung := w.newEngine(w.store)
		w.backend.Fault(fake.OpAssign, func(context.Context) error {
			<-ctx.Done()
			return sandbox.Errorf(sandbox.Failed, "the process died")
		})
		go func() { _, _ = hung.Acquire(ctx, sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"}) }()
		synctest.Wait()
		closed := make(chan struct{})
		go func() { _ = hung.Close(); close(closed) }()
		synctest.Wait()
		w.want(w.lease(annLease), sandbox.LeasePending, "")
		w.backend.Fault(fake.OpAssign, nil)
		// No caller asks again: the loop of the next process finds the claim.
		w.startLoop()
		later(30 * time.Second)
		l := w.lease(annLease)
		w.want(l, sandbox.LeaseActive, "")
		if !waiting[l.SandboxID] || w.backend.Spec(l.SandboxID).AgentDID != ann {
			t.Errorf("sandbox %s of the lease was assigned to %q", l.SandboxID, w.backend.Spec(l.SandboxID).AgentDID)
		}
		cancel() // the dead process's answer arrives late, and changes nothing
		<-closed
		later(time.Second)
		if after := w.lease(annLease); after.Status != sandbox.LeaseActive || after.LastSequence != l.LastSequence {
			t.Errorf("a late answer changed the lease: %+v", after)
		}
	})
}

func TestAnAcquireCreatesASandboxWhereThePoolLostIts(t *testing.T) {
	for name, lose := range map[string]func(w *world, id string){
		"it vanished": func(w *world, id string) {
			w.backend.Fail(fake.OpAssign, sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id))
		},
		"it cannot be assigned": func(w *world, _ string) {
			w.backend.Fail(fake.OpAssign, sandbox.Errorf(sandbox.Failed, "the file is gone"))
		},
		"it does not wake any more": func(w *world, _ string) {
			w.backend.Fail(fake.OpWake, sandbox.Errorf(sandbox.Failed, "it stopped"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.startLoop()
				w.environment(withPool(1))
				later(time.Second)
				var lost string
				for id := range w.paused() {
					lost = id
				}
				lose(w, lost)
				a, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
				if err != nil || !a.IsNew {
					t.Fatalf("is_new %v: %v", a.IsNew, err)
				}
				w.want(a.Lease, sandbox.LeaseActive, "")
				if a.Lease.Generation != 2 || a.Lease.SandboxID == lost {
					t.Errorf("the lease is in generation %d with sandbox %s, want the second and another",
						a.Lease.Generation, a.Lease.SandboxID)
				}
				w.backend.Fail(fake.OpAssign, nil)
				w.backend.Fail(fake.OpWake, nil)
				later(time.Minute)
				if _, there := w.backend.Sandboxes()[lost]; there {
					t.Error("the lost sandbox is left behind")
				}
			})
		})
	}
}

func TestWaitingCostsTheEnvironmentAndThenTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resync = time.Hour
		w.startSlowLoop()
		w.environment(func(p *sandbox.PutEnvironment) {
			p.WarmPool = &sandbox.WarmPool{Size: 1}
			p.SleepMode = sandbox.SleepPause
		})
		later(2 * time.Hour)
		w.acquire(ann)
		w.exec(annLease, "sleep", "1h")
		report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{EnvironmentID: game})
		if err != nil {
			t.Fatal(err)
		}
		rows := make(map[string]sandbox.CostRow)
		for _, r := range report.Rows {
			rows[r.LeaseID] = r
		}
		// The next pooled sandbox waits for the hour of the command.
		if r := rows[""]; r.AsleepSeconds < 3*3600-200 || r.AsleepSeconds > 3*3600+1 || r.AgentDID != "" {
			t.Errorf("the waiting sandbox is %+v", r)
		}
		if r := rows[annLease]; r.AwakeSeconds < 3600 || r.AwakeSeconds > 3601 || r.AsleepSeconds != 0 {
			t.Errorf("the lease is %+v", r)
		}
	})
}

func TestAWarmPoolFollowsARaisedMaxLifetime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		life := func(d time.Duration) func(p *sandbox.PutEnvironment) {
			return func(p *sandbox.PutEnvironment) {
				p.MaxLifetime, p.TTL = sandbox.Duration(d), sandbox.Duration(time.Hour)
			}
		}
		w.environment(withPool(2), life(2*time.Hour))
		later(time.Minute)
		before := w.paused()
		w.environment(withPool(2), life(200*time.Hour))
		later(10 * time.Minute)
		after := w.paused()
		for id := range after {
			if before[id] {
				t.Errorf("sandbox %s waits, and no lease can have it", id)
			}
		}
		if l := w.acquire(ann); !after[l.SandboxID] {
			t.Errorf("the lease has sandbox %s, which is none of %v", l.SandboxID, after)
		}
	})
}
