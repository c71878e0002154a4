package ledger_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/deliveries"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/purge"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestWhatIsDueIsFoundByAnIndex(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := ledger.Open(t.Context(), "sqlite://"+path, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	type query struct {
		sql  string
		vars []any
	}
	var asked []query
	if err := s.OnQuery(t.Context(), func(sql string, vars []any) {
		asked = append(asked,
			query{sql, vars})
	}); err != nil {
		t.Fatal(err)
	}
	err = s.Read(t.Context(), func(tx *ledger.Tx) error {
		_, err := tx.DueSandboxes("engine-1", 32)
		_, err2 := tx.NextDue("engine-1")
		_, err3 := tx.DueAfter("engine-1", tx.Now)
		_, err4 := tx.InstanceSandboxes("engine-1", "a", 500)
		return errors.Join(err, err2, err3, err4)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(asked) != 4 {
		t.Fatalf("%d queries were asked, want one for each question", len(asked))
	}
	for i, q := range asked {
		want := "USING INDEX sandboxes_wake ("
		if i == 3 {
			want = "USING INDEX sandboxes_instance (instance=? AND id>?)"
		}
		plan := explain(t, path, q.sql, q.vars)
		covered := strings.ReplaceAll(plan, "COVERING INDEX", "INDEX")
		if !strings.Contains(covered, want) || strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\nis answered by %s", q.sql, plan)
		}
	}
}

// TestHistoryIsFoundByAnIndex: neither the feed nor retention reads rows that it does not return.
func TestHistoryIsFoundByAnIndex(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := ledger.Open(t.Context(), "sqlite://"+path, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var row *ledger.Sandbox
	err = s.Write(t.Context(), func(tx *ledger.Tx) error {
		row = ledgertest.Sandbox(tx, "e", 1)
		return errors.Join(ledgertest.Environment(tx, "e"), tx.AppendSandboxEvent(row, sandbox.EventReady, nil),
			tx.AppendSandboxEvent(row, sandbox.EventRenewed, nil), tx.CreateSandbox(row))
	})
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	var vars [][]any
	if err := s.OnQuery(t.Context(), func(sql string, v []any) {
		asked, vars = append(asked, sql),
			append(vars, v)
	}); err != nil {
		t.Fatal(err)
	}
	err = s.Read(t.Context(), func(tx *ledger.Tx) error {
		_, err := tx.Events(sandbox.EventFilter{})
		_, err2 := tx.Events(sandbox.EventFilter{SandboxID: row.ID, FromSequence: 1})
		_, err3 := tx.Events(sandbox.EventFilter{LeaseID: row.Lease()})
		_, err4 := tx.Events(sandbox.EventFilter{EnvironmentID: "e", AfterID: 1})
		_, err5 := purge.In(tx).Purgeable(micro.Never, 10)
		_, err6 := purge.In(tx).RetainedSince(0)
		_, err7 := accounting.In(tx).UsageSamples(row.ID, 0, micro.Never)
		return errors.Join(err, err2, err3, err4, err5, err6, err7)
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range asked {
		if strings.Contains(q, "FROM ledgers") { // a single row, whose subquery uses the key
			continue
		}
		if plan := explain(t, path, q, vars[i]); strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\nis answered by %s", q, plan)
		}
	}
	if len(asked) < 7 {
		t.Errorf("%d queries were seen", len(asked))
	}
}

// TestKnownMessagesAreFoundByAnIndex: the sender of a message waits for this lookup.
func TestKnownMessagesAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := ledgertest.Open(t, "sqlite://"+path, ledger.Options{})
	asked := 0
	err := s.OnRead(t.Context(), func(query string, vars []any) {
		if !strings.Contains(query, "deliveries") {
			return
		}
		asked++
		plan := explain(t, path, query, vars)
		if !strings.Contains(plan, "(id=? AND environment_id=?)") || strings.Contains(plan, "SCAN d") {
			t.Errorf("%s\nis answered by %s", query, plan)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 250} {
		keys := make([]deliveries.Key, n)
		for i := range keys {
			keys[i] = deliveries.Key{EnvironmentID: "e", ID: fmt.Sprint(i)}
		}
		err := s.Read(t.Context(), func(tx *ledger.Tx) error {
			_, err := deliveries.In(tx).Known(keys)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if asked != 3 {
		t.Errorf("%d queries were seen", asked)
	}
}

// explain returns SQLite's plan of a query.
func explain(t *testing.T, path, query string, vars []any) string {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, vars...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(detail + "; ")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

func TestMoreSandboxesAreNamedThanAStatementHasVariables(t *testing.T) {
	t.Parallel()
	s, err := ledger.Open(t.Context(), ledgertest.SQLiteURL(t), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ids, claims := make([]string, 40_000), make(map[string]string)
	for i := range ids {
		ids[i] = fmt.Sprintf("sandbox-%05d", i)
		claims[ids[i]] = ids[i]
	}
	var last *ledger.Sandbox
	err = s.Write(t.Context(), func(tx *ledger.Tx) error {
		last = ledgertest.Sandbox(tx, "e", 1)
		last.ID, last.Phase, last.Claim.Token, last.Claim.Until = ids[len(ids)-1], sandbox.PhaseAwake, ids[len(ids)-1], tx.Now
		err := errors.Join(ledgertest.Environment(tx, "e"), tx.CreateSandbox(last),
			tx.Holds().Add(&ledger.Hold{SandboxID: last.ID, Holder: "h", Until: 7}))
		return errors.Join(err, tx.Observed(ids), tx.ExtendClaims(claims, tx.Now.Add(5)))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Read(t.Context(), func(tx *ledger.Tx) error {
		row, err := tx.Sandbox(last.ID)
		if err == nil && (row.ObservedAt == 0 || row.Claim.Until != row.ObservedAt.Add(5)) {
			t.Errorf("the last one was observed at %d and is claimed until %d", row.ObservedAt, row.Claim.Until)
		}
		held, err2 := tx.Holds().UntilOf(ids)
		if held[last.ID] != 7 {
			t.Errorf("the last one is held until %d, want 7", held[last.ID])
		}
		return errors.Join(err, err2)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// BenchmarkDue finds 1,000 due leases of 100,000, with the loop's queries.
func BenchmarkDue(b *testing.B) {
	s, err := ledger.Open(b.Context(), "sqlite://"+filepath.Join(b.TempDir(), "ledger.db"), ledger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	fill(b, s, 100_000, 1_000)
	b.ResetTimer()
	for b.Loop() {
		err := s.Read(b.Context(), func(tx *ledger.Tx) error {
			ids, err := tx.DueSandboxes("engine", 1_000)
			if err == nil && len(ids) != 1_000 {
				b.Fatalf("%d are due", len(ids))
			}
			_, err2 := tx.NextDue("engine")
			return errors.Join(err, err2)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// fill stores n sleeping leases, some of them due.
func fill(tb testing.TB, s *ledger.Store, n, due int) {
	tb.Helper()
	const page = 1000
	for from := 0; from < n; from += page {
		err := s.Write(tb.Context(), func(tx *ledger.Tx) error {
			if from == 0 {
				if err := ledgertest.Environment(tx, "e"); err != nil {
					return err
				}
			}
			for i := from; i < from+page; i++ {
				row := ledgertest.Sandbox(tx, "e", 1)
				lease := fmt.Sprintf("did:plc:%d::e", i)
				row.LeaseID, row.Phase, row.Schedule.DueAt = &lease, sandbox.PhaseAsleep, tx.Now
				if i%(n/due) != 0 {
					row.Schedule.DueAt = tx.Now.Add(3_600_000_000)
				}
				if err := tx.CreateSandbox(row); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
}
