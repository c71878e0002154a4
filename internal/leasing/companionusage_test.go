package leasing_test

import (
	"context"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The end of a lease reads what its sandbox and its companions have used since the last heartbeat, before its removal
// or before the freeze for its last snapshot. The tested backend runs no companions, and says of each that it used what
// its sandbox did.
func TestTheEndOfALeaseCountsTheCPUTimeOfCompanions(t *testing.T) {
	for name, saves := range map[string]func(p *sandbox.PutEnvironment){
		"nothing is saved": func(*sandbox.PutEnvironment) {}, "a snapshot is saved": kept(),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment(awakeFor(time.Hour), saves)
				l := w.acquire(ann)
				err := w.store.Write(w.Context(), func(tx *ledger.Tx) error {
					return tx.Update(l.SandboxID, func(s *ledger.Sandbox) error {
						s.Companions = sandbox.Companions{"db": {Image: "player"}}
						s.CompanionStarted("db", tx.Now)
						return nil
					})
				})
				if err != nil {
					t.Fatal(err)
				}
				w.backend.Fault(fake.OpKill, func(context.Context) error {
					later(time.Second) // a kill that takes time
					return nil
				})
				later(10 * time.Second)
				w.backend.Burn(l.SandboxID, 5*time.Second)
				if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
					t.Fatal(err)
				}
				if got := w.costs().CPUSeconds; got != 10 {
					t.Errorf("of 5 s of CPU time of a sandbox and 5 s of its companion %v s are billed", got)
				}
			})
		})
	}
}
