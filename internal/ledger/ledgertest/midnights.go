package ledgertest

import (
	"errors"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s suite) midnights(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	now := day.Add(10 * time.Hour)
	store := open(t, s.fresh(t), func() time.Time { return now })
	var row *ledger.Sandbox
	enter := func(tx *ledger.Tx, p sandbox.Phase) error {
		book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, sandbox.PriceBook{Name: "free"})
		return errors.Join(err, accounting.In(tx).EnterState(row, p, tx.Now, book))
	}
	readings := func() { // a reading shortly after each of three midnights
		for range 3 {
			now = now.Truncate(24 * time.Hour).Add(24*time.Hour + time.Minute)
			write(t, store, func(tx *ledger.Tx) error {
				return accounting.In(tx).AddCPU(row, row.Meter.CPUMark+1e6, tx.Now)
			})
		}
	}
	write(t, store, func(tx *ledger.Tx) error {
		row = Sandbox(tx, "e", 1)
		return errors.Join(Environment(tx, "e"), tx.CreateSandbox(row), enter(tx, sandbox.PhaseAwake))
	})
	first := now
	readings()
	now = now.Add(time.Hour)
	write(t, store, func(tx *ledger.Tx) error { return enter(tx, sandbox.PhaseAsleep) })
	slept := now
	now = now.Truncate(24 * time.Hour).Add(24 * time.Hour) // it wakes at midnight
	write(t, store, func(tx *ledger.Tx) error { return enter(tx, sandbox.PhaseAwake) })
	woke := now
	readings()
	read(t, store, func(tx *ledger.Tx) error {
		periods, err := accounting.In(tx).PeriodsOf([]string{row.ID})
		want := []time.Time{first, first, first, first, slept, woke, woke, woke, woke}
		if len(periods) != len(want) {
			t.Fatalf("there are %d periods, want %d", len(periods), len(want))
		}
		for i := range periods {
			if got := periods[i].BegunAt(); got != micro.At(want[i]) {
				t.Errorf("the usage of the period since %s began at %s, want %s",
					periods[i].StartedAt.Time(), got.Time(), want[i])
			}
		}
		return err
	})
}
