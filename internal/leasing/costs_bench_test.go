package leasing_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The size of a large month: 20,000 leases with 50 periods each, within two or three days for each lease.
const (
	benchLeases  = 20_000
	benchPeriods = 1_000_000
)

// BenchmarkCostsOfAMonth reports a month with a million usage periods, by each group.
func BenchmarkCostsOfAMonth(b *testing.B) {
	month := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	engine := benchLedger(b, month)
	began := time.Now()
	if err := engine.RollUp(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Logf("rolling up %d periods took %s", benchPeriods, time.Since(began))
	for _, group := range []sandbox.CostGroup{
		sandbox.CostByLease, sandbox.CostByEnvironment, sandbox.CostByAgent, sandbox.CostByDay, sandbox.CostByMonth,
	} {
		b.Run(string(group), func(b *testing.B) {
			before := cpuTime(b)
			for b.Loop() {
				report, err := engine.Costs(b.Context(), sandbox.CostQuery{GroupBy: group, From: month, To: month.AddDate(0, 1, 0)})
				if err != nil {
					b.Fatal(err)
				}
				if report.Total.Generations != benchLeases {
					b.Fatalf("the total is %+v", report.Total)
				}
			}
			b.ReportMetric((cpuTime(b)-before).Seconds()*1e3/float64(b.N), "cpu-ms/report")
		})
	}
}

// benchLedger returns an engine on a ledger with a month of closed periods.
func benchLedger(b *testing.B, month time.Time) *leasing.Service {
	path := filepath.Join(b.TempDir(), "ledger.db")
	store, err := ledger.Open(b.Context(), "sqlite://"+path,
		ledger.Options{Now: func() time.Time { return month.AddDate(0, 0, 40) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	err = store.Write(b.Context(), func(tx *ledger.Tx) error {
		s := ledgertest.Sandbox(tx, "e1", 1)
		if err := errors.Join(ledgertest.Environment(tx, "e1"), tx.CreateSandbox(s)); err != nil {
			return err
		}
		book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, pricing.Cloudflare())
		if err != nil {
			return err
		}
		return accounting.In(tx).EnterState(s, sandbox.PhaseAwake, micro.At(month.AddDate(0, 0, 39)), book)
	})
	if err != nil {
		b.Fatal(err)
	}
	fillMonth(b, path, month)
	engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{fake.New("engine", nil)}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = engine.Close() })
	return engine
}

// fillMonth adds leases and their periods by SQL. Each period lasts 54 minutes and begins at the end of the previous
// one. Each lease begins on one of the first 28 days.
func fillMonth(b *testing.B, path string, month time.Time) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	const hour = int64(time.Hour / time.Microsecond)
	if _, err := db.ExecContext(b.Context(), `
		WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1)
		INSERT INTO usage_periods (sandbox_id, lease_id, environment_id, agent_did, backend, instance, price_book_id, memory_mb, cpu_millis, disk_mb, state, started_at, ended_at, cpu, generations)
		SELECT (SELECT id FROM sandboxes), 'lease' || (i % ?), 'environment' || (i % 50), 'agent' || (i % ?), 'docker', 'engine',
			(SELECT id FROM price_books), 1024, 250, 4000, CASE WHEN i / ? % 2 = 0 THEN 'awake' ELSE 'asleep' END,
			? + i % ? % 28 * 24 * ? + i / ? * ? * 9 / 10, ? + i % ? % 28 * 24 * ? + (i / ? + 1) * ? * 9 / 10, 60000000, i < ? FROM n`,
		benchPeriods, benchLeases, benchLeases, benchLeases, month.UnixMicro(), benchLeases, hour, benchLeases, hour,
		month.UnixMicro(), benchLeases, hour, benchLeases, hour, benchLeases); err != nil {
		b.Fatal(err)
	}
}
