package leasing_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var away = sandbox.Errorf(sandbox.Unavailable, "the engine is stopped")

func TestFailedDestroyStaysVisibleAndIsRetried(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		w.acquire(ann)
		later(time.Second)
		w.backend.Fail(fake.OpKill, away)
		w.condition("game.finished", "")
		later(time.Hour)
		l := w.lease(annLease)
		w.want(l, sandbox.LeaseExpired, sandbox.EndedByCondition)
		if l.Attempts < 100 || l.LastError == "" {
			t.Errorf("%d attempts in an hour (last error %q), want one at least every 30 s", l.Attempts, l.LastError)
		}
		w.backend.Fail(fake.OpKill, nil)
		later(31 * time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
	})
}

func TestReconnectRetriesAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		w.acquire(ann)
		later(time.Second)
		for _, op := range []fake.Op{fake.OpKill, fake.OpInspect, fake.OpList, fake.OpInstance} {
			w.backend.Fail(op, away)
		}
		w.backend.Disconnect()
		later(time.Second)
		w.condition("game.finished", "")
		later(10 * time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseExpired, sandbox.EndedByCondition)
		for _, op := range []fake.Op{fake.OpKill, fake.OpInspect, fake.OpList, fake.OpInstance} {
			w.backend.Fail(op, nil)
		}
		later(1100 * time.Millisecond)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
	})
}

func TestAnotherInstanceAnsweringChangesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		w.acquire(ann)
		later(time.Second)
		w.backend.BecomeInstance("engine-2")
		w.backend.Disconnect()
		later(time.Hour)
		if _, err := w.engine.ObserveLease(w.Context(), annLease); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("observing through another instance: %v", err)
		}
		w.condition("game.finished", "")
		later(time.Hour)
		w.want(w.lease(annLease), sandbox.LeaseExpired, sandbox.EndedByCondition)
		w.backend.BecomeInstance("engine-1")
		w.backend.Disconnect()
		later(2 * time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
	})
}

func TestClaimOfADeadProcessIsTakenOver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		later(time.Second)
		// A process claims the kill and dies: its call never answers and its heartbeat ends.
		ctx, cancel := context.WithCancel(context.Background())
		hung := w.newEngine(w.store)
		w.backend.Fault(fake.OpKill, func(context.Context) error { <-ctx.Done(); return away })
		go func() { _, _ = hung.Release(ctx, sandbox.LeaseRef{ID: annLease}) }()
		synctest.Wait()
		closed := make(chan struct{})
		go func() { _ = hung.Close(); close(closed) }()
		synctest.Wait()
		w.want(w.lease(annLease), sandbox.LeaseExpired, sandbox.EndedByRelease)

		w.backend.Fault(fake.OpKill, nil)
		w.startLoop()
		later(10 * time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByRelease)

		before := w.lease(annLease)
		cancel() // the dead process's answer arrives late, with a failure
		<-closed
		later(time.Second)
		if after := w.lease(annLease); after.LastSequence != before.LastSequence || after.Attempts != 0 {
			t.Errorf("a late answer changed the lease: %+v", after)
		}
	})
}

func TestAcceptedLeaseGetsReadyWhenTheProcessThatAcceptedItDies(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		dead := make(chan struct{})
		accepting := w.newEngine(w.store)
		w.backend.Fault(fake.OpSpawn, func(context.Context) error { <-dead; return away })
		got, err := accepting.Acquire(w.Context(),
			sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test", NoWait: true})
		if err != nil || !got.IsNew {
			t.Fatalf("accepted %+v, %v", got, err)
		}
		w.want(got.Lease, sandbox.LeasePending, "")
		synctest.Wait()
		closed := make(chan struct{})
		go func() { _ = accepting.Close(); close(closed) }() // its claim is no longer extended
		synctest.Wait()

		w.backend.Fault(fake.OpSpawn, nil)
		w.startLoop()
		later(10 * time.Second)
		l := w.lease(annLease)
		w.want(l, sandbox.LeaseActive, "")
		if l.SandboxID != got.Lease.SandboxID || w.backend.Spawned(l.SandboxID) != 1 {
			t.Errorf("%s was accepted and %s is ready, made %d times",
				got.Lease.SandboxID, l.SandboxID, w.backend.Spawned(l.SandboxID))
		}
		close(dead)
		<-closed
	})
}

// TestALeaseWaitsForRoom: a backend without room for a sandbox now may have room later.
func TestALeaseWaitsForRoom(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		full := sandbox.Errorf(sandbox.CapacityExceeded, "no container instance can be provided")
		w.backend.Fail(fake.OpSpawn, full)
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		if sandbox.CodeOf(err) != sandbox.CapacityExceeded {
			w.Fatalf("an acquire without room: %v", err)
		}
		later(10 * time.Minute)
		waits := w.lease(annLease)
		if w.want(waits, sandbox.LeasePending, ""); !strings.Contains(waits.LastError, full.Message) {
			w.Errorf("while it waits it says %q", waits.LastError)
		}
		w.backend.Fail(fake.OpSpawn, nil)
		later(31 * time.Second)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		if n := w.backend.Spawned(waits.SandboxID); n != 1 {
			w.Errorf("it was made %d times", n)
		}

		ref := sandbox.LeaseRef{ID: annLease}
		if _, err := w.engine.Sleep(w.Context(), ref); err != nil {
			w.Fatal(err)
		}
		w.backend.Fail(fake.OpWake, full)
		if _, err := w.engine.Exec(w.Context(), ref,
			sandbox.ExecRequest{Command: []string{"echo"}}); sandbox.CodeOf(err) != sandbox.CapacityExceeded {
			w.Fatalf("a command without room: %v", err)
		}
		w.backend.Fail(fake.OpWake, nil)
		w.exec(annLease, "echo")
		w.findings()
	})
}

func TestAnAcquireThatDoesNotWaitGetsASandboxWhenThePoolFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 1} })
		later(10 * time.Second)
		w.backend.Fail(fake.OpAssign, sandbox.Errorf(sandbox.Failed, "it was broken"))
		if _, err := w.engine.Acquire(w.Context(),
			sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test", NoWait: true}); err != nil {
			t.Fatal(err)
		}
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
	})
}

func TestSpawnWhoseAnswerWasLostIsFoundAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		lost := true
		w.backend.Fault(fake.OpInspect, nil)
		w.backend.Fault(fake.OpSpawn, func(context.Context) error {
			if lost {
				lost = false
				return sandbox.Errorf(sandbox.UnknownOutcome, "the connection broke")
			}
			return nil
		})
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		if sandbox.CodeOf(err) != sandbox.UnknownOutcome {
			t.Fatalf("first acquire: %v", err)
		}
		w.want(w.lease(annLease), sandbox.LeasePending, "")
		later(time.Second)
		l := w.acquire(ann)
		if l.Generation != 1 || w.backend.Spawned(l.SandboxID) != 1 {
			t.Errorf("generation %d, spawned %d times", l.Generation, w.backend.Spawned(l.SandboxID))
		}
	})
}

func TestSpawnThatFailsForGoodEndsTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		w.backend.Fail(fake.OpSpawn, sandbox.Errorf(sandbox.Failed, "exec format error"))
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		if sandbox.CodeOf(err) != sandbox.Failed {
			t.Fatalf("acquire: %v", err)
		}
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByFailed)
		w.backend.Fail(fake.OpSpawn, nil)
		if l := w.acquire(ann); l.Generation != 2 {
			t.Errorf("generation %d, want 2", l.Generation)
		}
	})
}

func TestAcquireContinuesWhileTheLastGenerationCannotBeDestroyed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		first := w.acquire(ann)
		later(time.Second)
		w.backend.Fault(fake.OpKill, func(context.Context) error { return away })
		w.condition("agent.death", ann)
		second := w.acquire(ann)
		if second.Generation != 2 || second.SandboxID == first.SandboxID {
			t.Fatalf("generation %d", second.Generation)
		}
		w.backend.Fault(fake.OpKill, nil)
		later(time.Minute)
		if _, ok := w.backend.Sandboxes()[first.SandboxID]; ok {
			t.Error("the first generation's sandbox is left")
		}
		if _, ok := w.backend.Sandboxes()[second.SandboxID]; !ok {
			t.Error("the second generation's sandbox is gone")
		}
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
	})
}

func TestVanishedSandboxIsAFindingAndEndsItsLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		l := w.acquire(ann)
		later(90 * time.Second)
		w.backend.Remove(l.SandboxID)
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByVanished)
		w.findings(sandbox.DriftVanished)
		report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if s := report.Total.AwakeSeconds; s < 60 || s > 90 {
			t.Errorf("usage of a vanished sandbox is %.0f s, want it to end when it was last seen", s)
		}
	})
}

func (w *world) findings(kinds ...sandbox.DriftKind) []sandbox.DriftFinding {
	w.Helper()
	found, err := w.engine.ListDrift(w.Context(), sandbox.DriftFilter{})
	if err != nil {
		w.Fatal(err)
	}
	if len(found) != len(kinds) {
		w.Fatalf("%d findings, want %v: %+v", len(found), kinds, found)
	}
	for i := range kinds {
		if found[i].Kind != kinds[i] {
			w.Fatalf("finding %d is %+v, want %s", i, found[i], kinds[i])
		}
	}
	return found
}

func TestChangedLimitIsAFindingUntilItIsAsExpectedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		l := w.acquire(ann)
		later(time.Second)
		w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.Resources.MemoryMB = 64 })
		later(time.Second)
		f := w.findings(sandbox.DriftChanged)[0]
		if f.Field != "memory_mb" || f.Expected != "512" || f.Observed != "64" || !f.ResolvedAt.IsZero() {
			t.Errorf("%+v", f)
		}
		if d := w.lease(annLease).Drift; len(d) != 1 {
			t.Errorf("the lease shows %d findings, want 1", len(d))
		}
		w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.Resources.MemoryMB = 512 })
		later(time.Second)
		if f := w.findings(sandbox.DriftChanged)[0]; f.ResolvedAt.IsZero() {
			t.Errorf("not resolved: %+v", f)
		}
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
	})
}

func TestEngineErrorsAreNoObservation(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		l := w.acquire(ann)
		later(time.Second)
		w.backend.Fail(fake.OpInspect, sandbox.Errorf(sandbox.Internal, "500"))
		w.backend.Disconnect()
		later(10 * time.Minute)
		w.findings()
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		if _, ok := w.backend.Sandboxes()[l.SandboxID]; !ok {
			t.Error("it was destroyed")
		}
	})
}

func TestAResyncThatFailsDelaysNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		w.acquire(ann)
		w.backend.Fail(fake.OpList, sandbox.Errorf(sandbox.Internal, "500"))
		later(35 * time.Second) // a resync has failed
		w.condition("game.finished", "")
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
	})
}

// A process puts a sandbox to sleep by request and dies before it can record that.
func TestASleepThatWasNotRecordedIsObserved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		l := w.acquire(ann)
		later(time.Second)
		ctx, cancel := context.WithCancel(context.Background())
		hung := w.newEngine(w.store)
		w.backend.Fault(fake.OpSleep, func(context.Context) error {
			w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.State = sandbox.StatePaused })
			<-ctx.Done()
			return away
		})
		go func() { _, _ = hung.Sleep(ctx, sandbox.LeaseRef{ID: annLease}) }()
		synctest.Wait()
		closed := make(chan struct{})
		go func() { _ = hung.Close(); close(closed) }()
		later(10 * time.Second) // its claim has run out
		seen, err := w.engine.ObserveLease(w.Context(), annLease)
		if err != nil {
			t.Fatal(err)
		}
		if seen.Phase != sandbox.PhaseAsleep {
			t.Errorf("phase %s, want it to be seen asleep", seen.Phase)
		}
		w.exec(annLease, "echo", "hello")
		cancel()
		<-closed
	})
}

// A caller repeats a request after Unavailable. A command must not run twice because of that.
func TestACommandThatRanIsNeverCalledUnavailable(t *testing.T) {
	for name, answer := range map[string]error{
		"Done":       nil,
		"AnswerLost": sandbox.Errorf(sandbox.UnknownOutcome, "the connection broke"),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment()
				w.acquire(ann)
				w.backend.Fault(fake.OpExec, func(context.Context) error { // the ledger becomes unavailable while the command runs
					if err := w.store.Close(); err != nil {
						w.Error(err)
					}
					return answer
				})
				_, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease}, sandbox.ExecRequest{Command: []string{"echo"}})
				if sandbox.CodeOf(err) != sandbox.UnknownOutcome {
					t.Errorf("%v (%s), want an unknown outcome", err, sandbox.CodeOf(err))
				}
			})
		})
	}
}
