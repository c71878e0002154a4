package lifecycle

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What a sandbox has used is known by samples of its CPU time and by when it ran. A sample that a stop would lose is
// taken before.
//
// A backend that records when its sandboxes ran (driver.Capabilities.Records) is what usage is counted by: a
// sandbox was awake from the start to the stop that were recorded, also while reconcilers were away, and however late a
// step was settled. What the ledger has counted of them is known by the number of the last one that it has
// begun. A record that cannot be read leaves a step undone, which is then taken again.
//
// Another backend is asked before a sandbox is removed: whether it is there, or when it stopped or was removed. Where
// nothing is known of one that is not there, its usage ends when it was last seen.

// followHistory counts what a sandbox is recorded to have run and was not counted before.
func (c *Core) followHistory(tx *ledger.Tx, s *ledger.Sandbox, ran []driver.Boot) error {
	for _, i := range ran {
		if i.Number < s.Meter.Boot {
			continue
		}
		if err := c.followIncarnation(tx, s, i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Core) followIncarnation(tx *ledger.Tx, s *ledger.Sandbox, i driver.Boot) error {
	if s.Meter.Begins(i) {
		counted, err := accounting.In(tx).LastUsed(s.ID)
		if err != nil {
			return err
		}
		at := max(micro.At(i.StartedAt), s.LeasedAt, counted)
		if err := c.count(tx, s, sandbox.PhaseAwake, at); err != nil {
			return err
		}
	}
	open, err := accounting.In(tx).OpenPeriod(s.ID)
	if err != nil || open == nil || open.State != sandbox.PhaseAwake {
		return err // it is paused, or was counted to its end
	}
	if cpu := micro.SpanOf(i.CPUTime); cpu > s.Meter.CPUMark {
		if err := accounting.In(tx).AddCPU(s, cpu); err != nil {
			return err
		}
	}
	if i.StoppedAt.IsZero() {
		return nil
	}
	return c.count(tx, s, sandbox.PhaseAsleep, micro.At(i.StoppedAt))
}

// count begins another stretch of a sandbox's usage.
func (c *Core) count(tx *ledger.Tx, s *ledger.Sandbox, p sandbox.Phase, at micro.Time) error {
	var book *accounting.PriceBook // what is gone costs nothing more
	if p != sandbox.PhaseGone {
		var err error
		if book, err = accounting.In(tx).KeepPriceBook(s.Backend, c.books[s.Backend]); err != nil {
			return err
		}
	}
	return accounting.In(tx).EnterState(s, p, at, book)
}
