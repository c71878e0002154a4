package leasing

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/counts"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Counts are the current totals, for metrics.
type Counts struct {
	Sandboxes []counts.Group
	// Ending is how overdue the oldest pending removal on each backend is, 0 if there is none.
	Ending map[sandbox.Backend]time.Duration
	// Findings are open differences between ledger and backends.
	Findings map[sandbox.DriftKind]int64
	// Kept is the kept output, and how much was ever dropped.
	Kept ledger.KeptSum
	// Overdue is how long the oldest due step of this process has waited.
	Overdue time.Duration
}

// Counts returns the current totals. Errors: Unavailable.
func (v *Service) Counts(ctx context.Context) (Counts, error) {
	c := Counts{Ending: make(map[sandbox.Backend]time.Duration)}
	for _, name := range v.Backends() {
		c.Ending[name] = 0
	}
	instances := v.InReach()
	err := v.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		if c.Sandboxes, err = counts.In(tx).Sandboxes(); err != nil {
			return err
		}
		if c.Kept, err = execs.In(tx).KeptSum(ledger.KeptOfLedger, ""); err != nil {
			return err
		}
		ended, err := counts.In(tx).OldestEnded()
		if err != nil {
			return err
		}
		for name, at := range ended {
			c.Ending[name] = tx.Now.Time().Sub(at.Time())
		}
		if c.Findings, err = drift.In(tx).Count(); err != nil {
			return err
		}
		for _, instance := range instances {
			next, err := tx.NextDue(instance)
			if err != nil {
				return err
			}
			if next < tx.Now {
				c.Overdue = max(c.Overdue, tx.Now.Time().Sub(next.Time()))
			}
		}
		return nil
	})
	return c, err
}
