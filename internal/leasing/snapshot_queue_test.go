package leasing_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A process saves six sandboxes at the same time. These tests are about those that wait for their turn.

// hangingCheckpoints makes the checkpoints of six live leases hang in an environment of their own.
func (w *world) hangingCheckpoints() (heal func()) {
	w.Helper()
	w.environment(kept(), awakeFor(2*time.Hour), func(p *sandbox.PutEnvironment) { p.ID = other })
	heal = w.bucket.stall()
	for i := range 6 {
		a, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: player(i), EnvironmentID: other, Owner: "test"})
		if err != nil {
			w.Fatal(err)
		}
		w.write(a.Lease.ID, "kept")
	}
	later(time.Second)
	return heal
}

func TestNothingRunsInAnEndedLeaseThatWaitsForItsTurnToBeSaved(t *testing.T) {
	for name, hang := range map[string]func(w *world) (heal func()){
		"behind the saves of others that have ended": func(w *world) func() { return w.bucket.stall() },
		"behind the checkpoints of others that live": (*world).hangingCheckpoints,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.startLoop()
				w.environment(kept(never), awakeFor(2*time.Hour))
				for i := range 30 {
					w.acquire(player(100 + i))
				}
				heal := hang(w)
				later(time.Second)
				w.condition("game.finished", "")
				later(2 * time.Second)
				before := w.awakeSeconds(game)
				later(5 * time.Minute)
				if after := w.awakeSeconds(game); after != before {
					t.Errorf("in 5 minutes after their end, %v s awake are billed", after-before)
				}
				paused := 0
				for _, o := range w.backend.Sandboxes() {
					switch {
					case o.EnvironmentID != game:
					case o.State == sandbox.StatePaused:
						paused++
					default:
						t.Errorf("the sandbox of an ended lease is %s", o.State)
					}
				}
				if paused != 30 {
					t.Errorf("%d sandboxes of ended leases are paused, want all 30", paused)
				}
				heal()
				later(time.Minute)
				for _, o := range w.backend.Sandboxes() {
					if o.EnvironmentID == game {
						t.Errorf("sandbox %s is left", o.SandboxID)
					}
				}
				if n := len(w.bucket.names()); n < 30 {
					t.Errorf("%d objects are saved, want one of each lease", n)
				}
			})
		})
	}
}

// awakeSeconds returns for how long the sandboxes of an environment were billed as awake.
func (w *world) awakeSeconds(environmentID string) float64 {
	w.Helper()
	r, err := w.engine.Costs(w.Context(), sandbox.CostQuery{EnvironmentID: environmentID})
	if err != nil {
		w.Fatal(err)
	}
	return r.Total.AwakeSeconds
}

func TestASleepThatWaitsForItsTurnToBeSavedLeavesTheLedgerAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(kept(never), awakeFor(2*time.Hour), func(p *sandbox.PutEnvironment) {
			p.SleepMode = sandbox.SleepStop
		})
		l := w.acquire(ann)
		w.write(annLease, "kept")
		heal := sync.OnceFunc(w.hangingCheckpoints())
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second+200*time.Millisecond)
		defer cancel()
		commits := w.countCommits(ctx, func(n int64) {
			if n == 1000 { // without a pause, time stands still
				heal()
			}
		})
		_, err := w.engine.Sleep(ctx, sandbox.LeaseRef{ID: annLease})
		w.wantCode(err, sandbox.Timeout)
		if n := commits(); n > 20 { // the heartbeat is some of them
			t.Errorf("%d commits in 10 s", n)
		}
		heal()
		slept, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: annLease})
		if err != nil || slept.Phase != sandbox.PhaseAsleep {
			t.Errorf("once others are saved: %s, %v", slept.Phase, err)
		}
		if n := w.count(l.SandboxID, sandbox.EventSnapshotSaved); n != 1 {
			t.Errorf("it was saved %d times, want once", n)
		}
	})
}

// countCommits calls each with the number of each commit on the ledger until ctx ends. The returned function waits for
// that, and returns the number of all.
func (w *world) countCommits(ctx context.Context, each func(n int64)) func() int64 {
	var (
		n    atomic.Int64
		done = make(chan struct{})
	)
	changed := w.store.Changed()
	go func() {
		defer close(done)
		for {
			select {
			case <-changed:
				changed = w.store.Changed()
				each(n.Add(1))
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() int64 {
		<-done
		return n.Load()
	}
}
