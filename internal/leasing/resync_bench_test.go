package leasing_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// resynced is the number of awake sandboxes in a resync.
const resynced = 200

// BenchmarkResync resyncs awake sandboxes that use CPU and have a day of usage samples. It measures resyncs that store
// no sample, as every second one does, and resyncs that store one for each. It also reports the storage of a sample,
// and removes samples that are a day old, one minute's together.
func BenchmarkResync(b *testing.B) {
	for name, c := range map[string]struct {
		open   func(b *testing.B) (url, dsn string)
		driver string
		size   string // query for the storage size
	}{
		"SQLite": {func(b *testing.B) (string, string) {
			path := filepath.Join(b.TempDir(), "ledger.db")
			return "sqlite://" + path, path
		}, "sqlite", "SELECT page_count * 4096 FROM pragma_page_count"},
		"PostgreSQL": {func(b *testing.B) (string, string) {
			url := postgrestest.New(b)
			return url, url
		}, "pgx", "SELECT pg_total_relation_size('usage_samples')"},
	} {
		b.Run(name, func(b *testing.B) {
			url, dsn := c.open(b)
			s := newSurveyBench(b, url, c.driver, dsn)
			before := s.number(c.size)
			s.fill(minutesKept, 1)
			perSample := float64(s.number(c.size)-before) / float64(s.number("SELECT count(*) FROM usage_samples"))
			b.Run("kept=false", func(b *testing.B) { s.run(b, false) })
			b.Run("kept=true", func(b *testing.B) {
				s.run(b, true)
				b.ReportMetric(perSample, "bytes/sample")
			})
			b.Run("removed", func(b *testing.B) {
				if err := s.engine.PurgeUsage(b.Context()); err != nil {
					b.Fatal(err)
				}
				for range b.N {
					b.StopTimer()
					s.fill(1, minutesKept+1)
					b.StartTimer()
					if err := s.engine.PurgeUsage(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

const minutesKept = int(sandbox.UsageKept / time.Minute)

// resyncBench is an engine with awake sandboxes.
type resyncBench struct {
	*testing.B
	backend *fake.Executor
	engine  *leasing.Service
	db      *sql.DB
	ids     []string
}

func newSurveyBench(b *testing.B, url, dialect, dsn string) *resyncBench {
	store, err := ledger.Open(b.Context(), url, ledger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s := &resyncBench{B: b, backend: fake.New("engine-1", nil)}
	if s.engine, err = leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{s.backend}}); err != nil {
		b.Fatal(err)
	}
	if s.db, err = sql.Open(dialect, dsn); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _, _ = s.db.Close(), s.engine.Close(), store.Close() })
	_, err = s.engine.PutEnvironment(b.Context(), sandbox.PutEnvironment{
		ID:    game,
		Owner: "bench",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone},
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range resynced {
		a, err := s.engine.Acquire(b.Context(),
			sandbox.Acquire{AgentDID: fmt.Sprintf("did:plc:%d", i), EnvironmentID: game, Owner: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		s.ids = append(s.ids, a.Lease.SandboxID)
	}
	return s
}

// fill stores the samples of resyncs in order, one a minute, for a number of minutes that ended some minutes ago.
func (s *resyncBench) fill(minutes, ago int) {
	s.Helper()
	newest := time.Now().Add(-time.Duration(ago) * time.Minute).UnixMicro()
	s.exec(fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT %d UNION ALL SELECT i - 1 FROM n WHERE i > 0)
		INSERT INTO usage_samples (sandbox_id, at, cpu, memory_bytes, pids)
		SELECT id, %d - CAST(i AS BIGINT) * 60000000, 3600000000, 3000000000, 17 FROM n, sandboxes ORDER BY i DESC, id`,
		minutes-1, newest))
}

// run resyncs. If samples must not be stored, each sandbox already has one from just before.
func (s *resyncBench) run(b *testing.B, kept bool) {
	b.Helper()
	if err := s.engine.Resync(b.Context(), sandbox.Docker); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	var spent time.Duration
	for range b.N {
		b.StopTimer()
		for _, id := range s.ids {
			s.backend.Burn(id, time.Second)
		}
		if kept {
			s.exec(fmt.Sprintf("DELETE FROM usage_samples WHERE at > %d", time.Now().Add(-50*time.Second).UnixMicro()))
		}
		before := cpuTime(b)
		b.StartTimer()
		if err := s.engine.Resync(b.Context(), sandbox.Docker); err != nil {
			b.Fatal(err)
		}
		spent += cpuTime(b) - before
	}
	if n := s.number("SELECT count(*) FROM usage_samples"); n != int64(resynced*(minutesKept+1)) {
		b.Fatalf("%d samples are kept", n)
	}
	b.ReportMetric(spent.Seconds()*1e3/float64(b.N), "cpu-ms/op")
}

func (s *resyncBench) exec(query string) {
	s.Helper()
	if _, err := s.db.ExecContext(s.Context(), query); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
}

func (s *resyncBench) number(query string) (n int64) {
	s.Helper()
	if err := s.db.QueryRowContext(s.Context(), query).Scan(&n); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
	return n
}
