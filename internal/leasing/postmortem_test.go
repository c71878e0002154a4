package leasing_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func keptFor(d time.Duration) func(p *sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) {
		keep := sandbox.Duration(d)
		p.PostMortem = &keep
	}
}

// failed creates an environment, and makes ann's sandbox there fail permanently. It returns her last lease.
func (w *world) failed(change ...func(p *sandbox.PutEnvironment)) sandbox.Lease {
	w.Helper()
	w.startLoop()
	w.environment(change...)
	l := w.acquire(ann)
	later(time.Minute)
	w.backend.Fail(fake.OpWake, sandbox.Errorf(sandbox.Failed, "it does not start"))
	w.crash(l.SandboxID, false)
	later(5*time.Minute + time.Second)
	w.backend.Fail(fake.OpWake, nil)
	return l
}

// exists returns the state of a sandbox on the backend, "" if it is not there.
func (w *world) exists(sandboxID string) sandbox.State { return w.backend.Sandboxes()[sandboxID].State }

func TestASandboxThatFailedIsKeptStoppedForAWhile(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.failed()
		kept := w.sandboxIs(sandbox.SandboxFailed, sandbox.ReasonCrashed)
		w.want(kept, sandbox.LeaseExpired, sandbox.EndedByCrashed)
		if until := kept.KeptUntil.Sub(kept.EndedAt); until != sandbox.DefaultPostMortem.D() || kept.ErrorMessage == "" ||
			w.exists(l.SandboxID) != sandbox.StateStopped {
			w.Errorf("it is kept for %s, %q, and is %q on its backend", until, kept.ErrorMessage, w.exists(l.SandboxID))
		}
		if _, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: l.ID},
			sandbox.ExecRequest{Command: []string{"echo"}}); sandbox.CodeOf(err) != sandbox.LeaseEnded {
			w.Errorf("a command in it: %v", err)
		}
		later(59 * time.Minute)
		w.want(w.sandboxIs(sandbox.SandboxFailed, sandbox.ReasonCrashed), sandbox.LeaseExpired, sandbox.EndedByCrashed)
		later(time.Minute)
		gone := w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonCrashed)
		if w.want(gone, sandbox.LeaseDestroyed, sandbox.EndedByCrashed); !gone.KeptUntil.IsZero() ||
			w.exists(l.SandboxID) != "" {
			w.Errorf("it is kept until %v, and is %q on its backend", gone.KeptUntil, w.exists(l.SandboxID))
		}
		told := w.told(l.SandboxID)
		if want := []sandbox.EventType{
			sandbox.EventFailed, sandbox.EventEnded, sandbox.EventDeleteRequested, sandbox.EventDeleted,
		}; !slices.Equal(told[len(told)-4:], want) {
			w.Errorf("its events end with %q, want %q", told[len(told)-4:], want)
		}
	})
}

func TestAKeptSandboxThatIsStartedIsStoppedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resync = 30 * time.Second
		l := w.failed()
		w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.State = sandbox.StateRunning })
		later(35 * time.Second)
		if is := w.exists(l.SandboxID); is != sandbox.StateStopped {
			w.Errorf("the sandbox that was started from outside is %q", is)
		}
		w.backend.Remove(l.SandboxID)
		later(35 * time.Second)
		w.want(w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonCrashed), sandbox.LeaseDestroyed, sandbox.EndedByCrashed)
	})
}

func TestASandboxThatCannotBeStoppedIsNotKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.backend.Fail(fake.OpSleep, sandbox.Errorf(sandbox.Failed, "it does not stop"))
		w.failed()
		w.want(w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonCrashed), sandbox.LeaseDestroyed, sandbox.EndedByCrashed)
	})
}

func TestAKeptSandboxDelaysNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.failed(func(p *sandbox.PutEnvironment) {
			p.Snapshot, p.InitialData = &sandbox.SnapshotSpec{}, map[string]string{"map": "gold"}
		})
		w.want(w.sandboxIs(sandbox.SandboxFailed, sandbox.ReasonCrashed), sandbox.LeaseExpired, sandbox.EndedByCrashed)
		next := w.acquire(ann)
		if text, _ := w.backend.FileOf(next.SandboxID, "/data/map"); next.Generation != 2 ||
			next.Snapshot.RestoredFrom == nil || text != "gold" {
			w.Errorf("the next generation is %d, with %q, restored from %+v", next.Generation, text, next.Snapshot.RestoredFrom)
		}
		if is := w.exists(first.SandboxID); is != sandbox.StateStopped {
			w.Errorf("the one that failed is %q", is)
		}
		ref := sandbox.LeaseRef{ID: annLease, Generation: 1, Owner: "somebody"}
		if _, err := w.engine.Release(w.Context(), ref); sandbox.ReasonOf(err) != sandbox.ReasonOtherOwner {
			w.Errorf("somebody else's release ended with %v", err)
		}
		ref.Owner = "test"
		gone, err := w.engine.Release(w.Context(), ref)
		if err != nil || gone.Generation != 1 || gone.Status != sandbox.LeaseDestroyed ||
			gone.EndedBy != sandbox.EndedByCrashed || w.exists(first.SandboxID) != "" {
			w.Errorf("released, it is %+v, %v", gone, err)
		}
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		if _, err := w.engine.Release(w.Context(), ref); sandbox.ReasonOf(err) != sandbox.ReasonOtherGeneration {
			w.Errorf("releasing it again ended with %v", err)
		}
	})
}

func TestAKeptSandboxIsRemovedEarlierWhen(t *testing.T) {
	for name, end := range map[string]func(w *world) error{
		"its generation is released": func(w *world) error {
			_, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease, Generation: 1})
			return err
		},
		"its environment is deleted": func(w *world) error {
			return w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game})
		},
		"the game ends": func(w *world) error {
			w.condition("game.finished", "")
			later(time.Second)
			return nil
		},
		"the cleanup TTL is over": func(w *world) error {
			later(2 * time.Hour)
			_, err := w.engine.Purge(w.Context(), 2*time.Hour)
			later(time.Second)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.failed(keptFor(700 * time.Hour))
				w.want(w.sandboxIs(sandbox.SandboxFailed, sandbox.ReasonCrashed), sandbox.LeaseExpired, sandbox.EndedByCrashed)
				if err := end(w); err != nil {
					w.Fatal(err)
				}
				w.want(w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonCrashed), sandbox.LeaseDestroyed, sandbox.EndedByCrashed)
			})
		})
	}
}

func TestCommandsAndSessionsEndWithAFailedSandbox(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		l := w.acquire(ann)
		w.session(sandbox.CreateSession{ID: "s"})
		x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "20h"}, Timeout: sandbox.Duration(23 * time.Hour)})
		later(time.Second)
		w.failed()
		if w.sandboxIs(sandbox.SandboxFailed, sandbox.ReasonCrashed); w.exists(l.SandboxID) != sandbox.StateStopped {
			w.Errorf("it is %q", w.exists(l.SandboxID))
		}
		w.wantExec(x.ID, sandbox.ExecFailed)
		s, err := w.engine.GetSession(w.Context(), sandbox.SessionRef{LeaseID: annLease, ID: "s"})
		if err != nil || s.State != sandbox.SessionClosed {
			w.Errorf("its session is %s: %v", s.State, err)
		}
	})
}

func TestAKeptSandboxCostsAsMuchAsASleepingOne(t *testing.T) {
	inWorld(t, func(w *world) {
		w.failed(keptFor(time.Hour))
		before, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
		if err != nil {
			w.Fatal(err)
		}
		later(30 * time.Minute)
		after, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
		if err != nil {
			w.Fatal(err)
		}
		if awake, asleep := after.Total.AwakeSeconds-before.Total.AwakeSeconds,
			after.Total.AsleepSeconds-before.Total.AsleepSeconds; awake != 0 || asleep != 1800 {
			w.Errorf("in half an hour it was counted awake for %v s and asleep for %v s", awake, asleep)
		}
	})
}

// TestACrashedSandboxThatAConditionEndsIsNotKept: an agent that dies while its sandbox is down leaves no sandbox to
// keep.
func TestACrashedSandboxThatAConditionEndsIsNotKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(rpgGame)
		l := w.acquire(ann)
		later(time.Minute)
		w.backend.Fault(fake.OpWake,
			func(context.Context) error { return sandbox.Errorf(sandbox.Failed, "it does not start") })
		w.crash(l.SandboxID, false)
		later(time.Minute)
		w.condition("agent.death", ann)
		later(time.Second)
		w.want(w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonCrashed), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
	})
}

func rpgGame(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG }

// TestAConditionOfTheMomentALeaseBeganLeavesAKeptSandbox: it belongs to the previous life, as for a live lease.
func TestAConditionOfTheMomentALeaseBeganLeavesAKeptSandbox(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.failed(rpgGame)
		for _, c := range []struct {
			at   time.Time
			left sandbox.State
		}{{l.LeasedAt, sandbox.StateStopped}, {l.LeasedAt.Add(time.Microsecond), ""}} {
			_, err := w.engine.Deliver(w.Context(), sandbox.Delivery{
				ID:   "m-" + string(c.left),
				Body: []byte(c.left),
				Condition: sandbox.Condition{
					Type: "agent.death", Timestamp: c.at, Data: sandbox.ConditionData{EnvironmentID: game, AgentDID: ann}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if later(time.Second); w.exists(l.SandboxID) != c.left {
				w.Errorf("after a condition %s after the lease it is %q, want %q",
					c.at.Sub(l.LeasedAt), w.exists(l.SandboxID), c.left)
			}
		}
	})
}

// TestAnotherInstanceDoesNotEndAPostMortem: that it has no such sandbox says nothing.
func TestAnotherInstanceDoesNotEndAPostMortem(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.failed(keptFor(time.Hour))
		kept := w.lease(annLease).KeptUntil
		w.backend.BecomeInstance("engine-2")
		w.backend.Disconnect()
		later(time.Second) // until the break is noticed
		w.backend.Fail(fake.OpInspect, sandbox.Errorf(sandbox.NotFound, "there is no such sandbox"))
		if err := w.engine.Look(w.Context(), l.SandboxID); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("looking through another instance: %v", err)
		}
		if got := w.lease(annLease).KeptUntil; kept.IsZero() || !got.Equal(kept) {
			t.Errorf("it was kept until %v, and is now until %v", kept, got)
		}
	})
}

// A generation that a condition names is the one it ends, whatever the sender's clock says.
func TestAConditionThatNamesAKeptGenerationRemovesIt(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.failed(func(p *sandbox.PutEnvironment) { p.ExpiryConditions = []string{"agent.death"} })
		_, err := w.engine.Deliver(w.Context(), sandbox.Delivery{ID: "named", Body: []byte("{}"), Source: "test",
			Condition: sandbox.Condition{Type: "agent.death", Timestamp: l.LeasedAt.Add(-time.Minute),
				Data: sandbox.ConditionData{EnvironmentID: game, AgentDID: ann, Generation: l.Generation}}})
		if err != nil {
			t.Fatal(err)
		}
		later(time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCrashed)
	})
}
