package leasing_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A companion as large as its sandbox doubles what the budget reserves for a lease, and what a lease may not exceed.
func TestTheBudgetCountsCompanions(t *testing.T) {
	inWorld(t, func(w *world) {
		with := func(monthly sandbox.NanoUSD, companions sandbox.Companions) {
			w.environment(func(p *sandbox.PutEnvironment) {
				p.TTL, p.Budget = sandbox.Duration(time.Hour), &sandbox.Budget{Monthly: monthly}
				p.Companions = companions
			})
		}
		begin := func(agent string) error {
			_, err := w.engine.Acquire(w.Context(),
				sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: "test", NoWait: true})
			return err
		}
		with(100*sandbox.USD, nil)
		if err := begin(ann); err != nil {
			t.Fatal(err)
		}
		whole := w.reserved()
		size := sandbox.EnvironmentSpec{}.WithDefaults().Resources
		twice := sandbox.Companions{"db": sandbox.Companion{Image: "player", Resources: size}}
		with(100*sandbox.USD, twice)
		// The tested backend runs no companions: bob's lease ends when its sandbox starts, which waits here.
		seen := make(chan struct{})
		w.backend.Fault(fake.OpSpawn, func(ctx context.Context) error {
			select {
			case <-seen:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err := begin("did:plc:bob"); err != nil {
			t.Fatal(err)
		}
		if got := w.reserved(); got < 3*whole-2 || got > 3*whole+2 { // each is rounded
			t.Errorf("with a lease with a companion $%s are reserved, want three times $%s", got, whole)
		}
		close(seen)
		later(time.Minute) // bob's lease has ended
		with(2*whole+whole/2, twice)
		if err := begin("did:plc:eve"); sandbox.CodeOf(err) != sandbox.BudgetExceeded {
			t.Errorf("a lease with a companion above the budget: %v", err)
		}
		with(2*whole+whole/2, nil)
		if err := begin("did:plc:eve"); err != nil {
			t.Errorf("a lease without companions within the budget: %v", err)
		}
	})
}

// healthPasses counts the passes that look for health checks.
type healthPasses struct{ n atomic.Int64 }

func (p *healthPasses) PassBegan(string, sandbox.Backend) {}

func (p *healthPasses) PassEnded(pass string, _ sandbox.Backend, _ error) {
	if pass == loop.PassHealth {
		p.n.Add(1)
	}
}

func TestALoopReadsTheLedgerForHealthChecksOnlyWhenItChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		passes := &healthPasses{}
		w.passes = passes
		w.startSlowLoop()
		w.environment()
		w.acquire(ann)
		later(time.Minute)
		before := passes.n.Load()
		later(time.Hour - time.Minute)
		if n := passes.n.Load() - before; before == 0 || n > 2 {
			t.Errorf("it looked for health checks %d times while a lease began, and then %d times in an hour", before, n)
		}
	})
}
