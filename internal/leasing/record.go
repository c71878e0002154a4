package leasing

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// A backend that records when its sandboxes ran (sandbox.Capabilities.Records) is what usage is counted by: a
// sandbox was awake from the start to the stop that were recorded, whoever was away then and however late a
// step was settled. What the ledger has counted of them is known by the number of the last one that it has
// begun. A record that cannot be read leaves a step undone, which is then taken again.
//
// Of other backends it is asked, before a sandbox is removed, whether it had stopped before.

// readRecord reads when the sandbox of a step ran, once that step is taken, or found nothing to take. Of one that
// cannot be killed it is read too: it may have stopped long before.
func readRecord(ctx context.Context, x *backend, t *task, h sandbox.Handle, out outcome) outcome {
	switch {
	case out.err == nil && (t.action == actSave || t.action == actThaw || t.action == actDeliver || t.action == actRenew && out.rest == nil): // it goes on
		return out
	case out.err != nil && sandbox.CodeOf(out.err) != sandbox.NotFound && t.action != actKill:
		return out
	}
	ran, err := recordOf(ctx, x, h)
	if err != nil && out.err == nil {
		out.err = sandbox.Errorf(sandbox.Unavailable, "read when it ran: %w", err)
	}
	if len(ran) > 0 {
		out.ran, out.sampled = ran, false // it tells more than a sample
	}
	return out
}

// recordOf returns when a sandbox ran where its backend records that, nil where nothing is known of it.
func recordOf(ctx context.Context, x *backend, h sandbox.Handle) ([]sandbox.Incarnation, error) {
	if !x.Capabilities().Records {
		return nil, nil
	}
	return incarnations(ctx, x, h)
}

func incarnations(ctx context.Context, x *backend, h sandbox.Handle) ([]sandbox.Incarnation, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	ran, err := x.Incarnations(ctx, h)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, nil
	}
	return ran, err
}

// lastRan returns until when a sandbox ran that is to be removed, and its record with it. Failing to is no
// error: it then ran until it is removed.
func (e *Engine) lastRan(ctx context.Context, x *backend, t *task, h sandbox.Handle) []sandbox.Incarnation {
	if t.row.Phase != sandbox.PhaseAwake || x.Capabilities().Records {
		return nil
	}
	ran, err := incarnations(ctx, x, h)
	if err != nil {
		e.log.DebugContext(ctx, "leasing: asking when it ran", about(&t.row), "error", err)
	}
	return ran
}

// followRecord counts what a sandbox is recorded to have run and was not counted before. Its caller saves the row.
func (e *Engine) followRecord(tx *ledger.Tx, s *ledger.Sandbox, ran []sandbox.Incarnation) error {
	for _, i := range ran {
		if i.Number < s.Incarnation {
			continue
		}
		if err := e.followIncarnation(tx, s, i); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) followIncarnation(tx *ledger.Tx, s *ledger.Sandbox, i sandbox.Incarnation) error {
	if i.Number > s.Incarnation {
		s.Incarnation, s.CPUMark = i.Number, 0
		counted, err := tx.PeriodsOf([]string{s.ID})
		if err != nil {
			return err
		}
		at := max(ledger.At(i.StartedAt), s.LeasedAt)
		for _, p := range counted {
			at = max(at, p.EndedAt)
		}
		if err := e.count(tx, s, sandbox.PhaseAwake, at); err != nil {
			return err
		}
	}
	open, err := tx.OpenPeriod(s.ID)
	if err != nil || open == nil || open.State != sandbox.PhaseAwake {
		return err // it is paused, or was counted to its end
	}
	if cpu := ledger.SpanOf(i.CPUTime); cpu > s.CPUMark {
		if err := tx.AddCPU(s, cpu); err != nil {
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
		if book, err = tx.KeepPriceBook(s.Backend, e.books[s.Backend]); err != nil {
			return err
		}
	}
	return tx.EnterState(s, p, at, book)
}
