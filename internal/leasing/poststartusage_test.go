package leasing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What code costs that runs before a sandbox is ready.

// billedAwake checks for how long all sandboxes were billed as awake.
func (w *world) billedAwake(want time.Duration) {
	w.Helper()
	if got := w.costs().AwakeSeconds; got < want.Seconds()-2 || got > want.Seconds()+2 {
		w.Errorf("%v s awake are billed, want %v", got, want.Seconds())
	}
}

func TestAPostStartCommandIsBilledHoweverItsLeaseEnds(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"by a condition":         func(w *world) { w.condition("game.finished", "") },
		"by its command":         func(w *world) { later(time.Minute) }, // it runs out of its timeout
		"when its sandbox stops": func(w *world) { w.stopOutside() },
		"without its sandbox":    func(w *world) { w.backend.Remove(w.lease(annLease).SandboxID) },
	} {
		for backend, change := range map[string]func(w *world, p *sandbox.PutEnvironment){
			"":                        func(*world, *sandbox.PutEnvironment) {},
			", on one that records":   func(w *world, _ *sandbox.PutEnvironment) { w.backend.Record() },
			", on one that remembers": func(w *world, _ *sandbox.PutEnvironment) { w.backend.Remember() },
			", in a pool's": func(_ *world, p *sandbox.PutEnvironment) {
				p.WarmPool = &sandbox.WarmPool{Size: 1}
			},
		} {
			t.Run(name+backend, func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.environment(begins("sleep 10h"), func(p *sandbox.PutEnvironment) {
						p.PostStart[0].Timeout = sandbox.Duration(time.Hour)
						change(w, p)
					})
					w.startLoop()
					later(time.Second)
					l := w.acquireLater()
					later(59 * time.Minute)
					w.backend.Burn(l.SandboxID, 5*time.Second)
					later(time.Minute - 30*time.Second) // a resync reads it
					end(w)
					later(time.Minute)
					if is := w.lease(annLease); is.Status != sandbox.LeaseDestroyed || !is.ReadyAt.IsZero() {
						t.Fatalf("the lease is %s, ready at %s", is.Status, is.ReadyAt)
					}
					want := 59*time.Minute + 30*time.Second
					if name == "by its command" {
						want = time.Hour
					}
					w.billedAwake(want)
					if got := w.costs().CPUSeconds; got != 5 {
						t.Errorf("%v s of CPU time are billed, want 5", got)
					}
				})
			})
		}
	}
}

// stopOutside stops the sandbox of ann's lease on its backend.
func (w *world) stopOutside() {
	w.Helper()
	w.backend.Change(w.lease(annLease).SandboxID, func(o *driver.Observation) {
		o.State, o.ExitCode, o.StoppedAt = sandbox.StateStopped, 137, time.Now()
	})
}

// TestADayThatHasPassedIsNotBilledForPostStartCommandsLater: the report up to a midnight is the same while a command runs
// over that midnight and once the sandbox is ready.
func TestADayThatHasPassedIsNotBilledForPostStartCommandsLater(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"": func(*world) {}, "on a backend that records": func(w *world) { w.backend.Record() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
				w.close()
				later(time.Until(midnight.Add(-30 * time.Minute)))
				w.open()
				change(w)
				w.startLoop()
				w.environment(begins("sleep 50m"))
				w.acquireLater()
				later(40 * time.Minute)
				dayBefore := func() sandbox.CostRow {
					r, err := w.engine.Costs(w.Context(), sandbox.CostQuery{To: midnight})
					if err != nil {
						t.Fatal(err)
					}
					return r.Total
				}
				before := dayBefore()
				if before.AwakeSeconds < 1795 || before.AwakeSeconds > 1800 {
					t.Errorf("%v s of the day before are billed, want 1800", before.AwakeSeconds)
				}
				if l := w.lease(annLease); !l.StartedAt.IsZero() {
					t.Errorf("a lease that is not ready is awake since %s", l.StartedAt)
				}
				later(20 * time.Minute)
				w.want(w.lease(annLease), sandbox.LeaseActive, "")
				if after := dayBefore(); after != before {
					t.Errorf("the day before was %+v, and once the sandbox is ready it is %+v", before, after)
				}
			})
		})
	}
}

func TestABudgetEndsALeaseWhosePostStartCommandSpendsIt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		const budget = 20_000_000
		w.environment(begins("sleep 1h"), func(p *sandbox.PutEnvironment) { p.Budget = &sandbox.Budget{Monthly: budget} })
		l, began := w.acquireLater(), time.Now()
		// Half a GiB, 10.24 GB and half a core, a second.
		const each = sandbox.NanoUSD(1_250 + 717 + 10_000)
		spent := time.Duration(budget/each) * time.Second
		for time.Since(began) < spent+time.Minute && w.lease(annLease).EndedAt.IsZero() {
			later(time.Second)
			w.backend.Burn(l.SandboxID, 500*time.Millisecond)
		}
		later(time.Second)
		is := w.lease(annLease)
		w.want(is, sandbox.LeaseDestroyed, sandbox.EndedByBudget)
		if late := is.EndedAt.Sub(began) - spent; late < -2*time.Second || late > 30*time.Second {
			t.Errorf("the lease ended %s after its budget was spent", late)
		}
	})
}

func TestAPostStartCommandIsBilledOnceByTwoProcesses(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		w.environment(begins("sleep 10m"), awakeFor(2*time.Hour))
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			w.Fatal(err)
		}
		w.acquireLater()
		later(time.Minute)
		w.cutOff()
		other.startLoop()
		later(5 * time.Minute)
		other.want(other.lease(annLease), sandbox.LeasePending, "")
		other.billedAwake(6 * time.Minute)
		later(9 * time.Minute)
		other.want(other.lease(annLease), sandbox.LeaseActive, "")
		other.billedAwake(15 * time.Minute)
	})
}
