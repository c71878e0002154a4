package leasing_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestTheSnapshotOfADeadAgentIsRestoredInTheNextGeneration(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept(never))
		first := w.acquire(ann)
		w.write(annLease, "the dragon sleeps")
		w.die()
		next := w.acquire(ann) // it waits for the save
		if next.Generation != 2 {
			t.Fatalf("generation %d", next.Generation)
		}
		w.remembers(next, "the dragon sleeps")
		if from := next.Snapshot.RestoredFrom; from == nil || from.SandboxID != first.SandboxID || from.Generation != 1 {
			t.Errorf("restored from %+v", from)
		}
		later(time.Second)
		if _, ok := w.backend.Sandboxes()[first.SandboxID]; ok {
			t.Error("the first sandbox is left")
		}
	})
}

func TestASnapshotIsSavedAndRestoredWithoutALoop(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(kept())
		w.acquire(ann)
		w.write(annLease, "one")
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			t.Fatal(err)
		}
		second := w.acquire(ann)
		w.remembers(second, "one")
		w.write(annLease, "two")
		later(25 * time.Hour) // its ttl passes, and no loop records it
		w.remembers(w.acquire(ann), "two")
	})
}

func TestTheFirstGenerationBeginsWithTheInitialDataAndEachWithTheSkills(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		seed := func(prompt string) func(p *sandbox.PutEnvironment) {
			return func(p *sandbox.PutEnvironment) {
				kept()(p)
				p.InitialData = map[string]string{"memory/story.md": "once upon a time", "character.json": "{}"}
				p.Skills = map[string]string{"trade": prompt}
			}
		}
		w.environment(seed("buy low"))
		w.remembers(w.acquire(ann), "once upon a time")
		w.write(annLease, "a dragon came")
		w.die()
		w.environment(seed("sell high"))
		second := w.acquire(ann)
		w.remembers(second, "a dragon came")
		if got, _ := w.backend.FileOf(second.SandboxID, "/data/skills/trade/prompt.md"); got != "sell high" {
			t.Errorf("the skill's prompt is %q", got)
		}
		for _, dir := range sandbox.DataLayout {
			if _, ok := w.backend.FileOf(second.SandboxID, "/data/"+dir); !ok {
				t.Errorf("there is no %s", dir)
			}
		}
	})
}

func TestNothingRunsOnceTheLeaseHasEnded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept())
		l := w.acquire(ann)
		w.bucket.fail(bucketDown)
		w.die()
		later(20 * time.Minute)
		w.wantFrozen(l)
		ended := w.lease(annLease)
		w.want(ended, sandbox.LeaseExpired, sandbox.EndedByCondition)
		if st := ended.Snapshot; st.Error == "" || st.FailingSince.IsZero() || st.GivesUpAt.IsZero() ||
			st.Role != sandbox.RoleHolder {
			t.Errorf("the lease does not say what it waits for: %+v", st)
		}
		if n := w.count(l.SandboxID, sandbox.EventSnapshotSaveFailed); n != 1 {
			t.Errorf("%d events tell that it could not be saved, want 1", n)
		}
		costs, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if costs.Total.AsleepSeconds < 1100 {
			t.Errorf("the kept sandbox was asleep for %v s, want its 20 minutes accounted", costs.Total.AsleepSeconds)
		}
	})
}

// sleepsUnsaved returns ann's lease, whose sandbox sleeps and cannot be saved.
func (w *world) sleepsUnsaved() sandbox.Lease {
	w.Helper()
	w.startLoop()
	w.environment(kept())
	l := w.acquire(ann)
	if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
		w.Fatal(err)
	}
	w.bucket.fail(bucketDown)
	return l
}

func (w *world) wantFrozen(l sandbox.Lease) {
	w.Helper()
	if s := w.backend.Sandboxes()[l.SandboxID].State; s != sandbox.StatePaused {
		w.Errorf("it is %s while its state cannot be saved, want it frozen", s)
	}
}

// TestNothingRunsAfterAWakeWithoutAnAnswer: the sandbox may run although the ledger says that it sleeps.
func TestNothingRunsAfterAWakeWithoutAnAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.sleepsUnsaved()
		w.backend.Fault(fake.OpWake, func(ctx context.Context) error {
			w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.State = sandbox.StateRunning })
			<-ctx.Done()
			return sandbox.Errorf(sandbox.UnknownOutcome, "wake: %w", ctx.Err())
		})
		waking := make(chan error, 1)
		go func() {
			_, err := w.engine.Wake(w.Context(), sandbox.LeaseRef{ID: annLease})
			waking <- err
		}()
		later(time.Second)
		w.die()
		if err := <-waking; sandbox.CodeOf(err) != sandbox.LeaseEnded {
			t.Errorf("the wake ends with %v", err)
		}
		later(20 * time.Minute)
		w.wantFrozen(l)
	})
}

// TestNothingRunsAfterAWakeThatFailedBeforeTheEnd: the ledger says that the sandbox sleeps, and nothing corrects it
// before the lease ends.
func TestNothingRunsAfterAWakeThatFailedBeforeTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.sleepsUnsaved()
		w.backend.Fault(fake.OpWake, func(context.Context) error {
			w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.State = sandbox.StateRunning })
			time.Sleep(time.Second) //nolint:forbidigo // the event of the change finds a step at work
			return sandbox.Errorf(sandbox.UnknownOutcome, "the answer to the wake was lost")
		})
		if _, err := w.engine.Wake(w.Context(), sandbox.LeaseRef{ID: annLease}); err == nil {
			t.Error("the wake is done")
		}
		w.die()
		later(20 * time.Minute)
		w.wantFrozen(l)
	})
}

// TestAnEndedLeaseThatCannotBeFrozenIsStopped: nothing runs on because an engine refuses to freeze.
func TestAnEndedLeaseThatCannotBeFrozenIsStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		refuses int32 // the number of freezes and stops that fail
		with    error
	}{
		"refused":   {1, sandbox.Errorf(sandbox.Failed, "unable to freeze")},
		"no answer": {2, sandbox.Errorf(sandbox.Timeout, "the engine does not answer")},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.startLoop()
				w.environment(kept(never))
				l := w.acquire(ann)
				w.write(annLease, "kept")
				w.bucket.fail(bucketDown)
				var asked atomic.Int32
				w.backend.Fault(fake.OpSleep, func(context.Context) error {
					if asked.Add(1) <= tc.refuses {
						return tc.with
					}
					return nil
				})
				w.die()
				later(time.Minute)
				if s := w.backend.Sandboxes()[l.SandboxID].State; s != sandbox.StateStopped {
					t.Errorf("it is %s while its state cannot be saved, want it stopped", s)
				}
				w.bucket.fault(nil)
				later(time.Minute)
				w.remembers(w.acquire(ann), "kept")
			})
		})
	}
}

// TestAStateThatCannotBeReadIsGivenUpInTime: only a backend that is away is waited for without an end.
func TestAStateThatCannotBeReadIsGivenUpInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		isAway bool
		gone   bool
	}{
		"by a backend that answers": {false, true},
		"by one that is away":       {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.startLoop()
				w.environment(kept(never, func(s *sandbox.SnapshotSpec) { s.RetryFor = sandbox.Duration(2 * time.Hour) }))
				l := w.acquire(ann)
				w.write(annLease, "lost")
				w.backend.Fault(fake.OpExport, func(ctx context.Context) error {
					if !tc.isAway {
						<-ctx.Done()
					}
					return sandbox.Errorf(sandbox.Unavailable, "the stream broke")
				})
				w.die()
				later(time.Minute)
				if tc.isAway {
					w.backend.Fail(fake.OpInstance, away)
				}
				later(2*time.Hour + 30*time.Minute)
				if _, there := w.backend.Sandboxes()[l.SandboxID]; there == tc.gone {
					t.Errorf("is it there after two hours and a half? %t", there)
				}
				if lost := w.count(l.SandboxID, sandbox.EventSnapshotLost); lost > 0 != tc.gone {
					t.Errorf("%d events tell of its loss", lost)
				}
			})
		})
	}
}

func TestAFailedLastSaveIsRetriedWhenTheBucketIsBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept(never))
		l := w.acquire(ann)
		w.write(annLease, "kept")
		w.bucket.fail(bucketDown)
		w.die()
		later(time.Hour)
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		if sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), bucketDown.Message) {
			t.Errorf("acquiring while the last state cannot be saved: %v", err)
		}
		if next := w.lease(annLease); next.Status != sandbox.LeasePending || next.Snapshot.Role != sandbox.RoleWaiting {
			t.Errorf("the next generation is %s, %+v", next.Status, next.Snapshot)
		}
		w.bucket.fault(nil)
		later(31 * time.Second)
		if n := w.count(l.SandboxID, sandbox.EventSnapshotSaved); n != 1 {
			t.Errorf("it was saved %d times, want once", n)
		}
		w.remembers(w.acquire(ann), "kept")
	})
}

func TestASnapshotThatCanNeverBeSavedIsGivenUpAsTheEnvironmentSays(t *testing.T) {
	for name, tc := range map[string]struct {
		spec  func(s *sandbox.SnapshotSpec)
		stays time.Duration
	}{
		"Retry": {func(s *sandbox.SnapshotSpec) { s.RetryFor = sandbox.Duration(2 * time.Hour) },
			2*time.Hour - time.Minute},
		"Discard": {discard, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.startLoop()
				w.environment(kept(never, tc.spec))
				first := w.acquire(ann)
				w.write(annLease, "saved")
				w.die()
				l := w.acquire(ann)
				w.write(annLease, "lost")
				w.bucket.fail(bucketDown)
				w.die()
				later(tc.stays)
				w.want(w.lease(annLease), sandbox.LeaseExpired, sandbox.EndedByCondition)
				later(2 * time.Minute)
				ended := w.lease(annLease)
				w.want(ended, sandbox.LeaseDestroyed, sandbox.EndedByCondition)
				if ended.Snapshot.Role != sandbox.RoleLost || !strings.Contains(ended.Snapshot.Error, bucketDown.Message) {
					t.Errorf("the lease does not say what was lost: %+v", ended.Snapshot)
				}
				if n := w.count(l.SandboxID, sandbox.EventSnapshotLost); n != 1 {
					t.Errorf("%d events tell of the loss, want 1", n)
				}
				w.bucket.fault(nil)
				next := w.acquire(ann)
				w.remembers(next, "saved")
				if next.Snapshot.RestoredFrom.SandboxID != first.SandboxID {
					t.Errorf("restored from %+v", next.Snapshot.RestoredFrom)
				}
			})
		})
	}
}

func TestCheckpointSurvivesACrash(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept())
		l := w.acquire(ann)
		w.write(annLease, "one")
		later(time.Minute)
		w.write(annLease, "two") // within a minute of the last checkpoint
		later(time.Minute)
		if s := w.lease(annLease).Snapshot; s.SavedAt.IsZero() || !s.UnsavedSince.IsZero() {
			t.Errorf("after a minute: %+v", s)
		}
		w.backend.Remove(l.SandboxID)
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByVanished)
		w.remembers(w.acquire(ann), "two")
	})
}

func TestCheckpointsKeepTheirPaceAndAreOnlyOfChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept(), func(p *sandbox.PutEnvironment) { p.SleepAfter = new(sandbox.Duration) })
		l := w.acquire(ann)
		for range 100 {
			w.exec(annLease, "exit", "0")
			later(6 * time.Second)
		}
		if n := w.count(l.SandboxID, sandbox.EventSnapshotSaved); n < 10 || n > 12 {
			t.Errorf("%d checkpoints in 10 busy minutes, want one a minute", n)
		}
		later(time.Minute)
		n := w.count(l.SandboxID, sandbox.EventSnapshotSaved)
		later(20 * time.Minute)
		if idle := w.count(l.SandboxID, sandbox.EventSnapshotSaved) - n; idle != 0 {
			t.Errorf("%d checkpoints in 20 minutes without a command", idle)
		}
		later(15 * time.Minute)
		if names := w.bucket.names(); len(names) != 1 {
			t.Errorf("%d objects are kept, want the last one only", len(names))
		}
	})
}

func TestAFailedCheckpointEndsNoLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept(), func(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop })
		l := w.acquire(ann)
		w.bucket.fail(bucketDown)
		w.write(annLease, "one")
		later(30 * time.Minute)
		now := w.lease(annLease)
		w.want(now, sandbox.LeaseActive, "")
		if now.Phase != sandbox.PhaseAsleep || now.Snapshot.Error == "" || now.Attempts != 0 {
			t.Errorf("it is %s, %+v", now.Phase, now.Snapshot)
		}
		if n := w.count(l.SandboxID, sandbox.EventSnapshotSaveFailed); n != 1 {
			t.Errorf("%d events tell that it could not be saved, want 1", n)
		}
		w.exec(annLease, "echo", "still here")
		w.bucket.fault(nil)
		later(time.Minute)
		if s := w.lease(annLease).Snapshot; s.Error != "" || s.SavedAt.IsZero() {
			t.Errorf("once the bucket is back: %+v", s)
		}
	})
}

func TestDataThatIsTooLargeIsReportedOnceAndSavedUnderALargerLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept(func(s *sandbox.SnapshotSpec) { s.SizeLimitMB = 1 }))
		l := w.acquire(ann)
		w.write(annLease, strings.Repeat("la", 1<<20))
		later(10 * time.Minute)
		w.die()
		later(2 * time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseExpired, sandbox.EndedByCondition)
		if n := w.count(l.SandboxID, sandbox.EventSnapshotSaveFailed); n != 2 {
			t.Errorf("%d events tell that it could not be saved, want one of the checkpoint and one of the end", n)
		}
		w.environment(kept(func(s *sandbox.SnapshotSpec) { s.SizeLimitMB = 4 }))
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		w.remembers(w.acquire(ann), strings.Repeat("la", 1<<20))
	})
}

func TestUseDoesNotWaitForACheckpointsUpload(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept())
		l := w.acquire(ann)
		healed := make(chan struct{})
		w.bucket.fault(func(context.Context) error { <-healed; return nil })
		w.write(annLease, "one")
		synctest.Wait() // the checkpoint uploads
		began := time.Now()
		w.exec(annLease, "echo", "hello")
		if waited := time.Since(began); waited > 0 {
			t.Errorf("a command waited %v", waited)
		}
		w.write(annLease, "two")
		w.bucket.fault(nil)
		close(healed)
		later(2 * time.Minute)
		w.backend.Remove(l.SandboxID)
		later(time.Second)
		w.remembers(w.acquire(ann), "two") // the next checkpoint saves the changes during the upload
	})
}

// An executor keeps the start of a command and a freeze apart only within one process.
func TestSandboxIsNotFrozenWhileAnotherReplicaMayStartACommandInIt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept())
		l := w.acquire(ann)
		other := w.newEngine(w.store)
		running := make(chan error, 1)
		command := func() {
			_, err := other.Exec(w.Context(), sandbox.LeaseRef{ID: annLease},
				sandbox.ExecRequest{Command: []string{"sleep", "5m"}, Timeout: sandbox.Duration(time.Hour)})
			running <- err
		}
		go command()
		synctest.Wait()
		w.write(annLease, "one")
		later(4 * time.Minute)
		if n := w.count(l.SandboxID, sandbox.EventSnapshotSaved); n != 0 {
			t.Errorf("it was saved %d times while another replica's command ran", n)
		}
		later(2 * time.Minute)
		if n := w.count(l.SandboxID, sandbox.EventSnapshotSaved); n == 0 {
			t.Error("it was not saved when the command had ended")
		}
		if err := <-running; err != nil {
			t.Error(err)
		}
		go command()
		synctest.Wait()
		w.die()
		later(3 * time.Second)
		if s := w.backend.Sandboxes()[l.SandboxID].State; s != sandbox.StateRunning {
			t.Errorf("3 seconds after its end, with a command of another replica, it is %q", s)
		}
		later(4 * time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		if err := <-running; err != nil { // it may end on its own, or with its sandbox
			t.Logf("the command ended with: %v", err)
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestStopSavesBeforeMemoryIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept(never), func(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop })
		l := w.acquire(ann)
		w.write(annLease, "asleep")
		later(5*time.Minute + time.Second)
		if p := w.lease(annLease).Phase; p != sandbox.PhaseAsleep {
			t.Fatalf("phase %s", p)
		}
		w.backend.Remove(l.SandboxID)
		later(time.Minute)
		w.remembers(w.acquire(ann), "asleep")
		w.write(annLease, "by request")
		slept, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: annLease})
		if err != nil || slept.Phase != sandbox.PhaseAsleep {
			t.Fatalf("%s, %v", slept.Phase, err)
		}
		w.backend.Remove(slept.SandboxID)
		later(time.Minute)
		w.remembers(w.acquire(ann), "by request")
	})
}

func TestStoppedSandboxIsSavedAtItsEnd(t *testing.T) {
	for name, stop := range map[string]func(w *world, l sandbox.Lease){
		"AtItsDeadline": func(w *world, _ sandbox.Lease) { later(time.Hour) },
		"ByACrash": func(w *world, _ sandbox.Lease) {
			later(time.Minute)
			w.backend.Fail(fake.OpWake, sandbox.Errorf(sandbox.Failed, "it does not start again"))
		},
		"AsleepByStop": func(w *world, l sandbox.Lease) {
			if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
				w.Fatal(err)
			}
			w.backend.PutFile(l.SandboxID, story, "written last")
			w.die()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment(kept(never), func(p *sandbox.PutEnvironment) {
					p.SleepMode, p.MaxLifetime, p.SleepAfter = sandbox.SleepStop, sandbox.Duration(time.Hour), new(sandbox.Duration)
				})
				l := w.acquire(ann)
				w.backend.PutFile(l.SandboxID, story, "written last")
				stop(w, l)
				w.backend.Change(l.SandboxID, func(o *driver.Observation) {
					o.State, o.ExitCode, o.StoppedAt = sandbox.StateStopped, 137, time.Now()
				})
				w.startLoop()
				later(6 * time.Minute) // a crash is final after five
				want := sandbox.LeaseDestroyed
				if name == "ByACrash" { // it is kept for a post-mortem
					want = sandbox.LeaseExpired
				}
				if s := w.lease(annLease).Status; s != want {
					w.Fatalf("the lease is %s, want %s", s, want)
				}
				w.remembers(w.acquire(ann), "written last")
			})
		})
	}
}

func TestProcessThatDiesDuringACheckpointLeavesNothingFrozen(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(kept())
		l := w.acquire(ann)
		w.write(annLease, "one")
		ctx, cancel := context.WithCancel(context.Background())
		hung := w.newEngine(w.store)
		w.backend.Fault(fake.OpExport, func(context.Context) error {
			w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.State = sandbox.StatePaused })
			<-ctx.Done()
			return away
		})
		go func() { _ = hung.Work(ctx, l.SandboxID) }()
		synctest.Wait()
		closed := make(chan struct{})
		go func() { _ = hung.Close(); close(closed) }()
		w.backend.Fault(fake.OpExport, nil)
		w.exec(annLease, "echo", "hello") // it waits until the claim has expired, and thaws the sandbox
		w.startLoop()
		later(time.Minute)
		now := w.lease(annLease)
		w.want(now, sandbox.LeaseActive, "")
		if now.Phase != sandbox.PhaseAwake || len(now.Drift) > 0 || now.Snapshot.SavedAt.IsZero() {
			t.Errorf("it is %s with findings %+v, %+v", now.Phase, now.Drift, now.Snapshot)
		}
		cancel()
		<-closed
	})
}

func TestLateSaveOfAnOlderGenerationReplacesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(kept(never))
		w.acquire(ann)
		w.write(annLease, "one")
		released := make(chan struct{})
		hung := w.newEngine(w.store)
		w.bucket.fault(func(context.Context) error { <-released; return nil })
		go func() { _, _ = hung.Release(context.Background(), sandbox.LeaseRef{ID: annLease}) }()
		synctest.Wait() // it has read generation 1 and hangs in the upload
		closed := make(chan struct{})
		go func() { _ = hung.Close(); close(closed) }()
		w.bucket.fault(nil)
		w.startLoop()
		later(10 * time.Second)
		second := w.acquire(ann)
		w.remembers(second, "one")
		w.write(annLease, "two")
		w.die()
		later(time.Second)
		close(released) // now generation 1's first save ends
		<-closed
		later(time.Second)
		w.remembers(w.acquire(ann), "two")
		later(2 * time.Hour)
		if names := w.bucket.names(); len(names) != 1 {
			t.Errorf("%d objects are left, want the current one: %v", len(names), names)
		}
	})
}

func TestTwoLeasesOfOneAgentNeverSaveOneSnapshot(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		agents := func(s *sandbox.SnapshotSpec) { s.Scope = sandbox.ScopeAgent }
		w.environment(kept(agents))
		w.environment(kept(agents), func(p *sandbox.PutEnvironment) { p.ID = "other" })
		first := w.acquire(ann)
		w.write(annLease, "of the first game")
		later(time.Minute)
		other := sandbox.LeaseID(ann, "other")
		a, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: "other", Owner: "test"})
		if err != nil {
			t.Fatal(err)
		}
		w.remembers(a.Lease, "of the first game")
		if a.Lease.Snapshot.Role != sandbox.RoleCopy || first.Snapshot.Role != sandbox.RoleHolder {
			t.Errorf("roles %s and %s", first.Snapshot.Role, a.Lease.Snapshot.Role)
		}
		if n := w.count(a.Lease.SandboxID, sandbox.EventSnapshotCopied); n != 1 {
			t.Errorf("%d events tell that it is a copy, want 1", n)
		}
		w.write(other, "of the copy")
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: other}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			t.Fatal(err)
		}
		if a, err = w.engine.Acquire(w.Context(),
			sandbox.Acquire{AgentDID: ann, EnvironmentID: "other", Owner: "test"}); err != nil {
			t.Fatal(err)
		}
		w.remembers(a.Lease, "of the first game")
		if a.Lease.Snapshot.Role != sandbox.RoleHolder {
			t.Errorf("alone it is %s, want the holder", a.Lease.Snapshot.Role)
		}
	})
}

func TestALeaseWhoseSnapshotIsMissingOrBrokenNeverBeginsEmpty(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept(never))
		w.acquire(ann)
		w.write(annLease, "one")
		w.die()
		later(time.Second)
		w.bucket.fail(bucketDown)
		acquire := sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"}
		if _, err := w.engine.Acquire(w.Context(), acquire); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("acquiring while the bucket is down: %v", err)
		}
		w.want(w.lease(annLease), sandbox.LeasePending, "")
		w.bucket.fault(nil)
		later(31 * time.Second)
		w.remembers(w.lease(annLease), "one")
		w.die()
		later(time.Second)
		for _, object := range w.bucket.names() {
			if err := w.bucket.Store.Delete(w.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if _, err := w.engine.Acquire(w.Context(), acquire); sandbox.CodeOf(err) != sandbox.Failed {
				t.Errorf("acquiring without the saved object: %v", err)
			}
			later(time.Second)
			w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByFailed)
		}
	})
}

func TestASandboxOfAPoolGetsTheSnapshotOfItsAgent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resync = time.Hour
		w.startLoop()
		w.environment(kept(), func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 2} })
		later(time.Second)
		first := w.acquire(ann)
		w.write(annLease, "one")
		w.die()
		next := w.acquire(ann)
		w.remembers(next, "one")
		w.remembers(w.acquire(bob), "")
		if w.count(first.SandboxID, sandbox.EventSnapshotSaved) == 0 {
			t.Error("the first one was not saved")
		}
		later(25 * time.Hour) // all end, and the pool is created again
		if n := len(w.bucket.names()); n != 2 {
			t.Errorf("%d objects, want those of two agents: a pool saves nothing", n)
		}
	})
}

func TestAStoreThatHangsDelaysNothingElse(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept(never))
		for i := range 30 {
			w.acquire("did:plc:a" + string(rune('a'+i%26)) + string(rune('a'+i/26)))
		}
		w.environment(func(p *sandbox.PutEnvironment) { p.ID = "other"; p.Type = sandbox.TypeRPG })
		a, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: "other", Owner: "test"})
		if err != nil {
			t.Fatal(err)
		}
		heal := w.bucket.stall()
		later(time.Second)
		w.condition("game.finished", "") // 30 saves hang
		later(time.Second)
		w.n++
		if _, err := w.engine.Deliver(w.Context(), sandbox.Delivery{
			ID:   "other",
			Body: []byte("x"),
			Condition: sandbox.Condition{Type: "agent.death",
				Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: "other", AgentDID: ann}},
		}); err != nil {
			t.Fatal(err)
		}
		later(time.Second)
		w.want(w.lease(a.Lease.ID), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		heal()
		later(time.Minute)
		if n := len(w.backend.Sandboxes()); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
}
