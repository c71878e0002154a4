// Package ledgertest is the test suite for every database of the ledger. It also creates ledgers for tests.
package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Run runs the suite. fresh returns the URL of a ledger that does not exist yet.
func Run(t *testing.T, fresh func(t *testing.T) string) {
	s := suite{fresh}
	t.Run("AnIDIsMadeOnceAndKept", s.identity)
	t.Run("ALedgerWhoseFirstStartDiedIsOpened", s.diedAtFirstStart)
	t.Run("ManyMayMakeTheSameLedgerAtOnce", s.racingFirstOpens)
	t.Run("AFailingWriteUndoesOnlyItself", s.failingWrite)
	t.Run("APanicIsAnError", s.panics)
	t.Run("AWriteOfAnEndedRequestDoesNotRun", s.endedRequest)
	t.Run("CommitsOfOthersAreNoticed", s.othersCommits)
	t.Run("ARefusedWriteWakesNoWaiter", s.refusedWrite)
	t.Run("SavingARowStoresWhatChanged", s.saving)
	t.Run("ASandboxChangesWithinAnUpdateOnly", s.updating)
	t.Run("SequencesHaveNoGaps", s.sequences)
	t.Run("StatesThatCannotBeAreRefused", s.impossibleStates)
	t.Run("UsagePeriodsDoNotOverlap", s.periods)
	t.Run("UsageThatMidnightDividesBeganBefore", s.midnights)
	t.Run("DueSandboxesAreFoundUntilClaimed", s.due)
	t.Run("ASandboxIsWantedUntilItsLeaseEnds", s.wanted)
	t.Run("TheSameDriftIsOneFindingUntilResolved", s.drift)
	t.Run("PriceBooksAreKeptOnce", s.priceBooks)
	t.Run("HowFarAGatewaysLogIsRecordedIsKept", s.egressCursor)
	t.Run("CallsOfModelsCountOnce", s.llmCalls)
	t.Run("AgentsAreListedByState", s.agents)
	t.Run("LeasesAreListedByStatus", s.leaseStatuses)
	t.Run("WhatIsPurgedLeavesATombstone", s.purging)
	t.Run("UsageIsCountedBeforeItIsPurged", s.unrolledUsage)
	t.Run("EventsGoBeforeTheirSandbox", s.eventsGoFirst)
	t.Run("StepsOfTheClockRemoveNothingEarly", s.retentionAcrossSteps)
	t.Run("SamplesOfUsageAreApartAndOfOneClock", s.usageSamples)
	t.Run("ReadingsOfCompanionsCountOnceForEachStart", s.companionUsage)
	t.Run("OldRowsAreRemovedAndNoOthers", s.oldRows)
	t.Run("ALedgerThatIsOlderThanItsInstanceIssuesNoGenerationTwice", s.witness)
	t.Run("AStepOfTheClockMovesWhatLives", s.clockSteps)
	t.Run("TimeThatPassedIsNotAStep", s.suspended)
	t.Run("AStepIsDealtWithOnce", s.clockStepsOnce)
	t.Run("AStepBetweenTwoProcessesIsSeen", s.stepBetweenProcesses)
	t.Run("AClockThatWentBackOverARebootIsSeen", s.clockBackOverReboot)
}

type suite struct{ fresh func(t *testing.T) string }

func open(t *testing.T, url string, now func() time.Time) *ledger.Store {
	t.Helper()
	return Open(t, url, ledger.Options{Now: now, Poll: 10 * time.Millisecond})
}

func write(t *testing.T, s *ledger.Store, fn func(tx *ledger.Tx) error) {
	t.Helper()
	if err := s.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s *ledger.Store, fn func(tx *ledger.Tx) error) {
	t.Helper()
	if err := s.Read(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// Environment creates an environment's row.
func Environment(tx *ledger.Tx, id string) error {
	return tx.CreateEnvironment(&ledger.Environment{
		ID:        id,
		Owner:     "test",
		Type:      sandbox.TypeCustom,
		Backend:   sandbox.Docker,
		Instance:  "engine",
		Spec:      sandbox.EnvironmentSpec{}.WithDefaults(),
		Status:    sandbox.EnvironmentOpen,
		Ended:     ledger.EnvironmentEnd{Conditions: []string{}},
		OpenedAt:  tx.Now,
		CreatedAt: tx.Now,
	})
}

// Sandbox returns a due row of a generation.
func Sandbox(tx *ledger.Tx, environment string, generation int64) *ledger.Sandbox {
	lease := sandbox.LeaseID("did:plc:ann", environment)
	return &ledger.Sandbox{
		ID:            sandbox.RandomIDs(sandbox.SandboxIDLength),
		EnvironmentID: environment,
		Backend:       sandbox.Docker,
		Instance:      "engine",
		Container: ledger.Container{
			EnvironmentType: sandbox.TypeCustom,
			Image:           "image",
			MemoryMB:        64,
			CPUMillis:       100,
			PIDs:            32,
			DiskMB:          1024,
			Network:         sandbox.NetworkNone,
			LLM:             map[string]sandbox.LLMAPI{},
			Env:             map[string]string{},
			SleepMode:       sandbox.SleepPause,
		},
		Tenure: ledger.NewTenure(&lease, generation, "did:plc:ann", "test", tx.Now),
		Terms: ledger.Terms{
			TTL: 1, MaxLifetime: 1, ExpiryConditions: []string{"game.finished"}, Labels: map[string]string{},
		},
		Desired:  ledger.Present,
		Phase:    sandbox.PhasePending,
		Status:   ledger.Status{State: sandbox.SandboxPending},
		Schedule: ledger.Schedule{DueAt: tx.Now},
	}
}

func (s suite) identity(t *testing.T) {
	t.Parallel()
	url := s.fresh(t)
	a, b := open(t, url, nil), open(t, url, nil)
	other := open(t, s.fresh(t), nil)
	if len(a.ID()) != sandbox.LedgerIDLength || a.ID() != b.ID() || a.ID() == other.ID() {
		t.Errorf("ids %q, %q and of another ledger %q", a.ID(), b.ID(), other.ID())
	}
}

// diedAtFirstStart interrupts the first start when it asks for the ledger's id. Only the schema exists then.
func (s suite) diedAtFirstStart(t *testing.T) {
	t.Parallel()
	url := s.fresh(t)
	ctx, die := context.WithCancel(t.Context())
	defer die()
	ids := func(n int) string {
		die()
		return sandbox.RandomIDs(n)
	}
	if store, err := ledger.Open(ctx, url, ledger.Options{IDs: ids}); err == nil {
		t.Fatal("the first start did not die", store.Close())
	}
	if id := open(t, url, nil).ID(); len(id) != sandbox.LedgerIDLength {
		t.Errorf("the ledger has the id %q", id)
	}
}

func (s suite) racingFirstOpens(t *testing.T) {
	t.Parallel()
	url := s.fresh(t)
	var wg sync.WaitGroup
	ids := make([]string, 12)
	for i := range ids {
		wg.Go(func() {
			store, err := ledger.Open(t.Context(), url, ledger.Options{})
			if err != nil {
				t.Errorf("open %d: %v", i, err)
				return
			}
			ids[i] = store.ID()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("ids differ: %v", ids)
		}
	}
}

func (s suite) failingWrite(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	var wg sync.WaitGroup
	failure := errors.New("wanted")
	for i := range 100 {
		wg.Go(func() {
			err := store.Write(t.Context(), func(tx *ledger.Tx) error {
				if err := Environment(tx, fmt.Sprintf("e%03d", i)); err != nil {
					return err
				}
				if i%2 == 1 {
					return failure
				}
				return nil
			})
			if i%2 == 1 && !errors.Is(err, failure) || i%2 == 0 && err != nil {
				t.Errorf("write %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	read(t, store, func(tx *ledger.Tx) error {
		rows, err := tx.Environments()
		if len(rows) != 50 {
			t.Errorf("%d environments, want the 50 whose write succeeded", len(rows))
		}
		return err
	})
}

func (s suite) panics(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	err := store.Write(t.Context(), func(tx *ledger.Tx) error {
		if err := Environment(tx, "e"); err != nil {
			return err
		}
		panic("wanted")
	})
	if sandbox.CodeOf(err) != sandbox.Internal {
		t.Errorf("%v", err)
	}
	write(t, store, func(tx *ledger.Tx) error { return Environment(tx, "e") }) // no trace of it is left
	err = store.Read(t.Context(), func(*ledger.Tx) error { panic("wanted") })
	if sandbox.CodeOf(err) != sandbox.Internal {
		t.Errorf("of a read: %v", err)
	}
}

func (s suite) endedRequest(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := store.Write(ctx, func(*ledger.Tx) error { t.Error("it ran"); return nil })
	if sandbox.CodeOf(err) != sandbox.Unavailable || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func (s suite) othersCommits(t *testing.T) {
	t.Parallel()
	url := s.fresh(t)
	a, b := open(t, url, nil), open(t, url, nil)
	changed := a.Changed()
	write(t, b, func(tx *ledger.Tx) error { return Environment(tx, "e") })
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Error("another's commit was not noticed")
	}
}

func (s suite) refusedWrite(t *testing.T) {
	t.Parallel()
	url := s.fresh(t)
	store := Open(t, url, ledger.Options{Poll: time.Hour, NoListen: true})
	ended, end := context.WithCancel(t.Context())
	end()
	refuse := func(ctx context.Context) {
		if err := store.Write(ctx, func(*ledger.Tx) error { return errors.New("no") }); err == nil {
			t.Fatal("a write that fails succeeded")
		}
	}
	refuse(t.Context()) // commits of the opening are announced before this
	changed, scheduled := store.Changed(), store.Scheduled()
	refuse(t.Context())
	refuse(ended)
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		case <-time.After(50 * time.Millisecond): // the answer comes before the announcement
			return false
		}
	}
	if isClosed(changed) || isClosed(scheduled) {
		t.Error("a write that was not committed was announced")
	}
	write(t, store, func(tx *ledger.Tx) error { return Environment(tx, "e") })
	if !isClosed(changed) || !isClosed(scheduled) {
		t.Error("a commit was not announced")
	}
}

func (s suite) sequences(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	var id string
	write(t, store, func(tx *ledger.Tx) error {
		if err := Environment(tx, "e"); err != nil {
			return err
		}
		row := Sandbox(tx, "e", 1)
		id = row.ID
		return tx.CreateSandbox(row)
	})
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			write(t, store, func(tx *ledger.Tx) error {
				return tx.Update(id,
					func(row *ledger.Sandbox) error { return tx.AppendSandboxEvent(row, sandbox.EventRenewed, nil) })
			})
		})
	}
	wg.Wait()
	read(t, store, func(tx *ledger.Tx) error {
		events, err := tx.Events(sandbox.EventFilter{SandboxID: id})
		for i, e := range events {
			if e.Sequence != int64(i+1) {
				t.Fatalf("event %d has sequence %d", i, e.Sequence)
			}
		}
		if len(events) != 60 {
			t.Errorf("%d events, want 60", len(events))
		}
		tail, err2 := tx.Events(sandbox.EventFilter{SandboxID: id, FromSequence: 58})
		if len(tail) != 2 {
			t.Errorf("%d events after 58, want 2", len(tail))
		}
		_, never := tx.Events(sandbox.EventFilter{SandboxID: id, FromSequence: 61})
		if sandbox.CodeOf(never) != sandbox.Invalid {
			t.Errorf("a sequence never issued: %v", never)
		}
		return errors.Join(err, err2)
	})
}

func (s suite) impossibleStates(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	write(t, store, func(tx *ledger.Tx) error { return Environment(tx, "e") })
	for name, spoil := range map[string]func(*ledger.Sandbox){
		"gone but wanted":             func(r *ledger.Sandbox) { r.Phase = sandbox.PhaseGone },
		"unwanted without a reason":   func(r *ledger.Sandbox) { r.Desired = ledger.Gone },
		"wanted with an end":          func(r *ledger.Sandbox) { r.Ending.By = sandbox.EndedByTTL },
		"unknown phase":               func(r *ledger.Sandbox) { r.Phase = "sleeping" },
		"unknown reason":              func(r *ledger.Sandbox) { r.Desired, r.Ending.By = ledger.Gone, "boredom" },
		"of an environment not there": func(r *ledger.Sandbox) { r.EnvironmentID = "nowhere" },
	} {
		err := store.Write(t.Context(), func(tx *ledger.Tx) error {
			row := Sandbox(tx, "e", 1)
			spoil(row)
			return tx.CreateSandbox(row)
		})
		if err == nil {
			t.Errorf("%s: was stored", name)
		}
	}
}

func (s suite) periods(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	store := open(t, s.fresh(t), func() time.Time { return now })
	var row *ledger.Sandbox
	write(t, store, func(tx *ledger.Tx) error {
		row = Sandbox(tx, "e", 1)
		return errors.Join(Environment(tx, "e"), tx.CreateSandbox(row))
	})
	enter := func(p sandbox.Phase, after, cpu int64) {
		t.Helper()
		now = now.Add(time.Duration(after) * time.Second)
		write(t, store, func(tx *ledger.Tx) error {
			book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, sandbox.PriceBook{Name: "free"})
			return errors.Join(err, accounting.In(tx).AddCPU(row, micro.Span(cpu*1e6), tx.Now),
				accounting.In(tx).EnterState(row, p, tx.Now, book))
		})
	}
	enter(sandbox.PhaseAwake, 0, 0)
	enter(sandbox.PhaseAwake, 10, 3) // the same state again: the period continues
	enter(sandbox.PhaseAsleep, 10, 5)
	enter(sandbox.PhaseAwake, 10, 5)
	enter(sandbox.PhaseGone, 10, 1) // a lower reading belongs to a new start
	read(t, store, func(tx *ledger.Tx) error {
		periods, err := accounting.In(tx).PeriodsOf([]string{row.ID})
		want := []struct {
			state        sandbox.Phase
			seconds, cpu int64
		}{{sandbox.PhaseAwake, 20, 5}, {sandbox.PhaseAsleep, 10, 0}, {sandbox.PhaseAwake, 10, 1}}
		if len(periods) != len(want) {
			t.Fatalf("%d periods, want %d", len(periods), len(want))
		}
		for i, p := range periods {
			if p.State != want[i].state || int64(p.EndedAt-p.StartedAt) != want[i].seconds*1e6 ||
				int64(p.CPU) != want[i].cpu*1e6 {
				t.Errorf("period %d is %+v, want %+v", i, p, want[i])
			}
			if i > 0 && p.StartedAt != periods[i-1].EndedAt {
				t.Errorf("period %d does not begin where the last one ended", i)
			}
		}
		return err
	})
}

func (s suite) wanted(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	var row *ledger.Sandbox
	write(t, store, func(tx *ledger.Tx) error {
		row = Sandbox(tx, "e", 1)
		return errors.Join(Environment(tx, "e"), tx.CreateSandbox(row))
	})
	look := func(id string, want bool) {
		t.Helper()
		read(t, store, func(tx *ledger.Tx) error {
			is, err := tx.IsWanted(id)
			if is != want {
				t.Errorf("that sandbox %q is wanted is %t", id, is)
			}
			return err
		})
	}
	look(row.ID, true)
	look("another", false)
	write(t, store, func(tx *ledger.Tx) error {
		return tx.UpdateRow(row, func(row *ledger.Sandbox) error {
			row.End(ledger.Ending{At: tx.Now, By: sandbox.EndedByRelease}, tx.Now)
			return nil
		})
	})
	look(row.ID, false)
}

func (s suite) due(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	store := open(t, s.fresh(t), func() time.Time { return now })
	var row *ledger.Sandbox
	write(t, store, func(tx *ledger.Tx) error {
		row = Sandbox(tx, "e", 1)
		row.Schedule.DueAt = tx.Now.Add(5e6)
		return errors.Join(Environment(tx, "e"), tx.CreateSandbox(row))
	})
	look := func(instance string, want int, next micro.Time) {
		t.Helper()
		read(t, store, func(tx *ledger.Tx) error {
			ids, err := tx.DueSandboxes(instance, 10)
			at, err2 := tx.NextDue(instance)
			if len(ids) != want || at != next {
				t.Errorf("%d due and the next at %d, want %d and %d", len(ids), at, want, next)
			}
			return errors.Join(err, err2)
		})
	}
	look("engine", 0, row.Schedule.DueAt)
	now = now.Add(5 * time.Second)
	look("engine", 1, row.Schedule.DueAt)
	read(t, store, func(tx *ledger.Tx) error {
		at, err := tx.DueAfter("engine", tx.Now-1)
		at2, err2 := tx.DueAfter("engine", tx.Now)
		if at != tx.Now || at2 != micro.Never {
			t.Errorf("the next ones are due at %d and %d, want now and never", at, at2)
		}
		return errors.Join(err, err2)
	})
	look("another engine", 0, micro.Never)
	write(t, store, func(tx *ledger.Tx) error {
		return tx.UpdateRow(row, func(row *ledger.Sandbox) error {
			row.Claim.Token, row.Claim.Until = "c", tx.Now.Add(1e6)
			return nil
		})
	})
	look("engine", 0, row.Claim.Until)
	write(t, store, func(tx *ledger.Tx) error { return tx.ExtendClaims(map[string]string{"c": row.ID}, tx.Now.Add(3e6)) })
	now = now.Add(2 * time.Second)
	look("engine", 0, micro.At(now.Add(time.Second)))
	now = now.Add(2 * time.Second)
	look("engine", 1, micro.At(now.Add(-time.Second)))
	write(t, store, func(tx *ledger.Tx) error { // returned while its heartbeat was under way
		err := tx.UpdateRow(row, func(row *ledger.Sandbox) error {
			row.Claim.Until = 0
			return nil
		})
		return errors.Join(err, tx.ExtendClaims(map[string]string{"c": row.ID}, tx.Now.Add(3e6)))
	})
	look("engine", 1, row.Schedule.DueAt)
}

func (s suite) drift(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	see := func(observed string) (f *drift.Finding, isNew bool) {
		t.Helper()
		write(t, store, func(tx *ledger.Tx) (err error) {
			f, isNew, err = drift.In(tx).See(drift.Finding{
				Kind:      sandbox.DriftChanged,
				SandboxID: "s",
				Field:     "memory_mb",
				Expected:  "64",
				Observed:  observed,
			})
			return err
		})
		return f, isNew
	}
	if _, isNew := see("32"); !isNew {
		t.Error("the first look is not new")
	}
	if f, isNew := see("16"); isNew || f.Looks != 2 || f.Observed != "16" {
		t.Errorf("the second look: %+v, new %t", f, isNew)
	}
	write(t, store, func(tx *ledger.Tx) error { return drift.In(tx).ResolveAll("s", "restored") })
	if _, isNew := see("32"); !isNew {
		t.Error("after it was resolved it is not new")
	}
	read(t, store, func(tx *ledger.Tx) error {
		all, err := drift.In(tx).List(sandbox.DriftFilter{})
		open, err2 := drift.In(tx).List(sandbox.DriftFilter{Status: sandbox.DriftOpen, Kind: sandbox.DriftChanged})
		resolved, err3 := drift.In(tx).List(sandbox.DriftFilter{Status: sandbox.DriftResolved})
		other, err4 := drift.In(tx).List(sandbox.DriftFilter{Kind: sandbox.DriftVanished})
		if len(all) != 2 || len(open) != 1 || len(resolved) != 1 || resolved[0].Resolution != "restored" || len(other) != 0 {
			t.Errorf("all %+v, open %+v, resolved %+v, of another kind %+v", all, open, resolved, other)
		}
		return errors.Join(err, err2, err3, err4)
	})
}

func (s suite) priceBooks(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	for range 2 {
		write(t, store, func(tx *ledger.Tx) error {
			_, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, sandbox.PriceBook{Name: "a"})
			_, err2 := accounting.In(tx).KeepPriceBook(sandbox.Docker, sandbox.PriceBook{Name: "b"})
			return errors.Join(err, err2)
		})
	}
	read(t, store, func(tx *ledger.Tx) error {
		books, err := accounting.In(tx).PriceBooks()
		if len(books) != 2 {
			t.Errorf("%d price books, want 2", len(books))
		}
		return err
	})
}
