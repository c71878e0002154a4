package leasing_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// elsewhere is an in-memory backend of the other kind.
type elsewhere struct{ *fake.Executor }

func (elsewhere) Backend() sandbox.Backend { return sandbox.Cloudflare }

// other is the environment on the healthy backend.
const other = "other"

// besides is a world with a second backend, which stays healthy.
type besides struct {
	*world
	healthy *fake.Executor
	cancel  context.CancelFunc
	calls   sync.WaitGroup
	ctx     context.Context // of calls
}

// inTwoWorlds runs a test with a loop, five leases on the first backend, and an environment on each.
func inTwoWorlds(t *testing.T, f func(b *besides)) {
	inWorld(t, func(w *world) {
		b := &besides{world: w, healthy: fake.New("account-1", nil)}
		b.ctx, b.cancel = context.WithCancel(context.Background())
		w.close()
		w.beside = []driver.Executor{elsewhere{b.healthy}}
		w.workers, w.resync = 2, 5*time.Second
		w.open()
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) {
			p.Type, p.Network, p.WarmPool = sandbox.TypeRPG, sandbox.NetworkRestricted, &sandbox.WarmPool{Size: 1}
		})
		w.environment(func(p *sandbox.PutEnvironment) {
			p.ID, p.Type, p.Backend = other, sandbox.TypeRPG, sandbox.Cloudflare
		})
		for i := range 5 {
			w.acquire(player(i))
		}
		later(time.Second)
		f(b)
		b.cancel()
		b.calls.Wait()
	})
}

func player(i int) string { return fmt.Sprintf("did:plc:player%d", i) }

// call makes a request that may hang, and does not wait for it.
func (b *besides) call(f func(ctx context.Context) error) {
	b.calls.Go(func() { _ = f(b.ctx) }) // its caller does not check the result
}

// use makes every request to the first backend that an engine can make.
func (b *besides) use(round int) {
	lease := sandbox.LeaseRef{ID: sandbox.LeaseID(player(round%3), game)}
	b.call(func(ctx context.Context) error {
		_, err := b.engine.Exec(ctx, lease, sandbox.ExecRequest{Command: []string{"echo", "x"}})
		return err
	})
	b.call(func(ctx context.Context) error {
		_, err := b.engine.PutEnvironment(ctx, sandbox.PutEnvironment{ID: fmt.Sprintf("game-%d", round), Owner: "test",
			EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, Image: "player", Network: sandbox.NetworkNone}})
		return err
	})
	b.call(func(ctx context.Context) error {
		_, err := b.engine.Acquire(ctx,
			sandbox.Acquire{AgentDID: fmt.Sprintf("did:plc:new%d", round), EnvironmentID: game, Owner: "test"})
		return err
	})
	b.call(func(ctx context.Context) error {
		_, err := b.engine.LeaseUsage(ctx, lease)
		return err
	})
	b.call(func(ctx context.Context) error {
		_, err := b.engine.ListFiles(ctx, lease, sandbox.FileQuery{Path: "/workspace"})
		return err
	})
	b.call(func(ctx context.Context) error {
		_, err := b.engine.GetEnvironment(ctx, game)
		return err
	})
	if round%3 == 2 {
		b.condition("agent.death", player(round%5))
		b.backend.Disconnect()
	}
}

// endOne acquires a lease on the healthy backend, ends it by a condition, and returns how long its sandbox stayed.
func (b *besides) endOne() time.Duration {
	b.Helper()
	began := time.Now()
	if _, err := b.engine.Acquire(b.Context(),
		sandbox.Acquire{AgentDID: ann, EnvironmentID: other, Owner: "test"}); err != nil {
		b.Fatalf("acquiring on the healthy backend: %v", err)
	}
	if took := time.Since(began); took > time.Second {
		b.Errorf("acquiring on the healthy backend took %s", took)
	}
	later(time.Second) // a condition must be later than the beginning of its lease
	b.n++
	ended := time.Now()
	_, err := b.engine.Deliver(b.Context(), sandbox.Delivery{
		ID:     fmt.Sprintf("msg_%d", b.n),
		Body:   []byte("x"),
		Source: "test",
		Condition: sandbox.Condition{
			Type:      "agent.death",
			Timestamp: time.Now(),
			Data:      sandbox.ConditionData{EnvironmentID: other, AgentDID: ann},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	for len(b.healthy.Sandboxes()) > 0 && time.Since(ended) < 2*time.Minute {
		later(50 * time.Millisecond)
	}
	return time.Since(ended)
}

// probe makes the requests of /metrics and /readyz.
func (b *besides) probe(round int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	began := time.Now()
	if _, err := b.engine.Counts(ctx); err != nil {
		b.Errorf("round %d: counts: %v", round, err)
	}
	if err := b.engine.Ready(ctx); err != nil {
		b.Errorf("round %d: ready: %v", round, err)
	}
	if took := time.Since(began); took > time.Second {
		b.Errorf("round %d: the probes took %s, want 1s", round, took)
	}
}

// TestOneBackendThatHangsDelaysNoOther makes the first of two backends hang in each of its operations in turn.
func TestOneBackendThatHangsDelaysNoOther(t *testing.T) {
	t.Parallel()
	for _, op := range fake.Ops() {
		t.Run(string(op), func(t *testing.T) {
			inTwoWorlds(t, func(b *besides) {
				b.backend.Hang(op)
				b.backend.Disconnect()
				for round := range 8 {
					b.use(round)
					later(3 * time.Second)
					if took := b.endOne(); took > time.Second {
						b.Errorf("round %d: the healthy backend's sandbox was gone %s after its condition, want 1s", round, took)
					}
					b.probe(round)
				}
				b.backend.Fault(op, nil)
				synctest.Wait()
			})
		})
	}
}

// TestASandboxThatHangsHoldsUpNoOther makes the backend give no answer for one of its sandboxes.
func TestASandboxThatHangsHoldsUpNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resync, w.workers = 30*time.Second, 2
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		stuck, well := w.acquire(ann), w.acquire(bob)
		later(time.Second)
		heal := w.backend.HangOne(stuck.SandboxID)
		defer heal()
		w.backend.Change(well.SandboxID, func(o *driver.Observation) { o.Resources.MemoryMB++ })
		later(time.Minute)
		hangs := sandbox.DriftFilter{Status: sandbox.DriftOpen, Kind: sandbox.DriftChanged}
		fields := func() map[string]string {
			found, err := w.engine.ListDrift(w.Context(), hangs)
			if err != nil {
				w.Fatal(err)
			}
			fields := make(map[string]string)
			for _, f := range found {
				fields[f.SandboxID] = f.Field
			}
			return fields
		}
		if got := fields(); got[stuck.SandboxID] != "response" || got[well.SandboxID] != "memory_mb" {
			w.Errorf("the resync found %v", got)
		}
		if seen := w.lease(sandbox.LeaseID(bob, game)).ObservedAt; time.Since(seen) > 31*time.Second {
			w.Errorf("the other one was seen %s ago", time.Since(seen))
		}

		w.condition("agent.death", ann)
		w.condition("agent.death", bob)
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseExpired, sandbox.EndedByCondition)
		w.want(w.lease(sandbox.LeaseID(bob, game)), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		later(3 * time.Minute)
		for range 3 { // by now its kill has been retried
			w.acquire(bob)
			later(time.Second)
			w.condition("agent.death", bob)
			later(time.Second)
			w.want(w.lease(sandbox.LeaseID(bob, game)), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		}
		heal()
		later(31 * time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
	})
}

// TestASandboxThatAnswersAgainHangsNoMore checks that the finding is resolved.
func TestASandboxThatAnswersAgainHangsNoMore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resync = 30 * time.Second
		w.startLoop()
		w.environment()
		heal := w.backend.HangOne(w.acquire(ann).SandboxID)
		open := func() int {
			found, err := w.engine.ListDrift(w.Context(), sandbox.DriftFilter{Status: sandbox.DriftOpen})
			if err != nil {
				w.Fatal(err)
			}
			return len(found)
		}
		later(time.Minute)
		if n := open(); n != 1 {
			w.Errorf("%d findings are open while it hangs, want 1", n)
		}
		heal()
		later(time.Minute)
		if n := open(); n != 0 {
			w.Errorf("%d findings are open once it answers", n)
		}
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
	})
}

// TestTheUsageOfASandboxIsAnsweredInTime: a page or a table that shows usage must not wait for a backend that hangs.
func TestTheUsageOfASandboxIsAnsweredInTime(t *testing.T) {
	for _, op := range []fake.Op{fake.OpInspect, fake.OpUsage, fake.OpExec} {
		t.Run(string(op), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment()
				w.acquire(ann)
				w.backend.Hang(op)
				ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				_, err := w.engine.LeaseUsage(ctx, sandbox.LeaseRef{ID: annLease})
				if took := time.Since(began); err == nil || took > 10*time.Second {
					t.Errorf("it was answered after %v: %v", took, err)
				}
			})
		})
	}
}

// A backend hangs while it looks for the tools of a new sandbox. The creation fails, is tried again, and its lease can
// end.
func TestABackendThatHangsDuringTheCheckOfToolsHoldsNoLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.BuiltinTools = []string{"git"} })
		w.startLoop()
		var asked atomic.Int32
		w.backend.Fault(fake.OpExec, func(ctx context.Context) error {
			asked.Add(1)
			<-ctx.Done()
			return sandbox.Errorf(sandbox.Unavailable, "the engine: %w", ctx.Err())
		})
		_, err := w.engine.Acquire(w.Context(),
			sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test", NoWait: true})
		if err != nil {
			t.Fatal(err)
		}
		later(5 * time.Minute)
		if asked.Load() < 2 {
			t.Errorf("in 5 minutes the sandbox was asked %d times", asked.Load())
		}
		if _, err := w.engine.StartRelease(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			t.Fatal(err)
		}
		later(5 * time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByRelease)
	})
}
