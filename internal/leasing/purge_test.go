package leasing_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestCostsAreTheSameAfterRetention compares whole reports of random usage before and after the purge of some
// sandboxes. They are equal, unless the query cuts days for which only daily sums are kept.
func TestCostsAreTheSameAfterRetention(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		b := newBill(t, r)
		for len(b.sandboxes) > 0 {
			b.use()
			b.destroySome()
			if rapid.IntRange(0, 3).Draw(r, "roll up") > 0 {
				b.rollUp()
			}
			b.now = b.now.Add(time.Duration(rapid.IntRange(0, 60).Draw(r, "passes")) * time.Minute)
			var asked []asked
			for range 8 {
				asked = append(asked, b.ask(b.query()))
			}
			if _, err := b.engine.Purge(b.Context(),
				time.Duration(rapid.IntRange(1, 50).Draw(r, "hours"))*time.Hour); err != nil {
				r.Fatal(err)
			}
			for _, before := range asked {
				b.checkSame(before, b.ask(before.query))
			}
			total := b.costs(sandbox.CostQuery{}).Total
			for _, group := range []sandbox.CostGroup{
				sandbox.CostByEnvironment, sandbox.CostByAgent, sandbox.CostByDay, sandbox.CostByMonth,
			} {
				if by := b.costs(sandbox.CostQuery{GroupBy: group}).Total; by.Gross != total.Gross {
					r.Fatalf("by %s it is %+v, by lease %+v", group, by, total)
				}
			}
		}
	})
}

// asked is a query and its answer.
type asked struct {
	query  sandbox.CostQuery
	report sandbox.CostReport
	err    error
}

func (b *bill) ask(q sandbox.CostQuery) asked {
	report, err := b.engine.Costs(b.Context(), q)
	return asked{q, report, err}
}

// checkSame compares the answers before and after retention.
func (b *bill) checkSame(before, after asked) {
	b.Helper()
	cuts := cutsADay(before.query.From) || cutsADay(before.query.To)
	switch {
	case after.err == nil && before.err != nil:
		b.Fatalf("%+v: it was %v, and is known after retention", before.query, before.err)
	case after.err == nil && !reflect.DeepEqual(before.report, after.report):
		b.Fatalf("%+v: it was\n%+v\nand is after retention\n%+v", before.query, before.report, after.report)
	case after.err != nil && (sandbox.CodeOf(after.err) != sandbox.Invalid || !cuts):
		b.Fatalf("%+v: after retention: %v", before.query, after.err)
	}
}

func cutsADay(t time.Time) bool { return !t.IsZero() && !t.Equal(t.Truncate(24*time.Hour)) }

// destroySome destroys the bill's last sandboxes.
func (b *bill) destroySome() {
	b.Helper()
	n := rapid.IntRange(0, len(b.sandboxes)).Draw(b.T, "destroyed")
	b.write(func(tx *ledger.Tx) error {
		var err error
		for _, s := range b.sandboxes[len(b.sandboxes)-n:] {
			err = errors.Join(err, tx.UpdateRow(s, func(s *ledger.Sandbox) error {
				s.Desired, s.Ending.By, s.Phase, s.Ending.At, s.Ending.DestroyedAt = ledger.Gone, sandbox.EndedByTTL,
					sandbox.PhaseGone, tx.Now, tx.Now
				return accounting.In(tx).EnterState(s, sandbox.PhaseGone, tx.Now, nil)
			}))
		}
		return err
	})
	b.sandboxes = b.sandboxes[:len(b.sandboxes)-n]
}

// graveyard stores destroyed sandboxes with their events.
func (w *world) graveyard(sandboxes, events int) {
	w.Helper()
	err := w.store.Write(w.Context(), func(tx *ledger.Tx) error {
		for range sandboxes {
			s := ledgertest.Sandbox(tx, game, 0)
			s.LeaseID = nil
			s.Desired, s.Ending.By, s.Phase, s.Ending.At, s.Ending.DestroyedAt = ledger.Gone, sandbox.EndedByTTL,
				sandbox.PhaseGone, tx.Now, tx.Now
			for range events {
				if err := tx.AppendSandboxEvent(s, sandbox.EventRenewed, nil); err != nil {
					return err
				}
			}
			if err := tx.CreateSandbox(s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// TestSeveralReconcilersPurgeTheSameOnce runs a purge on three engines at the same time. One of them gives up on the way,
// and another one finishes later.
func TestSeveralReconcilersPurgeTheSameOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.graveyard(500, 3)
		later(retention.DefaultTTL + time.Second)
		hasty, giveUp := context.WithTimeout(w.Context(), 15*time.Millisecond)
		defer giveUp()
		type result struct {
			done retention.Purged
			err  error
		}
		results := make(chan result)
		for _, ctx := range []context.Context{hasty, w.Context(), w.Context()} {
			e := w.newEngine(w.store)
			defer func() { _ = e.Close() }()
			go func() {
				done, err := e.Purge(ctx, retention.DefaultTTL)
				results <- result{done, err}
			}()
		}
		var sandboxes, events int64
		gaveUp := 0
		for range 3 {
			r := <-results
			if errors.Is(r.err, context.DeadlineExceeded) {
				gaveUp++
			} else if r.err != nil {
				t.Error(r.err)
			}
			sandboxes, events = sandboxes+r.done.Sandboxes, events+r.done.Events
		}
		if sandboxes != 500 || events != 1501 || gaveUp != 1 { // one is the environment's
			t.Errorf("%d sandboxes and %d events were removed, want 500 and 1501; %d gave up", sandboxes, events, gaveUp)
		}
	})
}

// TestOneBatchIsBounded purges a sandbox with more events than a batch.
func TestOneBatchIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.graveyard(1, 4500)
		w.graveyard(70, 30)
		later(retention.DefaultTTL + time.Second)
		began := time.Now()
		done, err := w.engine.Purge(w.Context(), retention.DefaultTTL)
		if err != nil || done.Sandboxes != 71 || done.Events != 4500+70*30+1 {
			t.Errorf("removed %+v: %v", done, err)
		}
		// Nine batches for the large one, with at most 500 events each, and five for the others, with pauses between them.
		if pauses := time.Since(began) / (20 * time.Millisecond); pauses != 13 {
			t.Errorf("there were %d pauses between batches", pauses)
		}
	})
}

// TestALoopPurgesWhatIsOldEnough: a reconciler removes sandboxes that were destroyed cleanup_ttl ago.
func TestALoopPurgesWhatIsOldEnough(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cleanup = 2 * time.Hour
		w.resync = time.Minute
		w.startLoop()
		w.environment()
		w.acquire(ann)
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			t.Fatal(err)
		}
		later(2 * time.Hour)
		if l := w.lease(annLease); !l.PurgedAt.IsZero() {
			t.Errorf("it was purged at %s, and had ended at %s", l.PurgedAt, l.EndedAt)
		}
		later(10 * time.Minute)
		if l := w.lease(annLease); l.PurgedAt.IsZero() || l.Status != sandbox.LeaseDestroyed ||
			l.EndedBy != sandbox.EndedByRelease {
			t.Errorf("after that the lease is %+v", l)
		}
	})
}

func TestTooShortRetentionIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, ttl := range []time.Duration{-time.Hour, 0, retention.MinTTL - 1} {
			if _, err := w.engine.Purge(w.Context(), ttl); sandbox.CodeOf(err) != sandbox.Invalid {
				t.Errorf("%s: %v", ttl, err)
			}
		}
	})
}

func TestAPurgedLeaseKeepsTheCostOfItsModelCallsAndItsEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withModel)
		w.cleanup = time.Hour
		w.startLoop()
		l := w.acquire(ann)
		w.backend.LogLLM(w.gatewayRef(), w.called("a", l, sandbox.LLMCompleted))
		later(time.Minute)
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			t.Fatal(err)
		}
		later(time.Minute)
		before := w.lease(annLease)
		later(2 * time.Hour)
		if after := w.lease(annLease); after.PurgedAt.IsZero() || after.LLM.Cost != before.LLM.Cost || after.EndReason != before.EndReason {
			t.Errorf("it cost $%s and $%s of models and ended by %q; purged, $%s and $%s by %q",
				before.Cost, before.LLM.Cost, before.EndReason, after.Cost, after.LLM.Cost, after.EndReason)
		}
	})
}
