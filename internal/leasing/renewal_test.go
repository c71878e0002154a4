package leasing_test

import (
	"context"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// restAfter and endAfter are the limits in these tests, and keeperGrace is what the backend adds to them.
	restAfter   = 5 * time.Minute
	endAfter    = time.Hour
	keeperGrace = time.Minute
)

// inKeptWorld runs a test on a backend that keeps time and records. No loop works on the ledger.
func inKeptWorld(t *testing.T, f func(w *world, l sandbox.Lease)) {
	inWorld(t, func(w *world) {
		w.backend.Record()
		w.backend.KeepTime(keeperGrace)
		w.environment(resting(restAfter))
		f(w, w.acquire(ann))
	})
}

func resting(after time.Duration) func(*sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) {
		sleepAfter := sandbox.Duration(after)
		p.SleepAfter, p.TTL, p.SleepMode = &sleepAfter, sandbox.Duration(endAfter), sandbox.SleepStop
	}
}

// seen returns the backend's observation of a sandbox.
func (w *world) seen(l sandbox.Lease) driver.Observation {
	w.Helper()
	o, err := w.backend.Inspect(context.Background(), driver.Handle{SandboxID: l.SandboxID})
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// wantAwakeFor checks for how long all sandboxes were awake.
func (w *world) wantAwakeFor(d time.Duration) {
	w.Helper()
	report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
	if err != nil {
		w.Fatal(err)
	}
	if report.Total.AwakeSeconds != d.Seconds() {
		w.Errorf("they were awake for %v s, want %v", report.Total.AwakeSeconds, d.Seconds())
	}
}

// TestABackendThatKeepsTimePutsSandboxesToSleepWithoutAReconciler has no reconciler while a sandbox is unused.
func TestABackendThatKeepsTimePutsSandboxesToSleepWithoutAReconciler(t *testing.T) {
	inKeptWorld(t, func(w *world, l sandbox.Lease) {
		rested := time.Now().Add(restAfter + keeperGrace)
		later(20 * time.Minute)
		w.startLoop()
		later(time.Second)
		got := w.sandboxIs(sandbox.SandboxStopped, "")
		if w.want(got, sandbox.LeaseActive, ""); got.StopReason != sandbox.StopIdle || len(got.Drift) != 0 {
			w.Errorf("its status is %+v", got)
		}
		w.findings()
		w.wantAwakeFor(restAfter + keeperGrace)
		w.exec(annLease, "echo")
		w.sandboxIs(sandbox.SandboxReady, "")
		later(restAfter + time.Second) // the ledger acts first
		w.wantAwakeFor(2*restAfter + keeperGrace)
		if o := w.seen(l); o.Rest != sandbox.StopRequest || !o.StoppedAt.Equal(rested) {
			w.Errorf("the backend says %+v", o)
		}
	})
}

func TestARestIsObservedAndIsNoDrift(t *testing.T) {
	inKeptWorld(t, func(w *world, l sandbox.Lease) {
		rested := time.Now().Add(restAfter + keeperGrace)
		later(20 * time.Minute)
		w.seen(l)
		if err := w.engine.Look(w.Context(), l.SandboxID); err != nil {
			w.Fatal(err)
		}
		got := w.sandboxIs(sandbox.SandboxStopped, "")
		if w.want(got, sandbox.LeaseActive, ""); got.StopReason != sandbox.StopIdle {
			w.Errorf("its status is %+v", got)
		}
		w.findings()
		w.wantAwakeFor(rested.Sub(l.LeasedAt))
	})
}

// TestAUseOfASleepingSandboxWakesIt makes a command the first to find a sandbox asleep.
func TestAUseOfASleepingSandboxWakesIt(t *testing.T) {
	for name, rest := range map[string]time.Duration{
		"rests":       restAfter + 2*keeperGrace,
		"is about to": restAfter + keeperGrace/2,
	} {
		t.Run(name, func(t *testing.T) {
			inKeptWorld(t, func(w *world, l sandbox.Lease) {
				later(rest)
				w.exec(annLease, "echo")
				w.want(w.sandboxIs(sandbox.SandboxReady, ""), sandbox.LeaseActive, "")
				w.findings()
				starts := int64(1)
				if rest > restAfter+keeperGrace {
					starts = 2
				}
				if o := w.seen(l); o.State != sandbox.StateRunning || o.Boot != starts {
					w.Errorf("the backend says %+v, want start %d", o, starts)
				}
			})
		})
	}
}

// TestABackendThatKeepsTimeHearsOfUsesThatItCannotSee makes each use a little before the backend would put the sandbox
// to sleep.
func TestABackendThatKeepsTimeHearsOfUsesThatItCannotSee(t *testing.T) {
	ref := sandbox.LeaseRef{ID: annLease}
	for name, use := range map[string]func(w *world) error{
		"renew": func(w *world) error { _, err := w.engine.Renew(w.Context(), sandbox.Renew{LeaseRef: ref}); return err },
		"wake":  func(w *world) error { _, err := w.engine.Wake(w.Context(), ref); return err },
		"process": func(w *world) error {
			_, err := w.engine.StartProcess(w.Context(), ref,
				sandbox.ProcessSpec{Name: "server", Command: []string{"serve", "1"}})
			return err
		},
		"command": func(w *world) error { w.exec(annLease, "sleep", "6m"); return nil },
		"settings": func(w *world) error {
			long := sandbox.Duration(3 * restAfter)
			_, err := w.engine.Renew(w.Context(),
				sandbox.Renew{LeaseRef: ref, Settings: &sandbox.LeaseSettings{SleepAfter: &long}})
			if later(2 * restAfter); err == nil && w.seen(w.lease(annLease)).State != sandbox.StateRunning {
				w.Error("it rests by its old limits")
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inKeptWorld(t, func(w *world, l sandbox.Lease) {
				later(restAfter)
				if err := use(w); err != nil {
					w.Fatal(err)
				}
				later(restAfter)
				if o := w.seen(l); o.State != sandbox.StateRunning {
					w.Errorf("%s after it was used the backend says %+v", restAfter, o)
				}
			})
		})
	}
}

// TestABackendThatKeepsTimeHearsOfAnEnvironmentsOtherTimes changes an environment, and then runs without a reconciler.
func TestABackendThatKeepsTimeHearsOfAnEnvironmentsOtherTimes(t *testing.T) {
	inKeptWorld(t, func(w *world, l sandbox.Lease) {
		w.startLoop()
		w.environment(resting(2 * restAfter))
		later(time.Second)
		w.stop()
		later(2 * restAfter)
		if o := w.seen(l); o.State != sandbox.StateRunning {
			w.Errorf("the backend says %+v", o)
		}
		later(keeperGrace)
		if o := w.seen(l); o.Rest != sandbox.StopIdle {
			w.Errorf("the backend says %+v", o)
		}
	})
}

// TestALeaseThatEndsWithoutAReconcilerEndsByItsTTL makes the backend end a sandbox that never sleeps.
func TestALeaseThatEndsWithoutAReconcilerEndsByItsTTL(t *testing.T) {
	inKeptWorld(t, func(w *world, l sandbox.Lease) {
		w.environment(resting(0))
		w.exec(annLease, "echo") // reports the new limits to the backend
		used := time.Now()
		later(3 * endAfter)
		w.startLoop()
		later(time.Second)
		got := w.lease(annLease)
		if w.want(got, sandbox.LeaseDestroyed, sandbox.EndedByTTL); !got.EndedAt.Equal(used.Add(endAfter)) {
			w.Errorf("it ended at %s, %s after its last use", got.EndedAt, got.EndedAt.Sub(used))
		}
		w.findings()
		w.wantAwakeFor(endAfter + keeperGrace)
	})
}

// TestARenewalThatIsLostIsSentBeforeTheNextUse: the ledger decides which leases live.
func TestARenewalThatIsLostIsSentBeforeTheNextUse(t *testing.T) {
	inKeptWorld(t, func(w *world, l sandbox.Lease) {
		later(endAfter - time.Minute)
		w.backend.Fail(fake.OpTouch, away)
		if _, err := w.engine.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: annLease}}); err != nil {
			w.Fatal(err)
		}
		later(10 * time.Minute) // the backend has ended it, and would not start it
		if _, err := w.backend.Wake(w.Context(),
			driver.Handle{SandboxID: l.SandboxID}); sandbox.ReasonOf(err) != sandbox.ReasonStartFailed {
			w.Fatalf("it wakes: %v", err)
		}
		w.backend.Fail(fake.OpTouch, nil)
		w.exec(annLease, "echo")
		w.want(w.sandboxIs(sandbox.SandboxReady, ""), sandbox.LeaseActive, "")
		w.findings()
	})
}

// TestABackendThatTakesNoRenewalDelaysNoUse makes the backend refuse renewals permanently, as an older one does.
func TestABackendThatTakesNoRenewalDelaysNoUse(t *testing.T) {
	inKeptWorld(t, func(w *world, _ sandbox.Lease) {
		w.backend.Fail(fake.OpTouch, sandbox.Errorf(sandbox.Invalid, "there is no such thing"))
		if _, err := w.engine.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: annLease}}); err != nil {
			w.Fatal(err)
		}
		w.exec(annLease, "echo")
	})
}

// TestARenewalHoldsBeforeItsBackendAnswers makes the backend hang: the ledger has the renewal, and the step continues.
func TestARenewalHoldsBeforeItsBackendAnswers(t *testing.T) {
	inKeptWorld(t, func(w *world, l sandbox.Lease) {
		later(restAfter / 2)
		answer := make(chan struct{})
		w.backend.Fault(fake.OpTouch, func(ctx context.Context) error {
			select {
			case <-answer:
				return nil
			case <-ctx.Done():
				return away
			}
		})
		began := time.Now()
		got, err := w.engine.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: annLease}})
		if err != nil {
			w.Fatal(err)
		}
		if took := time.Since(began); took > time.Second || !got.ExpiresAt.After(l.ExpiresAt) {
			w.Errorf("renewing took %v, and it expires at %v", took, got.ExpiresAt)
		}
		close(answer)
		later(restAfter) // it has not slept since the renewal
		if o := w.seen(l); o.State != sandbox.StateRunning {
			w.Errorf("the backend says %+v", o)
		}
	})
}

// TestABackendThatDoesNotKeepTimeGetsNoRenewal: uses of its sandboxes cause no steps.
func TestABackendThatDoesNotKeepTimeGetsNoRenewal(t *testing.T) {
	inWorld(t, func(w *world) {
		told := &diary{}
		w.close()
		w.observe = told
		w.open()
		w.environment(resting(restAfter))
		l := w.acquire(ann)
		later(2 * restAfter)
		ref := sandbox.LeaseRef{ID: annLease}
		if _, err := w.engine.Renew(w.Context(), sandbox.Renew{LeaseRef: ref}); err != nil {
			w.Fatal(err)
		}
		if _, err := w.engine.Wake(w.Context(), ref); err != nil {
			w.Fatal(err)
		}
		later(2 * restAfter)
		w.exec(annLease, "echo")
		if lines := told.read(); len(lines) != 1 || lines[0] != "docker spawn " || w.seen(l).State != sandbox.StateRunning {
			w.Errorf("the steps were %q", lines)
		}
	})
}
