package leasing_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// oldSandboxes are purged while conditions arrive. Each has four events, two usage periods and a delivery.
const oldSandboxes = 100_000

// BenchmarkReceiptsDuringAPurge removes a month of a busy server's history while 16 senders deliver conditions one
// after the other. It reports how long they wait during the purge, and before.
func BenchmarkReceiptsDuringAPurge(b *testing.B) {
	b.Run("SQLite", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "ledger.db")
		receiptsWhileRetiring(b, "sqlite://"+path, "sqlite", path)
	})
	b.Run("PostgreSQL", func(b *testing.B) {
		url := postgrestest.New(b)
		receiptsWhileRetiring(b, url, "pgx", url)
	})
}

func receiptsWhileRetiring(b *testing.B, url, dialect, dsn string) {
	store, err := ledger.Open(b.Context(), url, ledger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{fake.New("engine", nil)}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(engine.Close(), store.Close()); err != nil {
			b.Error(err)
		}
	})
	fillHistory(b, store, dialect, dsn)
	s := &senders{B: b, engine: engine}
	b.ResetTimer()
	for b.Loop() {
		s.during("before", func() { time.Sleep(3 * time.Second) }) //nolint:forbidigo // the measured time without a purge
		s.during("purging", func() {
			began := time.Now()
			done, err := engine.Purge(b.Context(), retention.DefaultTTL)
			if err != nil || done.Sandboxes != oldSandboxes || done.Events != 4*oldSandboxes || done.Deliveries != oldSandboxes {
				b.Fatalf("removed %+v: %v", done, err)
			}
			b.ReportMetric(time.Since(began).Seconds(), "purge-s")
		})
	}
}

// senders deliver conditions in the background.
type senders struct {
	*testing.B
	engine *leasing.Service
	n      atomic.Int64
}

func (s *senders) during(name string, act func()) {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // guards took
		took []time.Duration
		over atomic.Bool
	)
	for range 16 {
		wg.Go(func() {
			for !over.Load() {
				began := time.Now()
				_, err := s.engine.Deliver(s.Context(), sandbox.Delivery{
					ID:     strconv.FormatInt(s.n.Add(1), 10),
					Body:   []byte("{}"),
					Source: "bench",
					Condition: sandbox.Condition{
						Type:      "game.finished",
						Timestamp: began,
						Data:      sandbox.ConditionData{EnvironmentID: "none"},
					},
				})
				if err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	act()
	over.Store(true)
	wg.Wait()
	slices.Sort(took)
	s.ReportMetric(float64(len(took))/time.Since(began).Seconds(), name+"-receipts/s")
	s.ReportMetric(took[len(took)/2].Seconds()*1e3, name+"-p50-ms")
	s.ReportMetric(took[len(took)*99/100].Seconds()*1e3, name+"-p99-ms")
	s.ReportMetric(took[len(took)-1].Seconds()*1e3, name+"-max-ms")
}

// fillHistory stores sandboxes that were destroyed long ago, with their history.
func fillHistory(b *testing.B, store *ledger.Store, driver, dsn string) {
	b.Helper()
	err := store.Write(b.Context(), func(tx *ledger.Tx) error {
		at := tx.Now.Add(-2 * micro.SpanOf(retention.DefaultTTL))
		row := ledgertest.Sandbox(tx, "e", 1)
		row.ID, row.LastSequence = "first", 4
		row.Desired, row.Ending.By, row.Phase, row.Ending.At, row.Ending.DestroyedAt = ledger.Gone, sandbox.EndedByTTL,
			sandbox.PhaseGone, at, at
		_, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, pricing.Cloudflare())
		return errors.Join(err, ledgertest.Environment(tx, "e"), tx.CreateSandbox(row))
	})
	if err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	id := map[string]string{"sqlite": "lower(hex(randomblob(13)))", "pgx": "left(md5(n::text), 26)"}[driver]
	for _, statement := range []string{
		copies(b, db, oldSandboxes-1, id),
		`INSERT INTO events (environment_id, lease_id, sandbox_id, generation, sequence, type, at)
			SELECT environment_id, lease_id, id, 1, n, 'lease.renewed', destroyed_at FROM sandboxes, (SELECT 1 AS n UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) AS sequences`,
		`INSERT INTO usage_periods (sandbox_id, lease_id, environment_id, agent_did, backend, instance, price_book_id, memory_mb, cpu_millis, disk_mb, state, started_at, ended_at, rolled_at)
			SELECT id, lease_id, environment_id, agent_did, backend, instance, (SELECT id FROM price_books), 64, 100, 1024, 'awake', destroyed_at - n, destroyed_at - n + 1, destroyed_at FROM sandboxes, (SELECT 1 AS n UNION SELECT 2) AS periods`,
		`INSERT INTO deliveries (id, received_at, source, body, type, environment_id, agent_did, generation, occurred_at, status, matched)
			SELECT 'old-' || id, destroyed_at, 'bench', '{}', 'agent.death', environment_id, agent_did, 1, destroyed_at, 'applied', 1 FROM sandboxes`,
		"ANALYZE", // a server does this on its own
	} {
		if _, err := db.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
}

// copies returns the statement that creates n more sandboxes like the first, each for its own lease.
func copies(b *testing.B, db *sql.DB, n int, id string) string {
	b.Helper()
	rows, err := db.QueryContext(b.Context(), "SELECT * FROM sandboxes LIMIT 0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err = errors.Join(err, rows.Err()); err != nil {
		b.Fatal(err)
	}
	// The database computes these columns.
	columns = slices.DeleteFunc(columns, func(c string) bool { return c == "wake_at" || c == "expires_at" })
	values := slices.Clone(columns)
	for i, c := range columns {
		switch c {
		case "id":
			values[i] = id
		case "lease_id":
			values[i] = "'did:plc:' || n || '::e'"
		case "destroyed_at":
			values[i] = "destroyed_at + n"
		}
	}
	return fmt.Sprintf("WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) "+
		"INSERT INTO sandboxes (%s) SELECT %s FROM sandboxes, numbers",
		n, strings.Join(columns, ", "), strings.Join(values, ", "))
}
