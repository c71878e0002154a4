package leasing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The server is the clock of a ledger on PostgreSQL. It may be hours away from the host's clock.
func TestLeaseEndsInTimeWhereTheHostsClockIsNotTheLedgers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.close()
		w.now, w.poll = func() time.Time { return time.Now().Add(3 * time.Hour) }, 24*time.Hour
		w.resync = 24 * time.Hour
		w.open()
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.TTL = sandbox.Duration(10 * time.Minute) })
		w.acquire(ann)
		later(10*time.Minute - time.Second)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		later(2 * time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByTTL)
	})
}
