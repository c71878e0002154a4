package leasing_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// withRunningPool gives an environment a warm pool whose sandboxes are awake.
func withRunningPool(size int64) func(p *sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) {
		p.WarmPool = &sandbox.WarmPool{Size: size, Mode: sandbox.PoolRunning}
	}
}

// running returns the ids of the awake sandboxes on the backend.
func (w *world) running() map[string]bool {
	ids := make(map[string]bool)
	for id, o := range w.backend.Sandboxes() {
		if o.State == sandbox.StateRunning {
			ids[id] = true
		}
	}
	return ids
}

func TestARunningPoolIsClaimedByAMessageAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withRunningPool(2))
		later(time.Second)
		w.wantPool(2, 0)
		waiting := w.running()
		if len(waiting) != 2 {
			t.Fatalf("%d sandboxes are awake, want 2", len(waiting))
		}
		later(time.Hour)
		w.wantPool(2, 0) // none has gone to sleep
		for _, op := range []fake.Op{fake.OpSpawn, fake.OpWake, fake.OpSleep, fake.OpInspect} {
			w.backend.Fail(op, sandbox.Errorf(sandbox.Failed, "a claim must not ask for this"))
		}
		l := w.acquire(ann)
		if !waiting[l.SandboxID] || w.backend.Spec(l.SandboxID).AgentDID != ann || l.Phase != sandbox.PhaseAwake {
			t.Errorf("the lease got sandbox %s of %q, %s", l.SandboxID, w.backend.Spec(l.SandboxID).AgentDID, l.Phase)
		}
	})
}

func TestARunningSandboxThatIsLostIsNotGivenOut(t *testing.T) {
	for name, fault := range map[string]func(ctx context.Context) error{
		"it stopped": func(context.Context) error { return sandbox.Errorf(sandbox.Conflict, "it is stopped") },
		"it vanished": func(context.Context) error {
			return sandbox.Errorf(sandbox.NotFound, "there is no such sandbox")
		},
		"it does not answer": func(ctx context.Context) error {
			<-ctx.Done()
			return sandbox.Errorf(sandbox.Timeout, "%w", ctx.Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.startLoop()
				w.environment(withRunningPool(2))
				later(time.Second)
				waiting := w.running()
				var tries atomic.Int64
				w.backend.Fault(fake.OpAssign, func(ctx context.Context) error {
					if tries.Add(1) == 1 {
						return fault(ctx)
					}
					return nil
				})
				began := time.Now()
				l := w.acquire(ann)
				if !waiting[l.SandboxID] || l.Generation != 2 {
					t.Errorf("the lease got sandbox %s in generation %d, want the next one of the pool", l.SandboxID, l.Generation)
				}
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("the next one was taken after %s", took)
				}
				delete(waiting, l.SandboxID)
				later(time.Minute)
				for lost := range waiting {
					if w.running()[lost] {
						t.Errorf("sandbox %s is left", lost)
					}
					events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: lost})
					if err != nil || len(events) == 0 || events[len(events)-1].Type != sandbox.EventDeleted {
						t.Errorf("its end is not recorded: %+v, %v", events, err)
					}
				}
				w.wantPool(2, 0)
			})
		})
	}
}

// TestAPoolThatLosesAllMakesASandbox: the acquire succeeds, whatever state the pool is in.
func TestAPoolThatLosesAllMakesASandbox(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withRunningPool(4))
		later(time.Second)
		waiting := w.running()
		w.backend.Fail(fake.OpAssign, sandbox.Errorf(sandbox.Conflict, "it is stopped"))
		if l := w.acquire(ann); waiting[l.SandboxID] || l.Status != sandbox.LeaseActive {
			t.Errorf("the lease is %s with sandbox %s of the pool", l.Status, l.SandboxID)
		}
	})
}

func TestAPoolWhoseModeChangesIsReplaced(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(2))
		later(time.Second)
		asleep := w.paused()
		w.environment(withRunningPool(2))
		later(time.Minute)
		w.wantPool(2, 0)
		for id := range w.running() {
			if asleep[id] {
				t.Errorf("sandbox %s was woken", id)
			}
		}
		if len(w.paused()) != 0 || len(w.running()) != 2 {
			t.Errorf("%d sleep and %d are awake", len(w.paused()), len(w.running()))
		}
	})
}

func TestWaitingAwakeCostsTheEnvironmentUntilTheClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resync = time.Hour
		w.startSlowLoop()
		w.environment(withRunningPool(1))
		later(2 * time.Hour)
		w.acquire(ann)
		w.environment(func(p *sandbox.PutEnvironment) {
			p.WarmPool = &sandbox.WarmPool{Size: 0, Mode: sandbox.PoolRunning}
		})
		w.exec(annLease, "sleep", "1h")
		report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{EnvironmentID: game})
		if err != nil {
			t.Fatal(err)
		}
		rows := make(map[string]sandbox.CostRow)
		for _, r := range report.Rows {
			rows[r.LeaseID] = r
		}
		if r := rows[""]; r.AwakeSeconds < 2*3600-200 || r.AwakeSeconds > 2*3600+200 ||
			r.AsleepSeconds != 0 || r.AgentDID != "" {
			t.Errorf("the waiting sandbox is %+v", r)
		}
		if r := rows[annLease]; r.AwakeSeconds < 3600 || r.AwakeSeconds > 3601 {
			t.Errorf("the lease is %+v", r)
		}
	})
}

func TestAPoolGrowsByRecentDemandAndShrinksAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) {
			p.WarmPool = &sandbox.WarmPool{Size: 1, MaxSize: 4, Mode: sandbox.PoolRunning}
		})
		later(time.Second)
		w.wantPool(1, 0)
		acquire := func(from, to int) {
			for i := from; i < to; i++ {
				w.acquire(fmt.Sprintf("did:plc:a%d", i))
			}
		}
		acquire(0, 1)
		later(20 * time.Second)
		acquire(1, 2)
		later(20 * time.Second)
		w.wantPool(1, 0) // they were 20 s apart
		acquire(2, 5)
		later(time.Minute)
		w.wantPool(3, 0)
		acquire(5, 15)
		later(time.Minute)
		w.wantPool(4, 0)
		later(8 * time.Minute)
		w.wantPool(4, 0)
		later(2 * time.Minute)
		w.wantPool(1, 0)
	})
}
