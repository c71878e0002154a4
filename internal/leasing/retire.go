package leasing

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// How long what was destroyed is kept.
const (
	DefaultCleanupTTL = 720 * time.Hour
	MinCleanupTTL     = time.Hour
)

// A batch bounds one write, so that nobody waits long for it; between two, others have their turn.
const (
	retireSandboxes = 20
	retireEvents    = 500
	retireRows      = 200
	retirePause     = 20 * time.Millisecond
)

// Retired counts what Retire has removed.
type Retired struct {
	Sandboxes, Environments, Events, Deliveries, Findings int64
}

func (r *Retired) add(o Retired) {
	r.Sandboxes += o.Sandboxes
	r.Environments += o.Environments
	r.Events += o.Events
	r.Deliveries += o.Deliveries
	r.Findings += o.Findings
}

// retireStep removes one batch of what ended before a moment, and reports what, and whether there may
// be more.
type retireStep func(tx *ledger.Tx, before ledger.Time) (done Retired, more bool, err error)

// Retire removes what ended more than ttl ago, and lets nothing be kept for a post-mortem for longer: destroyed sandboxes with their events and usage
// periods, events of environments, deliveries and resolved findings; of destroyed environments it
// leaves the name. Costs, generations and ids stay. It may be called at any time, by any number of
// engines, and be cut short: each batch is whole. Errors: Invalid for a ttl below MinCleanupTTL.
func (e *Engine) Retire(ctx context.Context, ttl time.Duration) (sum Retired, err error) {
	if ttl < MinCleanupTTL {
		return sum, sandbox.Errorf(sandbox.Invalid, "a cleanup ttl of %s is too short: it must be at least %s", ttl, MinCleanupTTL)
	}
	before, err := e.retainedSince(ctx, ttl)
	if err != nil {
		return sum, err
	}
	for _, step := range []retireStep{
		buryOld,
		e.retireSandboxes,
		retireRowsOf((*ledger.Tx).RetireEnvironments, func(r *Retired) *int64 { return &r.Environments }),
		retireRowsOf((*ledger.Tx).RemoveEnvironmentEvents, func(r *Retired) *int64 { return &r.Events }),
		retireRowsOf((*ledger.Tx).RemoveDeliveries, func(r *Retired) *int64 { return &r.Deliveries }),
		retireRowsOf((*ledger.Tx).RemoveFindings, func(r *Retired) *int64 { return &r.Findings }),
	} {
		done, err := e.retireAll(ctx, before, step)
		sum.add(done)
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// RetireUsage removes the samples of what sandboxes used that are older than sandbox.UsageKept, whatever becomes of
// the sandboxes. It may be called at any time, by any number of engines.
func (e *Engine) RetireUsage(ctx context.Context) error {
	before, err := e.retainedSince(ctx, sandbox.UsageKept)
	if err != nil {
		return err
	}
	_, err = e.retireAll(ctx, before, func(tx *ledger.Tx, before ledger.Time) (_ Retired, more bool, err error) {
		n, err := tx.RemoveUsageSamples(before, retireEvents)
		return Retired{}, n == retireEvents, err
	})
	return err
}

// retainedSince is the moment before which what is kept for ttl is no longer.
func (e *Engine) retainedSince(ctx context.Context, ttl time.Duration) (before ledger.Time, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		before, err = tx.RetainedSince(ledger.SpanOf(sandbox.Duration(ttl)))
		return err
	})
	return before, err
}

// retireAll takes a step until there is no more to do.
func (e *Engine) retireAll(ctx context.Context, before ledger.Time, step retireStep) (sum Retired, err error) {
	for {
		var done Retired
		var more bool
		err := e.store.Write(ctx, func(tx *ledger.Tx) (err error) {
			done, more, err = step(tx, before)
			return err
		})
		if err != nil {
			return sum, err
		}
		sum.add(done)
		if !more {
			return sum, nil
		}
		select {
		case <-time.After(retirePause):
		case <-ctx.Done():
			return sum, ctx.Err()
		}
	}
}

// retireSandboxes removes as many sandboxes as have few enough events together. One that has too many
// loses them first, over several batches.
func (e *Engine) retireSandboxes(tx *ledger.Tx, before ledger.Time) (done Retired, more bool, err error) {
	rows, err := tx.Retirable(before, retireSandboxes)
	if err != nil || len(rows) == 0 {
		return done, false, err
	}
	found := len(rows)
	rows = rows[:fitting(rows)]
	if rows[0].LastSequence > retireEvents {
		if done.Events, err = tx.PurgeEvents(&rows[0], retireEvents); err != nil || done.Events == retireEvents {
			return done, true, err
		}
	}
	for _, purge := range []func([]string, int) (int64, error){tx.PurgeSessionEvents, tx.PurgeUsageSamples} {
		if n, err := purge(idsOf(rows), retireEvents); err != nil || n == retireEvents {
			return done, true, err
		}
	}
	events, err := tx.RetireSandboxes(rows, outputObjects)
	done.Sandboxes, done.Events = int64(len(rows)), done.Events+events
	return done, len(rows) < found || found == retireSandboxes, err
}

func idsOf(rows []ledger.Sandbox) []string {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return ids
}

// fitting returns how many of the rows, at least one, have no more events together than a batch.
func fitting(rows []ledger.Sandbox) int {
	var events int64
	for i := range rows {
		if events += rows[i].LastSequence; i > 0 && events > retireEvents {
			return i
		}
	}
	return len(rows)
}

// retireRowsOf is a step that removes rows of one kind.
func retireRowsOf(remove func(tx *ledger.Tx, before ledger.Time, limit int) (int64, error), count func(*Retired) *int64) retireStep {
	return func(tx *ledger.Tx, before ledger.Time) (done Retired, more bool, err error) {
		n, err := remove(tx, before, retireRows)
		*count(&done) = n
		return done, n == retireRows, err
	}
}
