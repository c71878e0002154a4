package leasing

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A backend that records when its sandboxes ran (driver.Capabilities.Records) is what usage is counted by: a
// sandbox was awake from the start to the stop that were recorded, also while reconcilers were away, and however late a
// step was settled. What the ledger has counted of them is known by the number of the last one that it has
// begun. A record that cannot be read leaves a step undone, which is then taken again.
//
// Another backend is asked before a sandbox is removed: whether it is there, or when it stopped or was removed. Where
// nothing is known of one that is not there, its usage ends when it was last seen.

// readRecord reads when the sandbox of a step ran, once that step is taken, or found nothing to take. Of one that
// cannot be killed it is read too: it may have stopped long before.
func readRecord(ctx context.Context, x *backend, t *task, h driver.Handle, out outcome) outcome {
	switch {
	case out.err == nil && (t.action == actSave || t.action == actThaw || t.action == actDeliver || t.action == actRenew && out.rest == nil): // it goes on
		return out
	case out.err != nil && sandbox.CodeOf(out.err) != sandbox.NotFound && t.action != actKill:
		return out
	}
	if !x.Capabilities().Records && (t.action == actKill || sandbox.CodeOf(out.err) != sandbox.NotFound) {
		return out // kill has asked
	}
	l, err := lifeOf(ctx, x, h)
	if err != nil && out.err == nil {
		out.err = errUnknownLife(err)
	}
	if len(l.ran) > 0 {
		out.sampled = false // it tells more than a sample
	}
	out.life = l
	return out
}

func errUnknownLife(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "read when it ran: %w", err)
}

// life is what a backend knows of when a sandbox ran and was there.
type life struct {
	ran []driver.Incarnation
	// absent: the backend does not have the sandbox, since removedAt, which is zero where that is not known.
	absent    bool
	removedAt time.Time
}

func lifeOf(ctx context.Context, x *backend, h driver.Handle) (life, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	ran, err := x.Incarnations(ctx, h)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return life{absent: true}, nil
	}
	l := life{ran: ran}
	if err == nil && len(ran) > 0 {
		l.removedAt = ran[len(ran)-1].RemovedAt
		l.absent = !l.removedAt.IsZero()
	}
	return l, err
}

// until returns the last moment at which a sandbox was there, as far as is known.
func (l life) until(s *ledger.Sandbox, now ledger.Time) ledger.Time {
	switch {
	case !l.absent:
		return now
	case l.removedAt.IsZero():
		return max(s.ObservedAt, s.ReadyAt)
	default:
		return min(now, ledger.At(l.removedAt))
	}
}

// kill removes a sandbox, and finds out until when it was there. A backend that records that tells it afterwards.
func (e *Engine) kill(ctx context.Context, x *backend, t *task, h driver.Handle) outcome {
	bounded, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	if x.Capabilities().Records || t.row.Phase == sandbox.PhasePending {
		return e.sampleBeside(bounded, x, t, h, x.Kill)
	}
	before, unknown := lifeOf(bounded, x, h)
	out := e.sampleBeside(bounded, x, t, h, x.Kill)
	out.life = before
	switch {
	case out.err == nil && unknown != nil: // whether it has removed anything is not known
		out.err = errUnknownLife(unknown)
	case out.err != nil && unknown == nil && !before.absent: // it may have removed the sandbox, and not all that it had
		if after, err := lifeOf(ctx, x, h); err == nil && after.absent {
			if after.removedAt.IsZero() {
				after.removedAt = e.now()
			}
			if len(after.ran) == 0 {
				after.ran = before.ran
			}
			out.life = after
		}
	}
	return out
}

// followRecord counts what a sandbox is recorded to have run and was not counted before.
func (e *Engine) followRecord(tx *ledger.Tx, s *ledger.Sandbox, ran []driver.Incarnation) error {
	for _, i := range ran {
		if i.Number < s.Meter.Incarnation {
			continue
		}
		if err := e.followIncarnation(tx, s, i); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) followIncarnation(tx *ledger.Tx, s *ledger.Sandbox, i driver.Incarnation) error {
	if s.Meter.Begins(i) {
		counted, err := tx.Accounting().LastUsed(s.ID)
		if err != nil {
			return err
		}
		at := max(ledger.At(i.StartedAt), s.LeasedAt, counted)
		if err := e.count(tx, s, sandbox.PhaseAwake, at); err != nil {
			return err
		}
	}
	open, err := tx.Accounting().OpenPeriod(s.ID)
	if err != nil || open == nil || open.State != sandbox.PhaseAwake {
		return err // it is paused, or was counted to its end
	}
	if cpu := ledger.SpanOf(i.CPUTime); cpu > s.Meter.CPUMark {
		if err := tx.Accounting().AddCPU(s, cpu); err != nil {
			return err
		}
	}
	if i.StoppedAt.IsZero() {
		return nil
	}
	return e.count(tx, s, sandbox.PhaseAsleep, ledger.At(i.StoppedAt))
}

// count begins another stretch of a sandbox's usage.
func (e *Engine) count(tx *ledger.Tx, s *ledger.Sandbox, p sandbox.Phase, at ledger.Time) error {
	var book *ledger.PriceBook // what is gone costs nothing more
	if p != sandbox.PhaseGone {
		var err error
		if book, err = tx.Accounting().KeepPriceBook(s.Backend, e.books[s.Backend]); err != nil {
			return err
		}
	}
	return tx.Accounting().EnterState(s, p, at, book)
}
