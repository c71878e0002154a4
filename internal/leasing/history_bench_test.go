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
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A long history: the usage of a busy month in an environment, and months of usage of an agent that acts every half
// hour.
const (
	historyLeases  = 20
	historyPeriods = 5_000   // of each of these leases
	historyDays    = 100_000 // of leases that have ended, in the environment's month
	historyBatch   = 10
)

// BenchmarkHistory compares the cost of operations on a ledger with a long history and on one without. It alternates,
// because the machine's speed changes from minute to minute. ratio compares their CPU time.
func BenchmarkHistory(b *testing.B) {
	without, with := newHistory(b, false), newHistory(b, true)
	for _, op := range []struct {
		name string
		do   func(h *history) error
		then func(h *history) // not measured
	}{
		{"acquire", (*history).acquire, (*history).release},
		{"get", func(h *history) error { _, err := h.engine.GetLease(h.b.Context(), h.leases[0]); return err }, nil},
		{"renew", func(h *history) error {
			_, err := h.engine.Renew(h.b.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: h.leases[0]}})
			return err
		}, nil},
		{"list", func(h *history) error {
			_, err := h.engine.ListLeases(h.b.Context(), sandbox.LeaseFilter{Status: sandbox.LeaseActive})
			return err
		}, nil},
		{"environments", func(h *history) error { _, err := h.engine.ListEnvironments(h.b.Context()); return err }, nil},
		{"budgets", func(h *history) error { return h.engine.CheckBudgets(h.b.Context()) }, nil},
	} {
		b.Run(op.name, func(b *testing.B) {
			spent := make(map[*history]time.Duration)
			for b.Loop() {
				for _, h := range []*history{without, with} {
					for range historyBatch {
						before := cpuTime(b)
						if err := op.do(h); err != nil {
							b.Fatal(err)
						}
						spent[h] += cpuTime(b) - before
						if op.then != nil {
							op.then(h)
						}
					}
				}
			}
			b.ReportMetric(spent[with].Seconds()/spent[without].Seconds(), "ratio")
			b.ReportMetric(float64(spent[with].Microseconds())/float64(b.N*historyBatch), "cpu-µs/op")
			b.ReportMetric(0, "ns/op") // it includes both ledgers
		})
	}
}

// history is an environment with a budget and some leases.
type history struct {
	b      *testing.B
	engine *leasing.Service
	leases []string
	next   int
}

func newHistory(b *testing.B, long bool) *history {
	path, began := filepath.Join(b.TempDir(), "ledger.db"), time.Now()
	now := func() time.Time { return time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC).Add(time.Since(began)) }
	store, err := ledger.Open(b.Context(), "sqlite://"+path, ledger.Options{Now: now})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	h := &history{b: b}
	if h.engine, err = leasing.New(leasing.Config{
		Store:     store,
		Executors: []driver.Executor{fake.New("engine-1", now)},
	}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.engine.Close() })
	_, err = h.engine.PutEnvironment(b.Context(), sandbox.PutEnvironment{
		ID:    game,
		Owner: "bench",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type:    sandbox.TypeCatan,
			Image:   "player",
			Network: sandbox.NetworkNone,
			Budget:  &sandbox.Budget{Monthly: 1e9 * sandbox.USD},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	for range historyLeases {
		if err := h.acquire(); err != nil {
			b.Fatal(err)
		}
		h.leases = append(h.leases, h.latest())
	}
	if long {
		addHistory(b, path)
	}
	if err := h.engine.RollUp(b.Context()); err != nil {
		b.Fatal(err)
	}
	return h
}

func (h *history) latest() string { return sandbox.LeaseID(fmt.Sprint("did:plc:", h.next), game) }

func (h *history) acquire() error {
	h.next++
	_, err := h.engine.Acquire(h.b.Context(),
		sandbox.Acquire{AgentDID: fmt.Sprint("did:plc:", h.next), EnvironmentID: game, Owner: "bench"})
	return err
}

// release ends the latest lease, destroys its sandbox and counts its usage, as a loop does.
func (h *history) release() {
	h.b.Helper()
	if _, err := h.engine.Release(h.b.Context(), sandbox.LeaseRef{ID: h.latest()}); err != nil {
		h.b.Fatal(err)
	}
	fillPool(h.b, h.engine)
	if err := h.engine.RollUp(h.b.Context()); err != nil {
		h.b.Fatal(err)
	}
}

// addHistory adds usage by SQL: periods of one minute from earlier months to each live sandbox, and days of ended
// leases to the first one.
func addHistory(b *testing.B, path string) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	insert :=
		`INSERT INTO usage_periods (sandbox_id, lease_id, environment_id, agent_did, backend, instance, price_book_id,
			memory_mb, cpu_millis, disk_mb, state, started_at, ended_at, cpu)
		SELECT sandbox_id, %s, environment_id, agent_did, backend, instance, price_book_id, memory_mb, cpu_millis, disk_mb,
			CASE i %% 2 WHEN 0 THEN 'awake' ELSE 'asleep' END, started_at - (i + 1) * ?, started_at - i * ?, 1000000
		FROM usage_periods, (WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n)
		WHERE ended_at = 0 AND %s`
	const minute, second = int64(time.Minute / time.Microsecond), int64(time.Second / time.Microsecond)
	_, err = db.ExecContext(b.Context(), fmt.Sprintf(insert, "lease_id", "1 = 1"), minute, minute, 0, historyPeriods-1)
	if err == nil {
		_, err = db.ExecContext(b.Context(), fmt.Sprintf(insert, "'did:plc:past-' || i || '::' || environment_id", "id = 1"),
			second, second, 0, historyDays-1)
	}
	if err != nil {
		b.Fatal(err)
	}
}
