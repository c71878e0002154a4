package leasing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// restart ends the program and starts it again, as after a change of its engine or ledger.
func (w *world) restart() {
	w.Helper()
	w.close()
	w.backend.Reopen()
	w.open()
}

func (w *world) release(agent string) {
	w.Helper()
	if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID(agent, game)}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) tryAcquire(agent string) (sandbox.Acquired, error) {
	return w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: "test"})
}

// refused checks the reason of a refused request.
func (w *world) refused(what string, err error, code sandbox.Code, reason sandbox.Reason) {
	w.Helper()
	if sandbox.CodeOf(err) != code || sandbox.ReasonOf(err) != reason {
		w.Errorf("%s: %s, %s: %v; want %s, %s", what, sandbox.CodeOf(err), sandbox.ReasonOf(err), err, code, reason)
	}
}

// lastEvent returns the number of the ledger's last event.
func (w *world) lastEvent() int64 {
	w.Helper()
	info, err := w.engine.Ledger(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return info.LastEventID
}

// TestACloneOfTheEngineEndsNothing makes another machine with the engine's id answer, to a program that starts and to
// one that runs.
func TestACloneOfTheEngineEndsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		before := w.lastEvent()
		back := w.backend.BecomeClone()
		w.restart()
		_, err := w.engine.ObserveLease(w.Context(), annLease)
		w.refused("observing", err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
		_, err = w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease}, sandbox.ExecRequest{Command: []string{"echo"}})
		w.refused("a command", err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
		_, err = w.tryAcquire(bob)
		w.refused("acquiring", err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
		w.refused("a resync", w.engine.Resync(w.Context(), sandbox.Docker), sandbox.Unavailable, sandbox.ReasonOtherInstance)
		if after := w.lastEvent(); after != before ||
			len(w.backend.Sandboxes())+len(w.backend.Objects())+len(w.backend.Witnesses()) != 0 {
			w.Errorf("the ledger advanced from event %d to %d, and the clone has %v", before, after, w.backend.Sandboxes())
		}
		back()
		w.startLoop()
		later(10 * time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")

		back = w.backend.BecomeClone()
		w.backend.Disconnect()
		later(10 * time.Minute)
		w.condition("game.finished", "")
		later(10 * time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseExpired, sandbox.EndedByCondition)
		w.findings()
		back()
		w.backend.Disconnect()
		later(time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		w.findings()
	})
}

// TestAnOlderCopyOfTheEngineEndsNothing puts the engine's machine back to the state before the last generation.
func TestAnOlderCopyOfTheEngineEndsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		older := w.backend.Witnesses()[w.store.ID()]
		w.acquire(ann)
		w.backend.BecomeClone()
		if err := w.backend.LeaveWitness(w.Context(), w.store.ID(), "engine-1", older); err != nil {
			w.Fatal(err)
		}
		w.restart()
		_, err := w.engine.ObserveLease(w.Context(), annLease)
		w.refused("observing", err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
	})
}

func TestAnEngineThatWasWipedIsAcceptedByAdopt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.backend.BecomeClone() // permanently
		w.restart()
		w.startLoop()
		later(time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		for _, dry := range []bool{true, false} {
			if _, err := w.engine.Adopt(w.Context(), sandbox.AdoptRequest{DryRun: dry}); err != nil {
				w.Fatal(err)
			}
			later(time.Minute)
			if l := w.lease(annLease); (l.EndedBy == sandbox.EndedByVanished) == dry {
				w.Errorf("after adopt (dry run: %t) the lease is %s by %q", dry, l.Status, l.EndedBy)
			}
		}
		if l := w.acquire(ann); l.Generation != 2 {
			w.Errorf("its next generation is %d", l.Generation)
		}
	})
}

// TestAWitnessThatWasPrunedIsLeftAgain removes all unused volumes, including the witness.
func TestAWitnessThatWasPrunedIsLeftAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.backend.PruneWitnesses()
		w.resyncNow()
		if n := w.backend.Witnesses()[w.store.ID()]; n == 0 {
			w.Error("the engine has no witness")
		}
		w.backend.PruneWitnesses()
		w.restart()
		if l, err := w.engine.ObserveLease(w.Context(), annLease); err != nil || l.Status != sandbox.LeaseActive {
			w.Errorf("it is %s, %v", l.Status, err)
		}
	})
}

// TestALedgerOfAnOlderProgramLeavesItsWitness opens a ledger whose engine has no witness yet.
func TestALedgerOfAnOlderProgramLeavesItsWitness(t *testing.T) {
	for _, living := range []bool{true, false} {
		t.Run(fmt.Sprintf("living %t", living), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment()
				w.acquire(ann)
				if !living {
					w.release(ann)
				}
				w.close()
				execute(w.T, w.path, "DELETE FROM witnesses")
				w.backend.PruneWitnesses()
				w.backend.Reopen()
				w.open()
				w.resyncNow()
				if n := w.backend.Witnesses()[w.store.ID()]; n == 0 {
					w.Error("the engine has no witness")
				}
				w.acquire(bob)
				if l := w.lease(annLease); (l.Status == sandbox.LeaseActive) != living {
					w.Errorf("it is %s by %q", l.Status, l.EndedBy)
				}
			})
		})
	}
}

// TestALedgerPutBackByACopyIssuesNoGenerationTwice copies the ledger, continues, and puts the copy back without a
// notice.
func TestALedgerPutBackByACopyIssuesNoGenerationTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		const carol, dave = "did:plc:carol", "did:plc:dave"
		w.environment()
		w.acquire(ann)
		w.release(ann)
		w.acquire(carol)
		file := filepath.Join(filepath.Dir(w.path), "copy")
		w.close()
		copyFile(w.T, w.path, file)
		w.open()
		issued := make(map[string]int64)
		for _, agent := range []string{ann, dave, ann, dave, ann, bob} {
			issued[agent] = w.acquire(agent).Generation
			if agent != bob {
				w.release(agent)
			}
		}
		w.environment(func(p *sandbox.PutEnvironment) { p.ID = "chess-1" })
		kept := slices.Collect(maps.Keys(w.backend.Objects()))
		w.close()
		copyFile(w.T, file, w.path)
		w.backend.Reopen()
		w.open()
		w.startLoop()

		for _, agent := range []string{ann, bob, dave} {
			_, err := w.tryAcquire(agent)
			w.refused("acquiring for "+agent, err, sandbox.Conflict, sandbox.ReasonLedgerBehind)
			if err != nil && !strings.Contains(err.Error(), "sandbox adopt") {
				w.Errorf("the error does not say what to do: %v", err)
			}
		}
		if l := w.acquire(carol); l.Generation != 1 {
			w.Errorf("a living lease is in generation %d", l.Generation)
		}
		for range 4 {
			later(grace)
		}
		w.wantThere(true, kept...)
		w.release(carol)
		w.want(w.lease(sandbox.LeaseID(carol, game)), sandbox.LeaseDestroyed, sandbox.EndedByRelease)

		if _, err := w.engine.Adopt(w.Context(), sandbox.AdoptRequest{}); err != nil {
			w.Fatal(err)
		}
		if l := w.lease(sandbox.LeaseID(bob, game)); l.Status != sandbox.LeaseActive || l.Generation != issued[bob] {
			w.Errorf("adopted it is %s, generation %d", l.Status, l.Generation)
		}
		w.release(bob)
		for _, agent := range []string{ann, bob, dave} {
			if l := w.acquire(agent); l.Generation <= issued[agent] {
				w.Errorf("generation %d of %s is issued again; the last was %d", l.Generation, agent, issued[agent])
			}
		}
		w.restart()
		w.release(ann)
		w.acquire(ann) // and it waits no longer
	})
}

// TestAnEmptiedLedgerWithTheSameIdWaits puts back a copy from before the first environment.
func TestAnEmptiedLedgerWithTheSameIdWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		file := filepath.Join(filepath.Dir(w.path), "copy")
		w.close()
		copyFile(w.T, w.path, file)
		w.open()
		w.environment()
		had := w.acquire(ann)
		w.close()
		copyFile(w.T, file, w.path)
		w.backend.Reopen()
		w.open()
		w.environment() // without it nothing can be adopted
		_, err := w.tryAcquire(ann)
		w.refused("acquiring", err, sandbox.Conflict, sandbox.ReasonLedgerBehind)
		if _, err := w.engine.Adopt(w.Context(), sandbox.AdoptRequest{}); err != nil {
			w.Fatal(err)
		}
		if l := w.acquire(ann); l.SandboxID != had.SandboxID {
			w.Errorf("it has sandbox %s, generation %d; it had %s", l.SandboxID, l.Generation, had.SandboxID)
		}
	})
}

// TestAGenerationWhoseWitnessIsLateIsNotTakenForACopy interrupts the program between ledger and engine, in both orders.
func TestAGenerationWhoseWitnessIsLateIsNotTakenForACopy(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.backend.Fail(fake.OpLeaveWitness, away)
		_, err := w.tryAcquire(ann)
		if sandbox.CodeOf(err) != sandbox.Unavailable {
			w.Errorf("a lease without its witness: %v", err)
		}
		w.restart()
		w.want(w.lease(annLease), sandbox.LeasePending, "")
		w.backend.Fail(fake.OpLeaveWitness, nil)
		w.startLoop()
		later(time.Minute)
		if l := w.lease(annLease); l.Status != sandbox.LeaseActive || l.Generation != 1 {
			w.Errorf("it is %s, generation %d: %s", l.Status, l.Generation, l.LastError)
		}
		w.restart()
		if l := w.acquire(bob); l.Generation != 1 {
			w.Errorf("a new lease begins with generation %d", l.Generation)
		}
	})
}

func TestLeasesThatBeginTogetherShareAWitness(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		hold := make(chan struct{})
		var mu sync.Mutex
		left := 0
		w.backend.Fault(fake.OpLeaveWitness, waiting(hold, func() { mu.Lock(); left++; mu.Unlock() }))
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if _, err := w.tryAcquire(fmt.Sprintf("did:plc:p%d", i)); err != nil {
					w.Error(err)
				}
			})
		}
		synctest.Wait()
		close(hold)
		all.Wait()
		if left > 2 {
			w.Errorf("50 leases left %d witnesses", left)
		}
		last := w.backend.Witnesses()[w.store.ID()]
		w.release("did:plc:p1")
		w.acquire("did:plc:p1")
		if n := w.backend.Witnesses()[w.store.ID()]; n != last+1 {
			w.Errorf("the next lease left number %d after %d", n, last)
		}
	})
}

func TestTheWitnessGoesWithTheLastEnvironment(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.environment(func(p *sandbox.PutEnvironment) { p.ID = "chess-1" })
		w.acquire(ann)
		for _, id := range []string{game, "chess-1"} {
			if w.backend.Witnesses()[w.store.ID()] == 0 {
				w.Fatal("the engine has no witness")
			}
			if err := w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: id, Force: true}); err != nil {
				w.Fatal(err)
			}
		}
		if left := w.backend.Witnesses(); len(left) != 0 {
			w.Errorf("left behind: %v", left)
		}
		w.restart()
		w.environment()
		if l := w.acquire(ann); l.Generation != 2 {
			w.Errorf("it continues with generation %d", l.Generation)
		}
		w.restart()
		if l, err := w.engine.ObserveLease(w.Context(), annLease); err != nil || l.Status != sandbox.LeaseActive {
			w.Errorf("it is %s, %v", l.Status, err)
		}
	})
}

// TestAWithdrawnWitnessIsForgotten makes another program delete the last environment, and die before or after the
// ledger has it as destroyed.
func TestAWithdrawnWitnessIsForgotten(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("and dies %t", dies), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment()
				w.acquire(ann)
				w.release(ann)
				left := w.backend.Witnesses()[w.store.ID()]
				another := w.newEngine(w.store)
				err := another.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game})
				if err := errors.Join(err, another.Close()); err != nil {
					w.Fatal(err)
				}
				w.backend.Expect(w.store.ID(), left)
				if dies {
					execute(w.T, w.path, "UPDATE environments SET status = 'deleting'")
				}
				w.resyncNow()
				if err := w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game}); err != nil {
					w.Error(err)
				}
				w.environment()
				w.acquire(ann)
			})
		})
	}
}

// TestADeletionOnACloneRemovesNothing deletes an environment that never had a lease while another machine with the
// engine's id answers.
func TestADeletionOnACloneRemovesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		back := w.backend.BecomeClone()
		for range 2 {
			err := w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game})
			w.refused("deleting", err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
			w.resyncNow()
		}
		back()
		if err := w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game}); err != nil {
			w.Error(err)
		}
		if left := len(w.backend.Witnesses()) + len(w.backend.Objects()); left != 0 {
			w.Errorf("left behind: %v, %v", w.backend.Witnesses(), w.backend.Objects())
		}
	})
}

// TestAnEnvironmentMovesToAnotherEngineOnlyWhenNamed has two replicas with one engine each.
func TestAnEnvironmentMovesToAnotherEngineOnlyWhenNamed(t *testing.T) {
	inWorld(t, func(w *world) {
		b, closeB := w.replica("engine-2")
		defer closeB()
		w.environment()
		put := sandbox.PutEnvironment{ID: game, Owner: "test", EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone}}
		_, err := b.PutEnvironment(w.Context(), put)
		w.refused("through the other replica", err, sandbox.Conflict, sandbox.ReasonOtherInstance)
		for _, name := range []string{"engine-1", "engine-2"} {
			if !strings.Contains(fmt.Sprint(err), name) {
				w.Errorf("the error does not name %s: %v", name, err)
			}
		}
		put.Instance = "engine-1"
		_, err = b.PutEnvironment(w.Context(), put)
		w.refused("naming its engine through the other replica", err, sandbox.Conflict, sandbox.ReasonOtherInstance)
		w.acquire(ann)
		put.Instance = "engine-2"
		_, err = b.PutEnvironment(w.Context(), put)
		w.refused("moving it with a lease", err, sandbox.Conflict, sandbox.ReasonActiveLeases)
		w.release(ann)
		if env, err := b.PutEnvironment(w.Context(), put); err != nil || env.Instance != "engine-2" {
			w.Errorf("moved it is on %s: %v", env.Instance, err)
		}
		if a, err := b.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"}); err != nil ||
			a.Lease.Generation != 2 {
			w.Errorf("the next lease is generation %d: %v", a.Lease.Generation, err)
		}
	})
}

// TestAReplicaBeginsNothingOnAnEngineThatItDoesNotReach acquires through the wrong replica, then through the right one.
func TestAReplicaBeginsNothingOnAnEngineThatItDoesNotReach(t *testing.T) {
	inWorld(t, func(w *world) {
		b, closeB := w.replica("engine-2")
		defer closeB()
		w.environment()
		acquire := sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"}
		_, err := b.Acquire(w.Context(), acquire)
		w.refused("acquiring through the other replica", err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
		if !strings.Contains(fmt.Sprint(err), "engine-1") {
			w.Errorf("the error does not name the engine: %v", err)
		}
		if _, err := w.engine.GetLease(w.Context(), annLease); sandbox.CodeOf(err) != sandbox.NotFound {
			w.Errorf("it left a lease behind: %v", err)
		}
		l := w.acquire(ann)
		if l.Generation != 1 || l.Attempts != 0 || l.LastError != "" {
			w.Errorf("%+v", l)
		}
		if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			w.Fatal(err)
		}
		_, err = b.Wake(w.Context(), sandbox.LeaseRef{ID: annLease})
		w.refused("waking through the other replica", err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
		_, err = b.Release(w.Context(), sandbox.LeaseRef{ID: annLease})
		w.refused("releasing through the other replica", err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
		if l := w.lease(annLease); l.Status != sandbox.LeaseExpired || l.Attempts != 0 || l.LastError != "" {
			w.Errorf("it is %s after %d attempts (%s)", l.Status, l.Attempts, l.LastError)
		}
		w.startLoop()
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByRelease)
	})
}

func TestTwoExecutorsOfOneKindAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		e, err := leasing.New(leasing.Config{
			Store:     w.store,
			Executors: []driver.Executor{w.backend, fake.New("engine-2", nil)},
		})
		if err == nil {
			err = e.Close()
		}
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "docker") {
			w.Errorf("two engines: %v", err)
		}
	})
}

// replica returns a service on the world's ledger with its own engine.
func (w *world) replica(instance string) (e *leasing.Service, end func()) {
	w.Helper()
	e, err := leasing.New(leasing.Config{
		Store:     w.store,
		Executors: []driver.Executor{fake.New(instance, nil)},
		Version:   "test",
	})
	if err != nil {
		w.Fatal(err)
	}
	return e, func() {
		if err := e.Close(); err != nil {
			w.Error(err)
		}
	}
}

// execute changes an embedded ledger behind the program's back.
func execute(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// waiting counts calls, and makes them wait until hold is closed.
func waiting(hold <-chan struct{}, count func()) func(context.Context) error {
	return func(ctx context.Context) error {
		count()
		select {
		case <-hold:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
