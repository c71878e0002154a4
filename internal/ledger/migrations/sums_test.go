package migrations_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// beforeSums is the schema of the last program without sums of months and sandboxes.
const beforeSums = 2

// TestALedgerWithoutSumsIsGivenThem opens a ledger of the last program without sums. It has usage of two months that is
// counted by day, usage that is not, and open usage. Leases and budgets cost the same as on the original ledger, before
// and after the next roll-up. The older program may not write to the ledger again.
func TestALedgerWithoutSumsIsGivenThem(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 8, 31, 20, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	path := filepath.Join(t.TempDir(), "ledger.db")
	store := ledgertest.Open(t, "sqlite://"+path, ledger.Options{Now: clock})
	engine := engineOn(t, store)
	ledgertest.MakeEnvironment(t, store, "catan-7")
	var leases []string
	for i := range 3 {
		leases = append(leases, leaseFor(t, store, fmt.Sprint("did:plc:", i)))
	}
	for i := range 14 {
		now = now.Add(61*time.Minute + time.Duration(i)*time.Microsecond)
		changePhase(t, store, leases, i)
		if i == 9 {
			if err := engine.RollUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := figures(t, engine, leases)

	old := filepath.Join(t.TempDir(), "old.db")
	copyAsOf(t, path, old, beforeSums)
	restored := ledgertest.Open(t, "sqlite://"+old, ledger.Options{Now: clock})
	upgraded := engineOn(t, restored)
	if got := figures(t, upgraded, leases); !slices.Equal(got, want) {
		t.Errorf("after the upgrade the leases and the budget are at %v, want %v", got, want)
	}
	for range 2 {
		if err := upgraded.RollUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := figures(t, upgraded, leases); !slices.Equal(got, want) {
			t.Errorf("after a roll-up the leases and the budget are at %v, want %v", got, want)
		}
	}
	if oldest := query(t, "sqlite", old)("SELECT min_reader FROM ledgers")[0][0]; oldest == fmt.Sprint(beforeSums) {
		t.Errorf("programs of schema %s may write to it, and would not keep the sums", oldest)
	}
	unsettled := query(t, "sqlite", old)("SELECT count(*) FROM usage_periods WHERE rolled_at < 0")[0][0]
	if unsettled != "0" {
		t.Errorf("%s periods are in no sum of a sandbox after a roll-up", unsettled)
	}
}

// leaseFor gives an agent a lease whose sandbox exists only in the ledger.
func leaseFor(t *testing.T, store *ledger.Store, agent string) (id string) {
	t.Helper()
	id = sandbox.LeaseID(agent, "catan-7")
	err := store.Write(t.Context(), func(tx *ledger.Tx) error {
		s := ledgertest.Sandbox(tx, "catan-7", 1)
		s.AgentDID, s.LeaseID, s.MemoryMB = agent, &id, 1000+int64(len(agent))
		return errors.Join(tx.CreateSandbox(s), tx.BeginGeneration(nil, s),
			tx.UpdateEnvironment("catan-7", func(env *ledger.Environment) error {
				env.Spec.Budget = &sandbox.Budget{Monthly: 1e6 * sandbox.USD}
				return nil
			}))
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// changePhase makes leases sleep and wake in turn, with two price books.
func changePhase(t *testing.T, store *ledger.Store, leases []string, turn int) {
	t.Helper()
	book := pricing.Cloudflare()
	book.AsleepMemoryGiBSecond = sandbox.NanoUSD(turn / 5)
	err := store.Write(t.Context(), func(tx *ledger.Tx) error {
		row, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, book)
		if err != nil {
			return err
		}
		for i, id := range leases {
			s, err := tx.Current(id)
			if err != nil {
				return err
			}
			state := sandbox.PhaseAwake
			if (turn+i)%2 == 1 {
				state = sandbox.PhaseAsleep
			}
			s.Meter.CPUMark = 0
			err = errors.Join(accounting.In(tx).AddCPU(s, micro.Span(1_234_567*(i+1)), tx.Now),
				accounting.In(tx).EnterState(s, state, tx.Now, row))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// figures returns the costs of leases and the spent part of the budget.
func figures(t *testing.T, engine *leasing.Service, leases []string) (list []sandbox.NanoUSD) {
	t.Helper()
	for _, id := range leases {
		l, err := engine.GetLease(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, l.Cost)
	}
	env, err := engine.GetEnvironment(t.Context(), "catan-7")
	if err != nil {
		t.Fatal(err)
	}
	return append(list, env.BudgetUse.Spent)
}

// copyAsOf copies a ledger to a new one with an older schema.
func copyAsOf(t *testing.T, from, to string, schema int64) {
	t.Helper()
	if err := os.WriteFile(to, nil, 0o600); err != nil { // SQLite would make it readable for others
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // ATTACH applies to one connection
	if err := ledgertest.MigrateTo(t.Context(), goose.DialectSQLite3, db, schema); err != nil {
		t.Fatal(err)
	}
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	exec("ATTACH ? AS newer", from)
	older := query(t, "sqlite", to)
	for _, table := range migrations.Tables {
		var columns []string
		for _, c := range older("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", table) {
			columns = append(columns, c[0])
		}
		if list := strings.Join(columns, ", "); list != "" {
			exec(fmt.Sprintf("INSERT INTO main.%s (%s) SELECT %s FROM newer.%s", table, list, list, table))
		}
	}
	exec("UPDATE ledgers SET min_reader = ?", schema)
}

func engineOn(t *testing.T, store *ledger.Store) *leasing.Service {
	t.Helper()
	engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{fake.New("engine", nil)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return engine
}
