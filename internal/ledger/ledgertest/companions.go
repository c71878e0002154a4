package ledgertest

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// companionUsage counts the usage of a companion over two starts, in addition to its sandbox's.
func (s suite) companionUsage(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	store := open(t, s.fresh(t), func() time.Time { return now })
	var id string
	change := func(f func(tx *ledger.Tx, row *ledger.Sandbox) error) {
		t.Helper()
		now = now.Add(time.Second)
		write(t, store, func(tx *ledger.Tx) error {
			return tx.Update(id, func(row *ledger.Sandbox) error { return f(tx, row) })
		})
	}
	write(t, store, func(tx *ledger.Tx) error {
		row := Sandbox(tx, "e", 1)
		id, row.Companions = row.ID, sandbox.Companions{"db": sandbox.Companion{Image: "postgres"}}
		if err := Environment(tx, "e"); err != nil {
			return err
		}
		return tx.CreateSandbox(row)
	})
	change(func(tx *ledger.Tx, row *ledger.Sandbox) error {
		row.CompanionStarted("db", tx.Now)
		book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, sandbox.PriceBook{Name: "free"})
		if err != nil {
			return err
		}
		return accounting.In(tx).EnterState(row, sandbox.PhaseAwake, tx.Now, book)
	})
	var since time.Time // of a reading
	see := func() {
		t.Helper()
		read(t, store, func(tx *ledger.Tx) error {
			row, err := tx.Sandbox(id)
			if err == nil {
				since = row.CompanionStates["db"].Since
			}
			return err
		})
	}
	count := func(what string, seconds, want int64) {
		t.Helper()
		change(func(tx *ledger.Tx, row *ledger.Sandbox) error {
			return accounting.In(tx).AddCompanionCPU(row, map[string]accounting.CompanionReading{
				"db": {CPU: micro.Span(seconds * 1e6), Since: since}, "gone": {CPU: 1e6, Since: since},
			}, tx.Now)
		})
		read(t, store, func(tx *ledger.Tx) error {
			periods, err := accounting.In(tx).PeriodsOf([]string{id})
			if err == nil && (len(periods) != 1 || int64(periods[0].CPU) != want*1e6) {
				t.Errorf("%s: the periods are %+v, want one with %d s of CPU time", what, periods, want)
			}
			return err
		})
	}
	see()
	count("the first reading", 3, 3)
	count("the same again", 3, 3)
	count("an older one", 2, 3)
	count("a later one", 5, 5)
	change(func(tx *ledger.Tx, row *ledger.Sandbox) error {
		return accounting.In(tx).AddCPU(row, 1e6, tx.Now)
	})
	count("beside the sandbox's own", 6, 7)
	change(func(tx *ledger.Tx, row *ledger.Sandbox) error {
		row.CompanionEnters("db", sandbox.CompanionUnhealthy, "it does not answer", tx.Now)
		return nil
	})
	count("one of before it became unhealthy", 7, 7)
	see()
	count("one since", 8, 9)
	change(func(tx *ledger.Tx, row *ledger.Sandbox) error {
		row.CompanionRestarts("db", sandbox.CompanionUnhealthy, "it does not answer", tx.Now, tx.Now)
		return nil
	})
	see()
	count("before it starts again", 9, 9)
	change(func(tx *ledger.Tx, row *ledger.Sandbox) error {
		row.CompanionStarted("db", tx.Now)
		return nil
	})
	count("one of its first start", 10, 9)
	see()
	count("one of its second", 2, 11)
}
