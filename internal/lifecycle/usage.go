package lifecycle

import (
	"cmp"
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The usage of a sandbox follows from samples of its CPU time and from the times in which it ran. A sample that a stop
// would lose is taken before the stop.
//
// If a backend records when its sandboxes ran (driver.Capabilities.Records), the records count: a sandbox was awake
// from the recorded start to the recorded stop, even while no reconciler ran, and however late a step was settled. The
// row has the number of the last boot that was counted. If a record cannot be read, the step is repeated.
//
// Other backends are asked before a sandbox is removed: whether it exists, or when it stopped or was removed. If a
// missing sandbox is unknown to them, its usage ends when it was last seen.
//
// The usage of a lease begins when its sandbox is ready. If code runs before that, possibly for hours, it begins with
// that code. If it only began later, a budget would not see it, the costs of past days would change, and a lease that
// ends before would cost nothing.

// beginUsage begins the usage of a sandbox in which code runs before it is ready. An earlier try may have begun it.
// Errors: LeaseEnded; Unavailable, also if another process has taken over the step.
func (c *Core) beginUsage(ctx context.Context, t *Task, out *outcome) error {
	if !c.hooks.Initializes(&t.Row) {
		return nil
	}
	var l runtimeHistory
	if t.On.Capabilities().Records {
		var err error
		if l, err = historyOf(ctx, t.On, t.Handle); err != nil {
			return errUnknownHistory(err)
		}
	}
	err := c.store.Write(ctx, func(tx *ledger.Tx) error {
		tx.KeepSchedule()
		return tx.Update(t.Row.ID, func(s *ledger.Sandbox) error {
			switch {
			case s.Claim.Token != t.Claim:
				return sandbox.Errorf(sandbox.Unavailable, "sandbox %s: another process has taken over its creation", s.ID)
			case s.Desired == ledger.Gone:
				return errEnded
			}
			s.ObservedAt = tx.Now
			open, err := accounting.In(tx).OpenPeriod(s.ID)
			if err != nil {
				return err
			}
			if out.started || open == nil && t.mayRestart(s) {
				s.Meter.Restart()
			}
			if err := c.followHistory(tx, s, l.ran); err != nil {
				return err
			}
			return c.count(tx, s, sandbox.PhaseAwake, out.runsSince(s, tx.Now))
		})
	})
	if err == nil {
		out.started = false // the meter counts from that start
	}
	return err
}

// mayRestart reports whether the step, or an earlier try, may have started a sandbox of a pool that had stopped.
func (t *Task) mayRestart(s *ledger.Sandbox) bool {
	return t.Action == Assign && s.SleepMode == sandbox.SleepStop && !t.Awake
}

// followHistory counts recorded run times of a sandbox that were not counted before.
func (c *Core) followHistory(tx *ledger.Tx, s *ledger.Sandbox, ran []driver.Boot) error {
	for _, i := range ran {
		if i.Number < s.Meter.Boot {
			continue
		}
		if err := c.followBoot(tx, s, i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Core) followBoot(tx *ledger.Tx, s *ledger.Sandbox, i driver.Boot) error {
	if s.Meter.Begins(i) {
		counted, err := accounting.In(tx).LastUsed(s.ID)
		if err != nil {
			return err
		}
		at := max(micro.At(i.StartedAt), s.LeasedAt, counted)
		if err := c.count(tx, sized(s, i.Size), sandbox.PhaseAwake, at); err != nil {
			return err
		}
	}
	open, err := accounting.In(tx).OpenPeriod(s.ID)
	if err != nil || open == nil || open.State != sandbox.PhaseAwake {
		return err // it is paused, or was counted to its end
	}
	if cpu := micro.SpanOf(i.CPUTime); cpu > s.Meter.CPUMark {
		if err := accounting.In(tx).AddCPU(s, cpu, cmp.Or(micro.At(i.StoppedAt), tx.Now)); err != nil {
			return err
		}
	}
	if i.StoppedAt.IsZero() {
		return nil
	}
	return c.count(tx, s, sandbox.PhaseAsleep, micro.At(i.StoppedAt))
}

// sized returns the sandbox with the size of a boot, which is billed. A zero size is that of the sandbox.
func sized(s *ledger.Sandbox, size sandbox.Resources) *ledger.Sandbox {
	if size == (sandbox.Resources{}) {
		return s
	}
	of := *s
	of.MemoryMB, of.CPUMillis, of.DiskMB = size.MemoryMB, size.CPUMillis, size.DiskMB
	return &of
}

// count begins another period of a sandbox's usage.
func (c *Core) count(tx *ledger.Tx, s *ledger.Sandbox, p sandbox.Phase, at micro.Time) error {
	var book *accounting.PriceBook // a sandbox that is gone costs nothing more
	if p != sandbox.PhaseGone {
		var err error
		if book, err = accounting.In(tx).KeepPriceBook(s.Backend, c.books[s.Backend]); err != nil {
			return err
		}
	}
	return accounting.In(tx).EnterState(s, p, at, book)
}
