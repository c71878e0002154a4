package leasing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestABudgetReservesAWholeTTLForWhatIsInUse: a lease with a running command may live for a whole TTL from now on, an
// unused one only for the rest of its TTL.
func TestABudgetReservesAWholeTTLForWhatIsInUse(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) {
			p.TTL, p.Budget = sandbox.Duration(time.Hour), &sandbox.Budget{Monthly: 100 * sandbox.USD}
		})
		w.startSlowLoop()
		w.acquire(ann)
		whole := w.reserved()
		if whole == 0 {
			t.Fatal("nothing is reserved for a lease that begins")
		}
		w.start(sandbox.ExecRequest{Command: []string{"sleep", "2h"}, Timeout: sandbox.Duration(3 * time.Hour)})
		later(30 * time.Minute)
		if got := w.reserved(); got != whole {
			t.Errorf("in the middle of a command $%s are reserved, want $%s", got, whole)
		}
		w.acquire("did:plc:bob")
		later(30 * time.Minute)
		if got, want := w.reserved(), whole+whole/2; got < want-1 || got > want+1 { // each is rounded
			t.Errorf("with another lease, in the middle of its TTL, $%s are reserved, want $%s", got, want)
		}
	})
}

// reserved returns what the game's budget reserves for live leases.
func (w *world) reserved() sandbox.NanoUSD {
	w.Helper()
	env, err := w.engine.GetEnvironment(w.Context(), game)
	if err != nil {
		w.Fatal(err)
	}
	return env.BudgetUse.Reserved
}

// TestABudgetReservesTheNextHour: however long a lease may live, it reserves its next hour with a quarter of its CPU
// limit, or the rest of the month if that is shorter.
func TestABudgetReservesTheNextHour(t *testing.T) {
	inWorld(t, func(w *world) {
		w.close()
		later(time.Until(time.Date(2000, 1, 31, 20, 0, 0, 0, time.UTC)))
		w.open()
		w.environment(func(p *sandbox.PutEnvironment) { p.Budget = &sandbox.Budget{Monthly: sandbox.USD} })
		w.acquire(ann)
		// 512 MiB, 10.24 GB and an eighth of a core.
		const hour = 4_500_000 + 2_580_480 + 9_000_000
		if got := w.reserved(); got != hour {
			t.Errorf("for an hour $%s are reserved, want $%s", got, sandbox.NanoUSD(hour))
		}
		later(3*time.Hour + 30*time.Minute)
		if got := w.reserved(); got != hour/2 {
			t.Errorf("half an hour before the month ends $%s are reserved, want $%s", got, sandbox.NanoUSD(hour/2))
		}
	})
}

// TestLeasesEndWithin30sOfTheBudgetBeingSpent makes three leases use all of their CPU, which the ledger knows only from
// readings. It compares their end with the time at which the budget was really spent.
func TestLeasesEndWithin30sOfTheBudgetBeingSpent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		const budget = 50_000_000
		w.environment(func(p *sandbox.PutEnvironment) {
			never := sandbox.Duration(0)
			p.SleepAfter, p.Budget = &never, &sandbox.Budget{Monthly: budget}
		})
		leases := []sandbox.Lease{w.acquire(ann), w.acquire(bob), w.acquire("did:plc:cat")}
		began, ready := time.Now(), time.Now()
		// Half a GiB, 10.24 GB and half a core, a second.
		const each = sandbox.NanoUSD(1_250 + 717 + 10_000)
		spent := time.Duration(budget/(3*each)) * time.Second
		for ; time.Since(began) < spent+time.Minute; later(time.Second) {
			for _, l := range leases {
				w.backend.Burn(l.SandboxID, 500*time.Millisecond)
			}
			ended := w.lease(annLease).EndedAt
			if ended.IsZero() {
				continue
			}
			late := ended.Sub(ready) - spent
			t.Logf("the leases ended %s after $%s were spent, at $%s", late, sandbox.NanoUSD(budget), w.spent())
			if late < -2*time.Second || late > 30*time.Second {
				t.Errorf("the leases ended %s after the budget was spent", late)
			}
			break
		}
		later(time.Second)
		for _, l := range leases {
			w.want(w.lease(l.ID), sandbox.LeaseDestroyed, sandbox.EndedByBudget)
		}
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		w.wantCode(err, sandbox.BudgetExceeded)
	})
}

// TestANameIsNoBudget: an environment without a budget may name a companion or a model route "budget".
func TestANameIsNoBudget(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) {
			p.ID, p.Companions = "chess-1", sandbox.Companions{"budget": sandbox.Companion{Image: "player"}}
		})
		w.environment(withModel, func(p *sandbox.PutEnvironment) {
			p.ID, p.LLM = "chess-2", map[string]sandbox.LLMRoute{"budget": p.LLM["main"]}
		})
		w.environment()
		l := w.acquire(ann)
		later(time.Minute)
		w.environment(func(p *sandbox.PutEnvironment) { p.Budget = &sandbox.Budget{Monthly: 1} })
		if err := w.engine.CheckBudgets(w.Context()); err != nil {
			t.Fatal(err)
		}
		w.want(w.lease(l.ID), sandbox.LeaseExpired, sandbox.EndedByBudget)
	})
}

// TestAWarmPoolEndsWithTheBudget: waiting sandboxes cost the environment too, and are created again once there is a
// budget.
func TestAWarmPoolEndsWithTheBudget(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		pool := func(monthly sandbox.NanoUSD) func(p *sandbox.PutEnvironment) {
			return func(p *sandbox.PutEnvironment) {
				p.WarmPool = &sandbox.WarmPool{Size: 2, Mode: sandbox.PoolRunning}
				p.Budget = &sandbox.Budget{Monthly: monthly}
			}
		}
		w.environment(pool(14_000_000)) // about an hour of two sandboxes without CPU
		later(50 * time.Minute)
		if n := len(w.backend.Sandboxes()); n != 2 {
			t.Fatalf("%d sandboxes wait", n)
		}
		later(20 * time.Minute)
		if n := len(w.backend.Sandboxes()); n != 0 {
			t.Errorf("%d sandboxes wait, and the budget is spent", n)
		}
		spent := w.spent()
		later(20 * time.Minute)
		if now := w.spent(); now != spent || now > 15_000_000 {
			t.Errorf("$%s were spent, and $%s later", spent, now)
		}
		w.environment(pool(sandbox.USD))
		later(time.Minute)
		if n := len(w.backend.Sandboxes()); n != 2 {
			t.Errorf("%d sandboxes wait after the budget was raised", n)
		}
	})
}

// spent returns the spent part of the game's budget.
func (w *world) spent() sandbox.NanoUSD {
	w.Helper()
	env, err := w.engine.GetEnvironment(w.Context(), game)
	if err != nil {
		w.Fatal(err)
	}
	return env.BudgetUse.Spent
}
