package leasing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestABudgetReservesAWholeTTLForWhatIsInUse: a lease in which a command runs may live for a whole TTL from now on, an
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

// reserved is what the game's budget keeps for living leases.
func (w *world) reserved() sandbox.NanoUSD {
	w.Helper()
	env, err := w.engine.GetEnvironment(w.Context(), game)
	if err != nil {
		w.Fatal(err)
	}
	return env.BudgetUse.Reserved
}
