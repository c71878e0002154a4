package leasing_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// While an engine hangs, callers that wait for it must not write to the ledger: a wait that writes would wake all
// waiters, and they would wake it.
func TestWaitingForASandboxThatIsWorkedOnWritesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			t.Fatal(err)
		}
		answer := make(chan struct{})
		var once sync.Once
		respond := func() { once.Do(func() { close(answer) }) }
		w.backend.Fault(fake.OpWake, func(context.Context) error { <-answer; return nil })
		var users sync.WaitGroup
		var commits atomic.Int64
		counting, stop := context.WithCancel(w.Context())
		users.Go(func() {
			for counting.Err() == nil {
				select {
				case <-w.store.Changed():
					if commits.Add(1) == 1000 {
						respond() // otherwise time would stand still forever
					}
				case <-counting.Done():
				}
			}
		})
		for range 5 {
			users.Go(func() {
				if _, err := w.engine.Wake(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		later(20 * time.Second)
		if n := commits.Load(); n > 30 {
			t.Errorf("%d commits in 20 s, want those of the heartbeat, every 2 s, and one or two for each who waits", n)
		}
		respond()
		later(time.Second)
		stop()
		users.Wait()
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
	})
}

func TestAConditionIsKnownAgainAfterTheClockWasSetBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.close()
		var ahead atomic.Int64
		w.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		w.open()
		w.environment(func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		w.acquire(ann)
		later(time.Second)
		d := death("m-1", ann, "body")
		if r, err := w.engine.Deliver(w.Context(), d); err != nil || r.Status != sandbox.DeliveryApplied {
			t.Fatalf("%+v, %v", r, err)
		}
		ahead.Store(int64(-time.Hour))
		if r, err := w.engine.Deliver(w.Context(), d); err != nil || !r.Duplicate {
			t.Errorf("the repeated delivery returned %+v, %v", r, err)
		}
		if _, err := w.engine.Deliver(w.Context(), death("m-2", ann, "body")); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("a condition an hour ahead returned %v", err)
		}
	})
}

// A lease ends while its backend puts the sandbox to sleep, which may save a large disk, or wakes it. The sandbox is
// killed immediately.
func TestAnEndInterruptsASleepAndAWake(t *testing.T) {
	steps := map[fake.Op]func(*leasing.Service, context.Context, sandbox.LeaseRef) (sandbox.Lease, error){
		fake.OpSleep: (*leasing.Service).Sleep,
		fake.OpWake:  (*leasing.Service).Wake,
	}
	for op, step := range steps {
		t.Run(string(op), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment()
				w.acquire(ann)
				ref := sandbox.LeaseRef{ID: annLease}
				if op == fake.OpWake {
					if _, err := w.engine.Sleep(w.Context(), ref); err != nil {
						t.Fatal(err)
					}
				}
				w.backend.Hang(op)
				var asking sync.WaitGroup
				asking.Go(func() {
					if _, err := step(w.engine, w.Context(), ref); sandbox.CodeOf(err) != sandbox.LeaseEnded {
						t.Errorf("the caller of the step got the error %v, want that the lease has ended", err)
					}
				})
				later(time.Second)
				began := time.Now()
				if _, err := w.engine.Release(w.Context(), ref); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("the sandbox was destroyed %s after the end of its lease", took)
				}
				asking.Wait()
			})
		})
	}
}
