package ledgertest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/deliveries"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/purge"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// destroyed creates a sandbox that was used for a time, with a number of events, and is gone.
func destroyed(tx *ledger.Tx, generation int64, events int) (*ledger.Sandbox, error) {
	row := Sandbox(tx, "catan-7", generation)
	row.Desired, row.Ending.By, row.Phase, row.Ending.At, row.Ending.DestroyedAt = ledger.Gone, sandbox.EndedByTTL,
		sandbox.PhaseGone, tx.Now, tx.Now
	if err := tx.CreateSandbox(row); err != nil {
		return nil, err
	}
	book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, sandbox.PriceBook{Name: "free"})
	err = errors.Join(err, accounting.In(tx).EnterState(row, sandbox.PhaseAwake, tx.Now.Add(-1), book),
		accounting.In(tx).EnterState(row, sandbox.PhaseGone, tx.Now, nil))
	return row, errors.Join(err, tx.UpdateRow(row, func(row *ledger.Sandbox) (err error) {
		for range events {
			err = errors.Join(err, tx.AppendSandboxEvent(row, sandbox.EventRenewed, nil))
		}
		return err
	}))
}

// purged creates two destroyed sandboxes and purges the first.
func purged(t *testing.T, store *ledger.Store) (gone, kept *ledger.Sandbox) {
	t.Helper()
	write(t, store, func(tx *ledger.Tx) (err error) {
		if err := Environment(tx, "catan-7"); err != nil {
			return err
		}
		if gone, err = destroyed(tx, 1, 3); err != nil {
			return err
		}
		return tx.UpdateRow(gone, func(gone *ledger.Sandbox) error {
			gone.Origin.LedgerID = "another"
			return nil
		})
	})
	write(t, store, func(tx *ledger.Tx) (err error) {
		_, err = accounting.In(tx).TakeUnrolled(10)
		for _, cost := range []sandbox.NanoUSD{40, 2} {
			err = errors.Join(err, accounting.In(tx).AddSandboxCosts(map[string]sandbox.NanoUSD{gone.ID: cost}))
		}
		if err != nil {
			return err
		}
		_, err = purge.In(tx).Sandboxes([]ledger.Sandbox{*gone},
			func(x *execs.Exec) []string { return []string{"output of " + x.ID} })
		return err
	})
	write(t, store, func(tx *ledger.Tx) (err error) {
		kept, err = destroyed(tx, 2, 2)
		return err
	})
	return gone, kept
}

func (s suite) purging(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	gone, kept := purged(t, store)
	read(t, store, func(tx *ledger.Tx) error {
		row, err := tx.Sandbox(gone.ID)
		if err != nil {
			return err
		}
		if row.Tombstone == nil || row.Tombstone.Cost != 42 || row.Lease() != gone.Lease() || row.AgentDID != gone.AgentDID ||
			row.Generation != 1 || row.Phase != sandbox.PhaseGone || row.Ending.By != gone.Ending.By || row.LastSequence != 3 ||
			row.Tombstone.LastEventID == 0 {
			t.Errorf("of %+v is left %+v", gone, row)
		}
		periods, err := accounting.In(tx).PeriodsOf([]string{gone.ID, kept.ID})
		since, err2 := accounting.In(tx).DetailSince()
		if len(periods) != 1 || periods[0].SandboxID != kept.ID || since != gone.Ending.DestroyedAt+1 {
			t.Errorf("the periods %+v are left, and detail since %d", periods, since)
		}
		events, err3 := tx.Events(sandbox.EventFilter{})
		feed, err4 := tx.Feed()
		if len(events) != 2 || events[0].SandboxID != kept.ID || feed.Purged != row.Tombstone.LastEventID ||
			feed.Last != events[1].ID {
			t.Errorf("the events %+v are left, of the feed %+v", events, feed)
		}
		labels, err5 := tx.AdoptedFrom("catan-7")
		ever, err6 := tx.HasSandboxes()
		if len(labels) != 1 || labels[0] != "another" || !ever {
			t.Errorf("adopted from %v; the ledger knew sandboxes: %t", labels, ever)
		}
		return errors.Join(err, err2, err3, err4, err5, err6)
	})
	err := store.Write(t.Context(), func(tx *ledger.Tx) error {
		again := Sandbox(tx, "catan-7", 3)
		again.ID = gone.ID
		return tx.CreateSandbox(again)
	})
	if sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("the id was reused: %v", err)
	}
	err = store.Write(t.Context(), func(tx *ledger.Tx) error {
		return tx.Update(gone.ID, func(row *ledger.Sandbox) error {
			row.Owner = "another"
			return nil
		})
	})
	if sandbox.CodeOf(err) != sandbox.Internal {
		t.Errorf("a purged sandbox was changed: %v", err)
	}
}

func (s suite) unrolledUsage(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	var ids [3]string
	write(t, store, func(tx *ledger.Tx) error {
		err := Environment(tx, "catan-7")
		for i := range ids {
			row, err2 := destroyed(tx, int64(i+1), 1)
			err = errors.Join(err, err2)
			ids[i] = row.ID
		}
		return err
	})
	retirable := func(before micro.Time, want int) {
		t.Helper()
		read(t, store, func(tx *ledger.Tx) error {
			rows, err := purge.In(tx).Purgeable(before, 10)
			if len(rows) != want {
				t.Errorf("%d can be purged, want %d", len(rows), want)
			}
			return err
		})
	}
	retirable(micro.Never, 0)
	write(t, store, func(tx *ledger.Tx) error { _, err := accounting.In(tx).TakeUnrolled(2); return err })
	retirable(micro.Never, 2)
	retirable(1, 0)
	call := sandbox.LLMCall{ID: "c-1", EnvironmentID: "catan-7", SandboxID: ids[0], StartedAt: time.Now()}
	record := func(outcome sandbox.LLMOutcome) {
		t.Helper()
		call.Outcome = outcome
		write(t, store, func(tx *ledger.Tx) error {
			_, err := modelcalls.In(tx).Record([]sandbox.LLMCall{call})
			return err
		})
	}
	record(sandbox.LLMRunning)
	retirable(micro.Never, 1)
	record(sandbox.LLMCompleted)
	retirable(micro.Never, 2)
}

func (s suite) eventsGoFirst(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	var row *ledger.Sandbox
	write(t, store, func(tx *ledger.Tx) (err error) {
		err = Environment(tx, "catan-7")
		row, _ = destroyed(tx, 1, 5)
		return err
	})
	for _, want := range []int64{3, 1, 0} { // never the last event
		write(t, store, func(tx *ledger.Tx) error {
			if n, err := purge.In(tx).Events(row, 3); err != nil || n != want {
				t.Errorf("%d events were removed, want %d: %v", n, want, err)
			}
			return nil
		})
	}
	for from, want := range map[int64]sandbox.Code{
		0: sandbox.EventSequenceExpired,
		3: sandbox.EventSequenceExpired,
		4: "",
		5: "",
		6: sandbox.Invalid,
	} {
		err := store.Read(t.Context(), func(tx *ledger.Tx) error {
			_, err := tx.Events(sandbox.EventFilter{SandboxID: row.ID, FromSequence: from})
			return err
		})
		if sandbox.CodeOf(err) != want {
			t.Errorf("from %d: %v, want %q", from, err, want)
		}
	}
}

// retentionAcrossSteps: whatever steps the clock makes, nothing is removed before it is an hour old, and a corrected
// clock does not prolong retention much.
func (s suite) retentionAcrossSteps(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, steps := range map[string][]time.Duration{
		"forward":                    {year},
		"back":                       {-year},
		"forward by mistake":         {year, -year},
		"back by mistake":            {-year, year},
		"forward twice":              {year, year},
		"forward, back and forward":  {year, -year, year},
		"back beyond, a bit forward": {-year, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := NewHost()
			store, _ := host.Open(t, s.fresh(t))
			made := make(map[micro.Time]time.Duration) // times by the clock, with the time since boot
			note := func() {
				write(t, store, func(tx *ledger.Tx) error { made[tx.Now] = host.Boot(); return nil })
			}
			note()
			for _, step := range steps {
				host.Pass(10 * time.Minute)
				note()
				host.Step(step)
				note()
			}
			for range 8 {
				host.Pass(10 * time.Minute)
				read(t, store, func(tx *ledger.Tx) error {
					before, err := purge.In(tx).RetainedSince(micro.SpanOf(ttl))
					for at, boot := range made {
						if age := host.Boot() - boot; at < before && age <= ttl {
							t.Errorf("a row that is %s old is not retained", age)
						}
					}
					return err
				})
			}
			host.Pass(2 * ttl)
			write(t, store, func(tx *ledger.Tx) error {
				if before, err := purge.In(tx).RetainedSince(micro.SpanOf(ttl)); err != nil ||
					before != tx.Now.Add(-micro.SpanOf(ttl)) {
					t.Errorf("long after, rows are retained since %d, at %d: %v", before, tx.Now, err)
				}
				return nil
			})
		})
	}
}

func (s suite) oldRows(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	store := open(t, s.fresh(t), func() time.Time { return now })
	at := func(second int64) {
		t.Helper()
		now = time.Unix(1_000_000+second, 0)
		write(t, store, func(tx *ledger.Tx) error {
			id := fmt.Sprint("e", second)
			err := Environment(tx, id)
			err2 := tx.UpdateEnvironment(id, func(env *ledger.Environment) error {
				env.Status = sandbox.EnvironmentDestroyed
				return nil
			})
			_, err3 := deliveries.In(tx).Create([]deliveries.Delivery{
				{ID: id, ReceivedAt: tx.Now, Body: []byte("{}"), Status: sandbox.DeliveryUnmatched},
			})
			_, _, err4 := drift.In(tx).See(drift.Finding{Kind: sandbox.DriftOrphan, SandboxID: id})
			row := Sandbox(tx, id, 1)
			err5 := tx.CreateSandbox(row)
			return errors.Join(err, err2,
				err3, err4, err5, accounting.In(tx).KeepUsageSamples([]accounting.UsageSample{{SandboxID: row.ID, At: tx.Now}}, 1),
				drift.In(tx).ResolveAll(id, "gone"), tx.AppendEnvironmentEvent(id, sandbox.EventEnvironmentDestroyed, nil))
		})
	}
	for second := range int64(5) {
		at(second)
	}
	write(t, store, func(tx *ledger.Tx) error { // an open finding and a living environment are not history
		_, _, err := drift.In(tx).See(drift.Finding{Kind: sandbox.DriftOrphan, SandboxID: "open"})
		_, err2 := deliveries.In(tx).Create([]deliveries.Delivery{
			// A message of another environment may have an old one's id.
			{ID: "e0", EnvironmentID: "living", ReceivedAt: tx.Now, Body: []byte("{}"), Status: sandbox.DeliveryUnmatched},
		})
		return errors.Join(err, err2, Environment(tx, "living"))
	})
	before := micro.At(time.Unix(1_000_003, 0))
	for name, remove := range map[string]func(r purge.Purger, before micro.Time, limit int) (int64, error){
		"environments":     purge.Purger.Environments,
		"events":           purge.Purger.EnvironmentEvents,
		"deliveries":       purge.Purger.Deliveries,
		"findings":         purge.Purger.Findings,
		"samples of usage": purge.Purger.UsageSamples,
	} {
		for _, want := range []int64{2, 1, 0} {
			write(t, store, func(tx *ledger.Tx) error {
				if n, err := remove(purge.In(tx), before, 2); err != nil || n != want {
					t.Errorf("%s: %d were removed, want %d: %v", name, n, want, err)
				}
				return nil
			})
		}
	}
	read(t, store, func(tx *ledger.Tx) error {
		events, err := tx.Events(sandbox.EventFilter{})
		keys := []deliveries.Key{{ID: "e0", EnvironmentID: "living"}}
		for second := range 5 {
			keys = append(keys, deliveries.Key{ID: fmt.Sprint("e", second)})
		}
		known, err2 := deliveries.In(tx).Known(keys)
		findings, err3 := drift.In(tx).List(sandbox.DriftFilter{})
		if len(events) != 2 || events[0].EnvironmentID != "e3" || len(known) != 3 || len(findings) != 3 {
			t.Errorf("left are the events %+v, deliveries %+v and findings %+v", events, known, findings)
		}
		return errors.Join(err, err2, err3)
	})
}
