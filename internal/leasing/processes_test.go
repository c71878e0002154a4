package leasing_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// declaring returns an environment that declares a process.
func declaring(p sandbox.ProcessSpec, change ...func(p *sandbox.PutEnvironment)) func(p *sandbox.PutEnvironment) {
	return func(put *sandbox.PutEnvironment) {
		put.Processes = []sandbox.ProcessSpec{p}
		for _, c := range change {
			c(put)
		}
	}
}

var relay = sandbox.ProcessSpec{
	Name:    "relay",
	Command: []string{"say", "1000h", "ready"},
	Env:     map[string]string{"TOPIC": "games"},
}

func stopping(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop }

func (w *world) startProcess(p sandbox.ProcessSpec) sandbox.Process {
	w.Helper()
	got, err := w.engine.StartProcess(w.Context(), sandbox.LeaseRef{ID: annLease}, p)
	if err != nil {
		w.Fatal(err)
	}
	return got
}

// wantProcess checks the state of a process, and its number of starts.
func (w *world) wantProcess(name string, state sandbox.ProcessState, starts int64) sandbox.Process {
	w.Helper()
	p, err := w.engine.GetProcess(w.Context(), sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: annLease}, Name: name})
	if err != nil {
		w.Fatal(err)
	}
	if p.State != state || p.Starts != starts {
		w.Fatalf("process %s is %s after %d starts (%s), want %s after %d", name, p.State, p.Starts, p.Error, state, starts)
	}
	return p
}

func (w *world) wake() {
	w.Helper()
	if _, err := w.engine.Wake(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
		w.Fatal(err)
	}
}

func TestAProcessKeepsNoSandboxAwakeAndContinuesAfterAPause(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(declaring(relay))
		w.startLoop()
		w.acquire(ann)
		short := sandbox.ProcessSpec{Name: "short", Command: []string{"crash", "20m", "3", "no use"}}
		w.startProcess(short)
		later(10 * time.Minute)
		if l := w.lease(annLease); l.Phase != sandbox.PhaseAsleep {
			w.Fatalf("a sandbox with nothing but processes is %s after ten minutes", l.Phase)
		}
		w.wake()
		later(11 * time.Minute)
		w.wantProcess("relay", sandbox.ProcessRunning, 1)
		if p := w.wantProcess("short", sandbox.ProcessExited, 1); p.ExitCode == nil || *p.ExitCode != 3 {
			w.Errorf("it ended as %+v", p)
		}
	})
}

func TestADeclaredProcessStartsAgainWhenItsSandboxWasStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(declaring(relay, stopping))
		w.startLoop()
		w.acquire(ann)
		w.startProcess(sandbox.ProcessSpec{Name: "once", Command: relay.Command})
		w.startProcess(sandbox.ProcessSpec{Name: "always", Command: relay.Command, Restart: sandbox.RestartAlways})
		later(10 * time.Minute)
		w.wantProcess("relay", sandbox.ProcessPending, 1)
		w.wantProcess("once", sandbox.ProcessStopped, 1)
		w.wake()
		later(time.Second)
		w.wantProcess("relay", sandbox.ProcessRunning, 2)
		w.wantProcess("always", sandbox.ProcessRunning, 2)
		w.wantProcess("once", sandbox.ProcessStopped, 1)
	})
}

func TestProcessesOfASandboxThatStopsStartAgainWithIt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(declaring(relay))
		w.startLoop()
		l := w.acquire(ann)
		later(time.Minute)
		w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.State, o.StoppedAt = sandbox.StateStopped, time.Now() })
		later(10 * time.Second)
		w.wantProcess("relay", sandbox.ProcessRunning, 2)
	})
}

func TestProcessesOfASandboxThatFailedAreNotSaidToBeComing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(declaring(relay))
		w.startLoop()
		l := w.acquire(ann)
		later(time.Minute)
		w.backend.Fail(fake.OpWake, sandbox.Errorf(sandbox.Failed, "it does not start"))
		w.crash(l.SandboxID, false)
		w.wantProcess("relay", sandbox.ProcessPending, 1)
		later(6 * time.Minute)
		w.wantProcess("relay", sandbox.ProcessStopped, 1)
	})
}

func TestAProcessThatEndsStartsAgainAfterAGrowingPause(t *testing.T) {
	inWorld(t, func(w *world) {
		p := sandbox.ProcessSpec{
			Name:    "relay",
			Command: []string{"crash", "1s", "1", "no use"},
			Restart: sandbox.RestartAlways,
		}
		never := sandbox.Duration(0)
		w.environment(declaring(p, func(p *sandbox.PutEnvironment) { p.SleepAfter = &never }))
		w.startLoop()
		w.acquire(ann)
		later(0) // the loop starts it, not the acquire
		w.wantProcess("relay", sandbox.ProcessRunning, 1)
		later(3 * time.Second) // it runs for 1 s each time, and the pauses are 0.5, 1, 2, 4 and 8 s
		w.wantProcess("relay", sandbox.ProcessPending, 2)
		later(14 * time.Second)
		if got := w.wantProcess("relay", sandbox.ProcessPending, 5); got.NextStartAt.Sub(got.ExitedAt) != 8*time.Second ||
			got.ExitCode == nil || *got.ExitCode != 1 {
			w.Errorf("it is %+v", got)
		}
		later(time.Hour)
		ref := sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: annLease}, Name: "relay"}
		got, err := w.engine.WaitProcess(w.Context(), sandbox.ProcessWait{ProcessRef: ref, Log: "no use"})
		if err != nil || got.Starts < 100 || got.Starts > 5+2+3600/31 {
			w.Errorf("after an hour it is %+v: %v", got, err)
		}
	})
}

// TestAProcessThatBecomesDueDuringAPassIsNotForgotten: each reading of the clock takes a millisecond, and a process
// becomes due in each of them.
func TestAProcessThatBecomesDueDuringAPassIsNotForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		w.close()
		var passed atomic.Int64 // in milliseconds
		var ticks atomic.Bool
		w.now = func() time.Time {
			if ticks.Load() {
				passed.Add(1)
			}
			return time.Now().Add(time.Duration(passed.Load()) * time.Millisecond)
		}
		w.open()
		w.environment()
		w.acquire(ann)
		const many = 8
		for i := range many {
			w.startProcess(sandbox.ProcessSpec{Name: fmt.Sprint("relay-", i), Restart: sandbox.RestartAlways,
				Command: []string{"crash", fmt.Sprint(1000+i, "ms"), "1", "no use"}})
		}
		later(1490 * time.Millisecond) // the pause is 500 ms
		ticks.Store(true)
		for waiting := many; waiting > 0; {
			next, err := w.engine.ReconcileProcesses(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			all, err := w.engine.ListProcesses(w.Context(), annLease)
			if err != nil {
				w.Fatal(err)
			}
			waiting = 0
			for _, p := range all {
				if p.State != sandbox.ProcessPending {
					continue
				}
				if waiting++; next.IsZero() || next.After(p.NextStartAt) {
					w.Fatalf("process %s is due at %s, but the next pass is at %s", p.Name, p.NextStartAt, next)
				}
			}
		}
	})
}

func TestAKilledProcessStaysSo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(declaring(sandbox.ProcessSpec{Name: "relay", Command: relay.Command, Restart: sandbox.RestartAlways},
			stopping))
		w.startLoop()
		w.acquire(ann)
		later(0) // the loop starts it: a process that is killed before that has no start
		kill := func() {
			w.Helper()
			if _, err := w.engine.KillProcess(w.Context(),
				sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: annLease}, Name: "relay"}); err != nil {
				w.Fatal(err)
			}
		}
		kill()
		later(10 * time.Minute)
		w.wake()
		later(time.Second)
		w.wantProcess("relay", sandbox.ProcessKilled, 1)
		w.startProcess(sandbox.ProcessSpec{Name: "relay", Command: relay.Command, Restart: sandbox.RestartAlways})
		if p := w.wantProcess("relay", sandbox.ProcessRunning, 1); !p.Declared {
			w.Error("a declared process that was started again is no longer declared")
		}
		later(10 * time.Minute)
		kill() // while it waits for its sandbox
		w.wake()
		later(time.Second)
		w.wantProcess("relay", sandbox.ProcessKilled, 1)
	})
}

func TestProcessesOfADeadReconcilerAreFollowedByTheNext(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(declaring(sandbox.ProcessSpec{Name: "relay", Command: []string{"crash", "1m", "3", "no use"}}))
		w.startLoop()
		l := w.acquire(ann)
		later(time.Second)
		w.stop()
		w.close()
		later(30 * time.Second)
		w.open()
		w.startLoop()
		later(20 * time.Second)
		w.wantProcess("relay", sandbox.ProcessRunning, 1)
		later(time.Minute)
		if p := w.wantProcess("relay", sandbox.ProcessExited, 1); p.ExitCode == nil || *p.ExitCode != 3 {
			w.Errorf("it ended as %+v", p)
		}
		events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: l.SandboxID, Type: "process.*"})
		if err != nil || len(events) != 2 {
			w.Errorf("it has the events %+v: %v", events, err)
		}
	})
}

// forgotten makes the sandbox forget how its processes ended, but not their ids, as one that has run many others.
func (w *world) forgotten() {
	w.backend.Fault(fake.OpFollow, func(context.Context) error {
		return sandbox.Errorf(sandbox.NotFound, "the sandbox does not know a command with that id").
			WithReason(sandbox.ReasonExecNotFound)
	})
}

func TestAProcessThatEndedUnfollowedAndIsForgottenIsSettled(t *testing.T) {
	inWorld(t, func(w *world) {
		never := sandbox.Duration(0)
		w.environment(declaring(sandbox.ProcessSpec{Name: "relay", Command: []string{"crash", "10s", "3", "no use"}},
			func(p *sandbox.PutEnvironment) { p.SleepAfter = &never }))
		w.startLoop()
		w.acquire(ann)
		w.startProcess(sandbox.ProcessSpec{Name: "always", Command: []string{"crash", "10s", "3", "no use"},
			Restart: sandbox.RestartAlways})
		later(time.Second)
		w.stop()
		w.close()
		later(30 * time.Second)
		w.open()
		w.forgotten()
		w.startLoop()
		later(5 * time.Second)
		// The second start finds the first one's run.
		if p := w.wantProcess("relay", sandbox.ProcessFailed, 2); p.ExitCode != nil || p.Error == "" {
			w.Errorf("its end is unknown, but it is %+v", p)
		}
		w.wantProcess("always", sandbox.ProcessRunning, 3)
	})
}

func TestADeclaredProcessWhoseStartNeverArrivedIsStarted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(declaring(relay))
		w.startLoop()
		w.backend.Fault(fake.OpRunProcess, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		w.acquire(ann)
		later(time.Second)
		w.stop()
		w.close()
		later(30 * time.Second)
		w.open()
		w.backend.Fault(fake.OpRunProcess, nil)
		w.startLoop()
		later(20 * time.Second)
		w.wantProcess("relay", sandbox.ProcessRunning, 2)
	})
}

func TestAProcessWhoseConnectionBreaksIsFollowedAndNotStartedTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.startLoop()
		w.acquire(ann)
		calls := 0
		w.backend.Fault(fake.OpRunProcess, func(context.Context) error {
			if calls++; calls == 1 {
				return sandbox.Errorf(sandbox.Unavailable, "the engine is away")
			}
			return nil
		})
		w.startProcess(sandbox.ProcessSpec{Name: "relay", Command: []string{"crash", "90m", "3", "no use"}})
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Hour)
		defer cancel()
		wait := sandbox.ProcessWait{
			ProcessRef: sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: annLease}, Name: "relay"},
			Log:        "use",
		}
		if got, err := w.engine.WaitProcess(ctx, wait); err != nil || got.Line != "no use" {
			w.Fatal(got, err)
		}
		w.startSlowUse(80 * time.Minute) // longer than one call for the process lasts
		later(time.Minute)
		w.wantProcess("relay", sandbox.ProcessRunning, 1)
		w.startSlowUse(10 * time.Minute)
		later(time.Minute)
		if p := w.wantProcess("relay", sandbox.ProcessExited, 1); p.ExitCode == nil || *p.ExitCode != 3 || calls < 3 {
			w.Errorf("it ended with %d after %d calls", p.ExitCode, calls)
		}
	})
}

// startSlowUse keeps the sandbox awake for a time.
func (w *world) startSlowUse(d time.Duration) { w.exec(annLease, "sleep", d.String()) }

func TestAPoolsSandboxRunsProcessesForItsLeaseOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(declaring(relay, func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 1} }))
		w.startLoop()
		later(time.Minute)
		w.acquire(ann)
		later(time.Second)
		w.wantProcess("relay", sandbox.ProcessRunning, 1)
	})
}
