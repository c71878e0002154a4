package leasing_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A reading of CPU time divides the usage of a sandbox at midnight. These tests are about what midnight must not
// change.

func TestMidnightDoesNotStartASandbox(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(awakeFor(96 * time.Hour))
		w.startSlowLoop()
		later(time.Hour)
		began := w.acquire(ann).StartedAt
		if began.IsZero() {
			t.Fatal("an awake sandbox has no start")
		}
		for range 3 {
			later(25 * time.Hour)
			w.backend.Burn(w.lease(annLease).SandboxID, time.Minute)
			if err := w.engine.Resync(w.Context(), sandbox.Docker); err != nil {
				t.Fatal(err)
			}
			if l := w.lease(annLease); !l.StartedAt.Equal(began) {
				t.Errorf("the sandbox started at %s, and later it says %s", began, l.StartedAt)
			}
		}
	})
}

// An account owes the plan of the usage that began last. Usage that continues after midnight has not begun then.
func TestAnAccountKeepsItsPlanOverMidnight(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	m := newMonth(t, begin.AddDate(0, 0, 40))
	long := m.sandbox("did:plc:long", sandbox.Resources{MemoryMB: 1024, CPUMillis: 1000})
	short := m.sandbox("did:plc:short", sandbox.Resources{MemoryMB: 1024})
	enter := func(s *ledger.Sandbox, p sandbox.Phase, at time.Time) {
		m.write(func(tx *ledger.Tx) error {
			book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, m.book)
			return errors.Join(err, accounting.In(tx).EnterState(s, p, micro.At(at), book))
		})
	}
	m.book = sandbox.PriceBook{Name: "old", PlanMonth: 3 * sandbox.USD, MemoryGiBSecond: 1}
	enter(long, sandbox.PhaseAwake, begin.Add(10*time.Hour))
	m.book = sandbox.PriceBook{Name: "new", PlanMonth: 4 * sandbox.USD, MemoryGiBSecond: 2}
	m.awake(short, begin.Add(12*time.Hour), begin.Add(13*time.Hour), 0)
	for day := 1; day <= 3; day++ {
		m.write(func(tx *ledger.Tx) error {
			at := begin.AddDate(0, 0, day).Add(time.Hour)
			return accounting.In(tx).AddCPU(long, long.Meter.CPUMark+micro.SpanOf(time.Minute), micro.At(at))
		})
		if day == 2 {
			m.rollUp()
		}
	}
	for _, ended := range []bool{false, true} {
		if ended {
			m.gone(long, begin.AddDate(0, 0, 4))
			m.gone(short, begin.AddDate(0, 0, 4))
			m.rollUp()
		}
		got := m.costs(sandbox.CostQuery{To: begin.AddDate(0, 0, 30)}).Accounts
		if len(got) == 0 || got[0].PriceBook != "new" || got[0].PlanFee != 4*sandbox.USD {
			t.Errorf("ended %t: the account owes %+v, want the plan of new", ended, got)
		}
	}
}

func TestMidnightDoesNotStopACommand(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		w.environment(awakeFor(48 * time.Hour))
		later(23*time.Hour + 50*time.Minute)
		w.acquire(ann)
		x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "10h"}, Timeout: sandbox.Duration(12 * time.Hour)})
		later(20 * time.Minute)
		id := w.lease(annLease).SandboxID
		w.backend.Burn(id, time.Minute)
		if err := w.engine.Resync(w.Context(), sandbox.Docker); err != nil {
			w.Fatal(err)
		}
		w.cutOff()
		w.restartUnseen(id)
		other.startLoop()
		later(15 * time.Second)
		got := other.wantExec(x.ID, sandbox.ExecFailed)
		if !strings.Contains(got.Error, "knows no command") || time.Since(got.FinishedAt) > time.Minute {
			w.Errorf("it ended at %s: %s", got.FinishedAt, got.Error)
		}
	})
}

// A sandbox was last seen just before midnight, and its CPU time was read just after. Then it was gone. Its usage ends
// when it was last seen, and what it used is billed.
func TestCPUTimeIsBilledWhateverItsPeriodLasts(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	m := newMonth(t, begin.AddDate(0, 0, 40))
	s := m.sandbox(ann, sandbox.Resources{MemoryMB: 1024, CPUMillis: 1000})
	midnight := begin.AddDate(0, 0, 1)
	m.write(func(tx *ledger.Tx) error {
		book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, m.book)
		return errors.Join(err, accounting.In(tx).EnterState(s, sandbox.PhaseAwake, micro.At(begin.Add(23*time.Hour)), book))
	})
	m.write(func(tx *ledger.Tx) error {
		return accounting.In(tx).AddCPU(s, micro.SpanOf(10*time.Second), micro.At(midnight.Add(time.Second)))
	})
	m.gone(s, midnight.Add(-time.Second))
	for _, rolled := range []bool{false, true} {
		if rolled {
			m.rollUp()
		}
		for _, q := range []sandbox.CostQuery{{}, {GroupBy: sandbox.CostByDay}, {From: begin.Add(time.Hour)}} {
			if got := m.costs(q).Total.CPUSeconds; got != 10 {
				t.Errorf("%+v, counted by day %t: of 10 s of CPU time %v s are billed", q, rolled, got)
			}
		}
	}
}

// A period that no reading has divided at midnight has the CPU time of its first day: with an outage from 20:00 to 07:00,
// nothing was read after midnight.
func TestCPUTimeStaysOnTheDayOfItsReading(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	m := newMonth(t, begin.AddDate(0, 0, 40))
	s := m.sandbox(ann, sandbox.Resources{MemoryMB: 1024, CPUMillis: 1000})
	m.write(func(tx *ledger.Tx) error {
		book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, m.book)
		return errors.Join(err, accounting.In(tx).EnterState(s, sandbox.PhaseAwake, micro.At(begin.Add(10*time.Hour)), book))
	})
	m.write(func(tx *ledger.Tx) error {
		return accounting.In(tx).AddCPU(s, micro.SpanOf(6*time.Hour), micro.At(begin.Add(20*time.Hour)))
	})
	m.gone(s, begin.Add(31*time.Hour))
	for _, rolled := range []bool{false, true} {
		if rolled {
			m.rollUp()
		}
		for day, want := range []float64{6 * 3600, 0} {
			q := sandbox.CostQuery{From: begin.AddDate(0, 0, day), To: begin.AddDate(0, 0, day+1)}
			if got := m.costs(q).Total.CPUSeconds; got != want {
				t.Errorf("day %d, counted by day %t: %v s of CPU time are billed, want %v", day, rolled, got, want)
			}
		}
	}
}
