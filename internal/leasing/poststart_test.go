package leasing_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// begins makes an environment's sandboxes begin with commands, each given as one line.
func begins(lines ...string) func(p *sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) {
		for _, line := range lines {
			p.PostStart = append(p.PostStart,
				sandbox.PostStart{Command: strings.Fields(line), Timeout: sandbox.Duration(time.Hour)})
		}
	}
}

// acquireLater acquires ann's lease without a waiting caller.
func (w *world) acquireLater() sandbox.Lease {
	w.Helper()
	a, err := w.engine.Acquire(w.Context(),
		sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test", NoWait: true})
	if err != nil {
		w.Fatal(err)
	}
	return a.Lease
}

// told returns the types of a sandbox's events.
func (w *world) told(sandboxID string) (types []sandbox.EventType) {
	w.Helper()
	events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: sandboxID})
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range events {
		types = append(types, e.Type)
	}
	return types
}

func count[T comparable](all []T, one T) (n int) {
	for _, v := range all {
		if v == one {
			n++
		}
	}
	return n
}

func TestPostStartCommandsAreRunOnceInOrderBeforeALeaseIsReady(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withSecret, begins("echo first", "sleep 1m second"), func(p *sandbox.PutEnvironment) {
			p.SleepMode, p.InitialData = sandbox.SleepStop, map[string]string{"map": "gold"}
		})
		calls := 0
		w.backend.Fault(fake.OpExec, func(context.Context) error {
			if calls++; calls == 1 {
				return nil // this call fills /data
			}
			for id := range w.backend.Sandboxes() {
				w.wantSecret(id, secretValue)
				if text, _ := w.backend.FileOf(id, "/data/map"); text != "gold" {
					w.Errorf("when a command is run, /data has %q", text)
				}
			}
			return nil
		})
		l := w.acquire(ann)
		want := []sandbox.EventType{
			sandbox.EventAccepted, sandbox.EventPreparing, sandbox.EventExecStarted, sandbox.EventExecFinished,
			sandbox.EventExecStarted, sandbox.EventExecFinished, sandbox.EventReady,
		}
		if got := w.told(l.SandboxID); !slices.Equal(got, want) {
			w.Errorf("its events are %q, want %q", got, want)
		}
		if x := w.wantExec(sandbox.PostStartID(l.SandboxID, 1),
			sandbox.ExecFinished); x.StdoutBytes != int64(len("second")) || !x.Detached {
			w.Errorf("the second command is %+v", x)
		}
		if took := l.ReadyAt.Sub(l.LeasedAt); took != time.Minute {
			w.Errorf("it was ready after %s", took)
		}
		for range 2 {
			if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
				w.Fatal(err)
			}
			if _, err := w.engine.Wake(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
				w.Fatal(err)
			}
		}
		if n := count(w.told(l.SandboxID), sandbox.EventExecStarted); n != 2 {
			w.Errorf("after it was woken twice, %d commands were run", n)
		}
	})
}

func TestPostStartCommandsThatRunForLongAreUsage(t *testing.T) {
	for name, waits := range map[string]int64{"of its own": 0, "from a pool": 1} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.startLoop()
				w.environment(begins("sleep 2m"), func(p *sandbox.PutEnvironment) {
					p.SleepAfter = new(sandbox.Duration)
					if waits > 0 {
						p.WarmPool = &sandbox.WarmPool{Size: waits}
					}
				})
				later(time.Minute)
				w.acquire(ann)
				later(2 * time.Minute)
				costs, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
				if err != nil {
					w.Fatal(err)
				}
				if awake := costs.Total.AwakeSeconds; awake < 239 || awake > 250 { // time in the pool counts too
					w.Errorf("%v s are counted", awake)
				}
			})
		})
	}
}

// wantFailedStart checks that no lease begins, and the reason.
func (w *world) wantFailedStart(err error, why ...string) sandbox.Lease {
	w.Helper()
	if sandbox.CodeOf(err) != sandbox.Failed || sandbox.ReasonOf(err) != sandbox.ReasonPostStartFailed {
		w.Fatalf("the acquire ended with %v", err)
	}
	for _, text := range why {
		if !strings.Contains(err.Error(), text) {
			w.Errorf("the acquire does not say %q: %v", text, err)
		}
	}
	later(time.Second)
	l := w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonPostStartFailed)
	if w.want(l, sandbox.LeaseDestroyed, sandbox.EndedByFailed); !l.ReadyAt.IsZero() || len(w.backend.Sandboxes()) != 0 {
		w.Errorf("it was ready at %v, and %d sandboxes are left", l.ReadyAt, len(w.backend.Sandboxes()))
	}
	return l
}

func TestAPostStartCommandThatFailsFailsTheLease(t *testing.T) {
	for _, c := range []struct {
		second string
		limit  time.Duration
		why    []string
	}{
		{"exit 3 no such module: " + strings.Repeat("x", 9000) + " maps", time.Minute,
			[]string{`post_start[1] "exit" ended with`, "exit code 3", `xx maps"`, `run "sandbox command logs ` + ann + `::`}},
		{"sleep 1h", time.Minute,
			[]string{`post_start[1] "sleep" ran`, "ran out of its timeout of 1m0s", "wrote nothing to stderr"}},
		{"no-such-program", time.Minute, []string{"exit code 127"}},
	} {
		t.Run(strings.Fields(c.second)[0], func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.startLoop()
				w.environment(begins("echo", c.second, "echo never"), func(p *sandbox.PutEnvironment) {
					p.PostStart[1].Timeout = sandbox.Duration(c.limit)
				})
				_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
				l := w.wantFailedStart(err, c.why...)
				if n := count(w.told(l.SandboxID), sandbox.EventExecStarted); n != 2 {
					w.Errorf("%d commands were run", n)
				}
				w.wantExec(sandbox.PostStartID(l.SandboxID, 1), sandbox.ExecFinished)
				w.environment() // the repaired environment works in the next generation
				if next := w.acquire(ann); next.Generation != 2 {
					w.Errorf("the next generation is %d", next.Generation)
				}
			})
		})
	}
}

func TestAPostStartCommandThatIsCancelledFailsTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(begins("sleep 1h"))
		l := w.acquireLater()
		later(time.Minute)
		if _, err := w.engine.CancelExec(w.Context(),
			sandbox.ExecRef{LeaseID: l.ID, ID: sandbox.PostStartID(l.SandboxID, 0)}); err != nil {
			w.Fatal(err)
		}
		later(time.Second)
		w.want(w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonPostStartFailed), sandbox.LeaseDestroyed,
			sandbox.EndedByFailed)
	})
}

func TestALeaseThatEndsDoesNotWaitForItsPostStartCommands(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(begins("sleep 1h", "echo never"))
		l := w.acquireLater()
		later(time.Minute)
		w.condition("game.finished", "")
		later(2 * time.Second)
		w.want(w.lease(l.ID), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		w.wantExec(sandbox.PostStartID(l.SandboxID, 0), sandbox.ExecCancelled)
		if n := count(w.told(l.SandboxID), sandbox.EventExecStarted); n != 1 {
			w.Errorf("%d commands were run", n)
		}
	})
}

// TestAPostStartCommandOutlivesItsReconciler also makes the first process record a command and die before the sandbox
// receives it.
func TestAPostStartCommandOutlivesItsReconciler(t *testing.T) {
	for name, heard := range map[string]bool{"while a command runs": true, "before a command is started": false} {
		t.Run(name, func(t *testing.T) {
			twoProcesses(t, func(w, other *world) {
				w.environment(begins("echo first", "sleep 2m", "echo last"), func(p *sandbox.PutEnvironment) {
					p.InitialData = map[string]string{"map": "gold"}
				})
				if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
					w.Fatal(err)
				}
				calls := 0
				w.backend.Fault(fake.OpExec, func(ctx context.Context) error {
					if calls++; calls != 3 || heard { // the first call fills /data
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				})
				l := w.acquireLater()
				later(time.Minute)
				w.backend.PutFile(l.SandboxID, "/data/map", "silver") // as the first command might
				w.cutOff()
				other.startLoop()
				later(30 * time.Second)
				other.want(other.lease(annLease), sandbox.LeasePending, "")
				later(2 * time.Minute)
				other.want(other.lease(annLease), sandbox.LeaseActive, "")
				if told := other.told(l.SandboxID); count(told, sandbox.EventExecStarted) != 3 ||
					count(told, sandbox.EventExecFinished) != 3 {
					w.Errorf("its events are %q", told)
				}
				if got, _ := w.backend.FileOf(l.SandboxID, "/data/map"); got != "silver" {
					w.Errorf("the file of the first command is %q", got)
				}
				if x := other.wantExec(sandbox.PostStartID(l.SandboxID, 1), sandbox.ExecFinished); heard &&
					x.FinishedAt.Sub(x.StartedAt) > 130*time.Second {
					w.Errorf("the second command was run again: %+v", x)
				}
			})
		})
	}
}

func TestASandboxThatStopsUnderAPostStartCommandFailsTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(begins("sleep 1h"))
		l := w.acquireLater()
		later(time.Minute)
		h := driver.Handle{LedgerID: w.store.ID(), EnvironmentID: game, SandboxID: l.SandboxID, Instance: "engine-1"}
		if err := w.backend.Sleep(w.Context(), h, sandbox.SleepStop); err != nil {
			w.Fatal(err)
		}
		later(10 * time.Second)
		w.want(w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonPostStartFailed), sandbox.LeaseDestroyed,
			sandbox.EndedByFailed)
	})
}

func TestASandboxOfAPoolRunsItsPostStartCommandsForItsLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(begins("exit 1"), func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 1} })
		later(10 * time.Second)
		var waits string
		for waits = range w.backend.Sandboxes() {
		}
		if n := count(w.told(waits), sandbox.EventExecStarted); n != 0 || waits == "" {
			w.Fatalf("%d commands were run in the pool's sandbox %q", n, waits)
		}
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		if sandbox.ReasonOf(err) != sandbox.ReasonPostStartFailed {
			w.Fatalf("the acquire ended with %v", err)
		}
		if l := w.lease(annLease); l.Generation != 1 || l.SandboxID != waits {
			w.Errorf("a command that had failed was tried in another sandbox: %+v", l)
		}
		later(10 * time.Second)
		w.environment(begins("echo"), func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 1} })
		synctest.Wait()
		l := w.acquire(ann)
		told := w.told(l.SandboxID)
		if count(told, sandbox.EventExecFinished) != 1 || count(told, sandbox.EventAccepted) != 2 ||
			told[len(told)-1] != sandbox.EventReady {
			w.Errorf("its events are %q", told)
		}
	})
}

// TestACommandOfASandboxThatIsCreatedIsFollowedByItsCreatorOnly: other processes leave it alone, even without a
// follower.
func TestACommandOfASandboxThatIsCreatedIsFollowedByItsCreatorOnly(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		w.environment(begins("sleep 10m"))
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			w.Fatal(err)
		}
		l := w.acquireLater()
		later(time.Minute)
		w.cutOff()
		later(9 * time.Second)
		if _, err := other.engine.TakeOverExecs(w.Context()); err != nil {
			w.Fatal(err)
		}
		var x *execs.Exec
		err := other.store.Read(w.Context(), func(tx *ledger.Tx) (err error) {
			x, err = execs.In(tx).Exec(sandbox.PostStartID(l.SandboxID, 0))
			return err
		})
		if err != nil || x == nil || x.HeldUntil > micro.At(time.Now()) {
			w.Errorf("the command is %+v: %v", x, err)
		}
	})
}

// TestAPostStartCommandIsFollowedAgainWithPauses ends a lease while its command runs, and immediately takes the ledger
// away.
func TestAPostStartCommandIsFollowedAgainWithPauses(t *testing.T) {
	inWorld(t, func(w *world) {
		back := sync.OnceFunc(func() { execute(w.T, w.path, "ALTER TABLE taken RENAME TO sandboxes") })
		w.backend.Fault(fake.OpExec, func(ctx context.Context) error {
			<-ctx.Done()
			execute(w.T, w.path, "ALTER TABLE sandboxes RENAME TO taken")
			return away
		})
		var followed atomic.Int64
		w.backend.Fault(fake.OpFollow, func(context.Context) error {
			if followed.Add(1) == 100 { // without a pause, time stands still
				back()
			}
			return away
		})
		w.environment(begins("sleep 10m"))
		w.acquireLater()
		w.startLoop()
		later(time.Second)
		released := make(chan error, 1)
		go func() {
			_, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease})
			released <- err
		}()
		later(time.Minute)
		if n := followed.Load(); n == 0 || n > 20 {
			t.Errorf("the command was followed %d times within a minute", n)
		}
		back()
		later(2 * time.Minute)
		if err := <-released; err == nil {
			t.Error("the lease was released while the ledger was away")
		}
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByRelease)
	})
}
