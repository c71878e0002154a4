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

// crash makes a sandbox stop on its own, and lets the loop notice it.
func (w *world) crash(sandboxID string, outOfMemory bool) {
	w.Helper()
	w.backend.Change(sandboxID, func(o *driver.Observation) {
		o.State, o.ExitCode, o.OOMKilled, o.StoppedAt = sandbox.StateStopped, 137, outOfMemory, time.Now()
	})
	synctest.Wait()
}

// sandboxIs checks the state of ann's sandbox, and why it failed.
func (w *world) sandboxIs(state sandbox.SandboxState, failed sandbox.Reason) sandbox.Lease {
	w.Helper()
	l := w.lease(annLease)
	if l.SandboxState != state || l.ErrorCode != failed {
		w.Fatalf("the sandbox is %s, failed by %q (%s), want %s, %q",
			l.SandboxState, l.ErrorCode, l.ErrorMessage, state, failed)
	}
	return l
}

func TestSandboxThatStopsIsStartedAgainInPlace(t *testing.T) {
	for kind, code := range map[sandbox.DriftKind]sandbox.Reason{
		sandbox.DriftStopped: sandbox.ReasonCrashed, sandbox.DriftOutOfMemory: sandbox.ReasonOutOfMemory} {
		t.Run(string(kind), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.startLoop()
				w.environment()
				l := w.acquire(ann)
				later(time.Minute)
				w.crash(l.SandboxID, kind == sandbox.DriftOutOfMemory)
				later(time.Second)
				again := w.sandboxIs(sandbox.SandboxReady, code)
				if w.want(again, sandbox.LeaseActive, ""); again.SandboxID != l.SandboxID || w.backend.Spawned(l.SandboxID) != 1 ||
					len(again.Drift) != 1 || again.Drift[0].Kind != kind {
					t.Errorf("it is %+v", again)
				}
				later(time.Minute) // it runs again, and has recovered
				if well := w.sandboxIs(sandbox.SandboxReady, ""); len(well.Drift) != 0 {
					t.Errorf("the drift is %+v", well.Drift)
				}
				w.findings(kind)
				w.exec(annLease, "echo")
			})
		})
	}
}

func TestSandboxThatCannotBeStartedAgainFailsAfterFiveMinutes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(keptFor(0))
		l := w.acquire(ann)
		later(time.Minute)
		w.backend.Fail(fake.OpWake, sandbox.Errorf(sandbox.Failed, "it does not start"))
		w.crash(l.SandboxID, false)
		later(4*time.Minute + 50*time.Second)
		w.want(w.sandboxIs(sandbox.SandboxStopped, sandbox.ReasonCrashed), sandbox.LeaseActive, "")
		later(11 * time.Second)
		ended := w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonCrashed)
		if w.want(ended, sandbox.LeaseDestroyed,
			sandbox.EndedByCrashed); !strings.Contains(ended.EndReason, "exit code 137") {
			t.Errorf("it ended because %s", ended.EndReason)
		}
	})
}

func TestSandboxThatDoesNotStayUpFailsAfterFiveMinutes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(keptFor(0), func(p *sandbox.PutEnvironment) { p.SleepAfter = new(sandbox.Duration) })
		l := w.acquire(ann)
		later(time.Minute)
		starts := 0
		began := time.Now()
		for w.lease(annLease).Status == sandbox.LeaseActive {
			if w.lease(annLease).SandboxState == sandbox.SandboxReady {
				starts++
				w.crash(l.SandboxID, false)
			}
			later(time.Second)
		}
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCrashed)
		if d := time.Since(began); d < 5*time.Minute || d > 6*time.Minute {
			t.Errorf("it was given up after %s", d)
		}
		if starts > 20 {
			t.Errorf("it was started %d times", starts)
		}
	})
}

func TestTimeInWhichTheBackendIsAwayFailsNoSandbox(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.SleepAfter = new(sandbox.Duration) })
		l := w.acquire(ann)
		later(time.Minute)
		w.backend.Fail(fake.OpWake, away)
		w.crash(l.SandboxID, false)
		later(time.Hour)
		w.want(w.sandboxIs(sandbox.SandboxStopped, sandbox.ReasonCrashed), sandbox.LeaseActive, "")
		w.backend.Fail(fake.OpWake, nil)
		later(time.Minute)
		w.want(w.sandboxIs(sandbox.SandboxReady, ""), sandbox.LeaseActive, "")
	})
}

func TestSandboxWithAMissingPartIsNeverMadeAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		l := w.acquire(ann)
		later(time.Minute)
		w.backend.Fault(fake.OpWake, func(context.Context) error {
			return sandbox.Errorf(sandbox.NotFound, "its network is missing").WithReason(sandbox.ReasonPartMissing)
		})
		w.crash(l.SandboxID, false)
		later(time.Second)
		ended := w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonPartMissing)
		if w.want(ended, sandbox.LeaseDestroyed,
			sandbox.EndedByVanished); !strings.Contains(ended.EndReason, "its network is missing") {
			t.Errorf("it ended because %s", ended.EndReason)
		}
		if w.backend.Spawned(l.SandboxID) != 1 {
			t.Error("it was made again")
		}
	})
}

func TestSandboxThatStopsWhileItSleepsIsStartedByItsNextUse(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		l := w.acquire(ann)
		later(10 * time.Minute)
		w.sandboxIs(sandbox.SandboxAsleep, "")
		w.crash(l.SandboxID, false)
		later(time.Hour)
		w.want(w.sandboxIs(sandbox.SandboxStopped, sandbox.ReasonCrashed), sandbox.LeaseActive, "")
		w.exec(annLease, "echo")
		w.want(w.sandboxIs(sandbox.SandboxReady, sandbox.ReasonCrashed), sandbox.LeaseActive, "")
		later(time.Minute)
		w.sandboxIs(sandbox.SandboxReady, "")
	})
}

func TestCommandThatASandboxesStopCutOffSaysSo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		l := w.acquire(ann)
		w.backend.Fault(fake.OpExec, func(context.Context) error {
			w.backend.Change(l.SandboxID, func(o *driver.Observation) {
				o.State, o.OOMKilled, o.StoppedAt = sandbox.StateStopped, true, time.Now()
			})
			return sandbox.Errorf(sandbox.UnknownOutcome, "the stream broke")
		})
		_, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease}, sandbox.ExecRequest{Command: []string{"echo"}})
		if sandbox.CodeOf(err) != sandbox.UnknownOutcome || !strings.Contains(err.Error(), "it ran out of memory") {
			t.Errorf("the command ended with %v", err)
		}
		w.backend.Fault(fake.OpExec, nil)
		w.exec(annLease, "echo") // even without a loop, the next use starts it
	})
}

func TestWarmPoolReplacesASandboxThatStops(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 1} })
		later(10 * time.Second)
		for id := range w.backend.Sandboxes() {
			w.crash(id, false)
			later(10 * time.Second)
			if _, there := w.backend.Sandboxes()[id]; there || len(w.backend.Sandboxes()) != 1 {
				t.Errorf("after it had stopped, %d sandboxes wait, itself among them: %v", len(w.backend.Sandboxes()), there)
			}
		}
	})
}

// TestASilentRestartIsAFinding makes a sandbox stop and start again between two looks, on a backend that counts starts.
func TestASilentRestartIsAFinding(t *testing.T) {
	inWorld(t, func(w *world) {
		w.backend.Record()
		w.startLoop()
		w.environment()
		l := w.acquire(ann)
		later(10 * time.Second)
		w.backend.Restart(l.SandboxID)
		synctest.Wait()
		found := func(status sandbox.DriftStatus) []sandbox.DriftFinding {
			t.Helper()
			all, err := w.engine.ListDrift(w.Context(), sandbox.DriftFilter{LeaseID: annLease, Status: status})
			if err != nil {
				w.Fatal(err)
			}
			return all
		}
		open := found(sandbox.DriftOpen)
		if len(open) != 1 || open[0].Kind != sandbox.DriftStopped || open[0].Field != "incarnation" ||
			open[0].Expected != "1" || open[0].Observed != "2" {
			w.Fatalf("after an unseen restart the findings are %+v", open)
		}
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		later(2 * time.Minute)
		if open, all := found(sandbox.DriftOpen), found(""); len(open) != 0 || len(all) != 1 {
			w.Fatalf("two minutes later %+v of %+v are open", open, all)
		}
	})
}

// A sandbox that slept was not expected to run, and starts at its next use.
func TestASandboxThatStopsInItsSleepWasExpectedToRest(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		l := w.acquire(ann)
		if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			t.Fatal(err)
		}
		w.crash(l.SandboxID, false)
		later(time.Minute)
		is := w.sandboxIs(sandbox.SandboxStopped, sandbox.ReasonCrashed)
		if len(is.Drift) != 1 || is.Drift[0].Expected != "paused" || is.Drift[0].Observed != "stopped" {
			t.Errorf("the drift is %+v", is.Drift)
		}
		w.exec(annLease, "echo")
		later(time.Minute)
		if well := w.sandboxIs(sandbox.SandboxReady, ""); len(well.Drift) != 0 {
			t.Errorf("after its next use the drift is %+v", well.Drift)
		}
	})
}

// The lease follows a sandbox that was paused from outside. Its finding does not say that the sandbox was resumed.
func TestAPauseFromOutsideIsFollowed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		l := w.acquire(ann)
		later(time.Minute)
		w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.State = sandbox.StatePaused })
		later(2 * time.Minute)
		w.sandboxIs(sandbox.SandboxAsleep, "")
		found := w.findings(sandbox.DriftChanged)
		if len(found) != 1 || found[0].ResolvedAt.IsZero() || found[0].Resolution != "the lease follows it" {
			t.Errorf("the findings are %+v", found)
		}
	})
}
