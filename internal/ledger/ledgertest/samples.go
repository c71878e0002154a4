package ledgertest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// usageSamples stores samples of two sandboxes as resyncs do, one sandbox more often than the other. The clock is set
// back meanwhile.
func (s suite) usageSamples(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	now := start
	store := open(t, s.fresh(t), func() time.Time { return now })
	var one, other string
	write(t, store, func(tx *ledger.Tx) error {
		a, b := Sandbox(tx, "e", 1), Sandbox(tx, "e", 2)
		one, other = a.ID, b.ID
		b.LeaseID = nil
		if err := Environment(tx, "e"); err != nil {
			return err
		}
		if err := tx.CreateSandbox(a); err != nil {
			return err
		}
		return tx.CreateSandbox(b)
	})
	keep := func(second int64, ids ...string) {
		t.Helper()
		now = start.Add(time.Duration(second) * time.Second)
		write(t, store, func(tx *ledger.Tx) error {
			var rows []accounting.UsageSample
			for _, id := range ids {
				rows = append(rows, accounting.UsageSample{SandboxID: id, At: tx.Now.Add(1), CPU: 7, MemoryBytes: 1 << 40, PIDs: 3})
			}
			return accounting.In(tx).KeepUsageSamples(rows, micro.SpanOf(sandbox.Duration(50*time.Second)))
		})
	}
	want := func(id string, seconds ...int64) {
		t.Helper()
		read(t, store, func(tx *ledger.Tx) error {
			rows, err := accounting.In(tx).UsageSamples(id, 0, micro.Never)
			var is []int64
			for _, r := range rows {
				is = append(is, int64(r.At.Time().Sub(start).Seconds()))
				if r.CPU != 7 || r.MemoryBytes != 1<<40 || r.PIDs != 3 {
					t.Errorf("kept is %+v", r)
				}
			}
			if d := cmp.Diff(seconds, is); d != "" {
				t.Errorf("samples wanted (-) and kept (+):\n%s", d)
			}
			return err
		})
	}
	keep(0, one)
	keep(30, one, other)
	keep(60, one, other)
	keep(90, one, other)
	keep(120, one)
	want(one, 0, 60, 120)
	want(other, 30, 90)
	keep(70, one) // the clock was set back
	want(one, 0, 60)
	want(other, 30, 90)
	keep(110, one)
	want(one, 0, 60, 110)
	write(t, store, func(tx *ledger.Tx) error {
		n, err := accounting.In(tx).PurgeUsageSamples([]string{one}, 2)
		if n != 2 {
			t.Errorf("%d were purged, want 2", n)
		}
		return err
	})
	write(t, store, func(tx *ledger.Tx) error {
		n, err := accounting.In(tx).PurgeUsageSamples([]string{one}, 2)
		if n != 1 {
			t.Errorf("then %d were purged, want the last", n)
		}
		return err
	})
	want(one)
	want(other, 30, 90)
}
