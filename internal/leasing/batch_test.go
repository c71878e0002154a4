package leasing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// seat is the n-th agent at a table.
func seat(n int) string { return fmt.Sprintf("did:plc:seat%d", n) }

// tableOf returns an all-or-none batch of leases for n agents.
func tableOf(n int) sandbox.AcquireBatch {
	b := sandbox.AcquireBatch{EnvironmentID: game, Owner: "test", AllOrNone: true}
	for i := range n {
		b.Items = append(b.Items, sandbox.BatchItem{AgentDID: seat(i)})
	}
	return b
}

func (w *world) acquireBatch(b sandbox.AcquireBatch) []sandbox.AcquireResult {
	w.Helper()
	results, err := w.engine.AcquireBatch(w.Context(), b)
	if err != nil {
		w.Fatal(err)
	}
	return results
}

// failOne makes the n-th call of an operation fail, from 1.
func (w *world) failOne(op fake.Op, n int32, err error) {
	var calls atomic.Int32
	w.backend.Fault(op, func(context.Context) error {
		if calls.Add(1) == n {
			return err
		}
		return nil
	})
}

// wantAllGone checks that none of n seats has a live lease or a sandbox.
func (w *world) wantAllGone(n int) {
	w.Helper()
	for i := range n {
		l, err := w.engine.GetLease(w.Context(), sandbox.LeaseID(seat(i), game))
		if err != nil || l.Status != sandbox.LeaseDestroyed {
			w.Errorf("seat %d is %s (%s: %s): %v", i, l.Status, l.EndedBy, l.EndReason, err)
		}
		if _, ok := w.backend.Sandboxes()[l.SandboxID]; ok {
			w.Errorf("seat %d still has a sandbox", i)
		}
	}
}

func TestABatchIsAcceptedInOneCommit(t *testing.T) {
	inWorld(t, func(w *world) {
		w.close()
		var ticks atomic.Int64 // each commit has its own time
		w.now = func() time.Time { return time.Now().Add(time.Duration(ticks.Add(1)) * time.Microsecond) }
		w.open()
		w.environment(withPool(20))
		w.startLoop()
		later(time.Second)
		waiting := w.paused()
		b := tableOf(50)
		b.NoWait = true
		moments, warm := make(map[time.Time]bool), 0
		for _, r := range w.acquireBatch(b) {
			moments[r.Lease.LeasedAt] = true
			if waiting[r.Lease.SandboxID] {
				warm++
			}
		}
		if len(moments) != 1 || warm != 20 {
			t.Errorf("50 leases were accepted in %d commits, %d of them from a pool of 20", len(moments), warm)
		}
	})
}

// TestABatchOfAllOrNoneEndsWhenTheBackendFailsForOneItem covers permanent and transient failures.
func TestABatchOfAllOrNoneEndsWhenTheBackendFailsForOneItem(t *testing.T) {
	for name, cause := range map[string]*sandbox.Error{
		"ForGood":    sandbox.Errorf(sandbox.Failed, "exec format error"),
		"ForNow":     sandbox.Errorf(sandbox.CapacityExceeded, "no room"),
		"AnswerLost": sandbox.Errorf(sandbox.UnknownOutcome, "the connection broke"),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment()
				w.startLoop()
				before := w.acquire(ann)
				w.failOne(fake.OpSpawn, 5, cause)
				b := tableOf(8)
				b.Items = append(b.Items, sandbox.BatchItem{AgentDID: ann})
				_, err := w.engine.AcquireBatch(w.Context(), b)
				e, ok := errors.AsType[*sandbox.Error](err)
				if !ok || e.Code != cause.Code || len(e.Fields) != 1 ||
					!slices.ContainsFunc(b.Items, func(i sandbox.BatchItem) bool {
						return e.Fields[0].Problem == "lease "+sandbox.LeaseID(i.AgentDID, game)+" could not begin"
					}) {
					t.Fatalf("the batch returned %v", err)
				}
				w.wantAllGone(8)
				if l := w.lease(annLease); l.SandboxID != before.SandboxID || l.Status != sandbox.LeaseActive {
					t.Errorf("a lease that lived before is %+v", l)
				}
				used := w.costs().AwakeSeconds
				later(time.Hour)
				if more := w.costs().AwakeSeconds - used; more > 3600 { // ann's alone, who sleeps by then
					t.Errorf("the batch is billed on for %.0f s", more)
				}
				for i, r := range w.acquireBatch(b) {
					if r.Err != nil || r.Lease.Status != sandbox.LeaseActive || i < 8 && r.Lease.Generation != 2 {
						t.Errorf("once there is room, item %d is %+v", i, r)
					}
				}
				w.findings()
			})
		})
	}
}

// TestTheDeathOfOneOfABatchEndsNoOther: all of the batch began, one of them only to end.
func TestTheDeathOfOneOfABatchEndsNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(begins("sleep 20s"), func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		w.startLoop()
		b := tableOf(3)
		dead := b.Items[0].AgentDID
		type answer struct {
			results []sandbox.AcquireResult
			err     error
		}
		answers := make(chan answer, 1)
		go func() {
			results, err := w.engine.AcquireBatch(w.Context(), b)
			answers <- answer{results, err}
		}()
		later(10 * time.Second)
		w.condition("agent.death", dead)
		a := <-answers
		if a.err != nil {
			t.Fatalf("the batch returned %v", a.err)
		}
		later(time.Minute)
		for i, item := range b.Items {
			want := sandbox.LeaseActive
			if item.AgentDID == dead {
				want = sandbox.LeaseDestroyed
			}
			if l := w.lease(sandbox.LeaseID(item.AgentDID, game)); l.Status != want || a.results[i].Err != nil {
				t.Errorf("item %d is %s, ended by %q (%s), with %v; want %s", i, l.Status, l.EndedBy, l.EndReason,
					a.results[i].Err, want)
			}
		}
	})
}

func (w *world) costs() sandbox.CostRow {
	w.Helper()
	r, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
	if err != nil {
		w.Fatal(err)
	}
	return r.Total
}

func TestABatchReportsTheOneItemThatTheBackendFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.startLoop()
		w.failOne(fake.OpSpawn, 3, sandbox.Errorf(sandbox.Failed, "exec format error"))
		b := tableOf(6)
		b.AllOrNone = false
		failed := 0
		for _, r := range w.acquireBatch(b) {
			switch {
			case sandbox.CodeOf(r.Err) == sandbox.Failed:
				failed++
			case r.Err != nil || r.Lease.Status != sandbox.LeaseActive:
				t.Errorf("%+v", r)
			}
		}
		if n := len(w.backend.Sandboxes()); failed != 1 || n != 5 {
			t.Errorf("%d items failed, and %d sandboxes exist", failed, n)
		}
	})
}

func TestABatchOfAllOrNoneReplacesWhatThePoolHasLost(t *testing.T) {
	for name, cause := range map[string]error{
		"Broken":   sandbox.Errorf(sandbox.Failed, "it was broken"),
		"Vanished": sandbox.Errorf(sandbox.NotFound, "it was removed"),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment(withPool(3))
				w.startLoop()
				later(time.Second)
				w.failOne(fake.OpAssign, 2, cause)
				again := 0
				for i, r := range w.acquireBatch(tableOf(5)) {
					if r.Err != nil || !r.IsNew || r.Lease.Status != sandbox.LeaseActive {
						t.Errorf("item %d is %+v", i, r)
					}
					again += int(r.Lease.Generation) - 1
				}
				if again != 1 {
					t.Errorf("%d leases have another generation, want the one whose sandbox was lost", again)
				}
			})
		})
	}
}

// TestAHalfMadeBatchContinuesWhenItsProcessDies: its leases begin, and a repeated request for the batch finds them.
func TestAHalfMadeBatchContinuesWhenItsProcessDies(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		closed := w.dieAmid(tableOf(6), 3)
		w.startLoop()
		results := w.acquireBatch(tableOf(6))
		for i, r := range results {
			made := w.backend.Spawned(r.Lease.SandboxID)
			if r.Err != nil || r.IsNew || r.Lease.Generation != 1 || r.Lease.Status != sandbox.LeaseActive || made != 1 {
				t.Errorf("repeated, item %d is %+v, made %d times", i, r, made)
			}
		}
		if n := len(w.backend.Sandboxes()); n != 6 {
			t.Errorf("%d sandboxes exist", n)
		}
		closed()
		later(time.Minute)
		w.want(results[0].Lease, sandbox.LeaseActive, "")
	})
}

// TestAHalfMadeBatchEndsWholeWhenItsProcessDies: a failure while another process works on it ends the whole batch.
func TestAHalfMadeBatchEndsWholeWhenItsProcessDies(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		closed := w.dieAmid(tableOf(6), 3)
		w.failOne(fake.OpSpawn, 2, sandbox.Errorf(sandbox.CapacityExceeded, "no room"))
		w.startLoop()
		later(time.Minute)
		w.wantAllGone(6)
		closed()
		later(time.Minute)
		w.wantAllGone(6)
		for _, r := range w.acquireBatch(tableOf(6)) {
			if r.Err != nil || !r.IsNew || r.Lease.Generation != 2 {
				t.Errorf("repeated: %+v", r)
			}
		}
	})
}

// dieAmid makes another process accept a batch and die once made of its sandboxes exist. The returned function lets its
// late answers arrive.
func (w *world) dieAmid(b sandbox.AcquireBatch, made int32) (closed func()) {
	dead, dying := make(chan struct{}), w.newEngine(w.store)
	var spawns atomic.Int32
	w.backend.Fault(fake.OpSpawn, func(context.Context) error {
		if spawns.Add(1) <= made {
			return nil
		}
		<-dead
		return away
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _, _ = dying.AcquireBatch(ctx, b) }()
	synctest.Wait()
	gone := make(chan struct{})
	go func() { _ = dying.Close(); close(gone) }()
	synctest.Wait()
	w.backend.Fault(fake.OpSpawn, nil)
	return func() { close(dead); cancel(); <-gone }
}

// TestABatchComesToItsEndWhenItsCallerLeaves: accepted leases begin or end, even if the caller has left.
func TestABatchComesToItsEndWhenItsCallerLeaves(t *testing.T) {
	for name, cause := range map[string]error{
		"Begins": nil,
		"Fails":  sandbox.Errorf(sandbox.Failed, "exec format error"),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment()
				w.startLoop()
				left := make(chan struct{})
				w.backend.Fault(fake.OpSpawn, func(context.Context) error { <-left; return cause })
				ctx, cancel := context.WithTimeout(w.Context(), time.Second)
				defer cancel()
				if _, err := w.engine.AcquireBatch(ctx, tableOf(4)); sandbox.CodeOf(err) != sandbox.Timeout {
					t.Fatalf("a caller that leaves gets %v", err)
				}
				close(left)
				later(time.Second)
				if cause != nil {
					w.wantAllGone(4)
					return
				}
				for i := range 4 {
					w.want(w.lease(sandbox.LeaseID(seat(i), game)), sandbox.LeaseActive, "")
				}
			})
		})
	}
}

// TestALeaseThatABatchRolledBackIsCreatedForOthers: an agent whose lease was pending for a failed batch still gets a
// lease.
func TestALeaseThatABatchRolledBackIsCreatedForOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.startLoop()
		held := make(chan struct{})
		var calls atomic.Int32
		w.backend.Fault(fake.OpSpawn, func(context.Context) error {
			if calls.Add(1) > 4 {
				return nil
			}
			<-held
			return sandbox.Errorf(sandbox.Failed, "exec format error")
		})
		b := tableOf(4)
		b.NoWait = true
		w.acquireBatch(b)
		var got sandbox.Acquired
		var err error
		acquired := make(chan struct{})
		go func() {
			defer close(acquired)
			got, err = w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: seat(0), EnvironmentID: game, Owner: "test"})
		}()
		synctest.Wait()
		close(held)
		<-acquired
		if err != nil && sandbox.CodeOf(err) != sandbox.Failed { // its own sandbox may have failed first
			t.Fatal(err)
		}
		if err == nil && (got.Lease.Generation != 2 || got.Lease.Status != sandbox.LeaseActive) {
			t.Errorf("the other caller got %+v", got)
		}
		later(time.Minute)
		for i := 1; i < 4; i++ {
			if l := w.lease(sandbox.LeaseID(seat(i), game)); l.Status != sandbox.LeaseDestroyed {
				t.Errorf("seat %d is %s", i, l.Status)
			}
		}
	})
}
