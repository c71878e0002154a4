package ledger_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestNoStatementOfALeaseReadsItsHistory checks the plan of every statement that acquires, reads, renews, lists and
// puts leases to sleep, lists environments, and checks budgets. Of usage, they may read only what the sums do not count
// yet, through an index with nothing else.
func TestNoStatementOfALeaseReadsItsHistory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	store := ledgertest.Open(t, "sqlite://"+path, ledger.Options{})
	engine := newEngine(t, store)
	var mu sync.Mutex // the engine also queries in the background
	asked := make(map[string][]any)
	if err := store.OnRead(t.Context(), func(sql string, vars []any) {
		mu.Lock()
		defer mu.Unlock()
		asked[sql] = vars
	}); err != nil {
		t.Fatal(err)
	}
	acquire := sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: "catan-7", Owner: "test"}
	lease := sandbox.LeaseRef{ID: sandbox.LeaseID(acquire.AgentDID, acquire.EnvironmentID)}
	for what, step := range map[string]func() error{
		"acquire": func() error { _, err := engine.Acquire(t.Context(), acquire); return err },
		"get":     func() error { _, err := engine.GetLease(t.Context(), lease.ID); return err },
		"renew":   func() error { _, err := engine.Renew(t.Context(), sandbox.Renew{LeaseRef: lease}); return err },
		"sleep":   func() error { _, err := engine.Sleep(t.Context(), lease); return err },
		"wake":    func() error { _, err := engine.Wake(t.Context(), lease); return err },
		"list":    func() error { _, err := engine.ListLeases(t.Context(), sandbox.LeaseFilter{}); return err },
		"games":   func() error { _, err := engine.ListEnvironments(t.Context()); return err },
		"budgets": func() error { return engine.CheckBudgets(t.Context()) },
	} {
		if _, err := engine.Acquire(t.Context(), acquire); err != nil { // the first requests differ from later ones
			t.Fatal(err)
		}
		if err := step(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	bounded := regexp.MustCompile(`INDEX usage_periods_(open|unrolled|unsettled)\b`)
	periods := 0
	for sql, vars := range asked {
		plan := explain(t, path, sql, vars)
		if strings.Contains(sql, "cost_days") || strings.Contains(plan, "SCAN usage_periods") {
			t.Errorf("%s\nreads history: %s", sql, plan)
		}
		if !strings.Contains(plan, "usage_periods") {
			continue
		}
		periods++
		if !strings.HasSuffix(sql, "LIMIT 1") && !bounded.MatchString(plan) {
			t.Errorf("%s\nis answered by %s", sql, plan)
		}
	}
	if periods < 3 {
		t.Errorf("%d statements about usage were seen: %v", periods, asked)
	}
}

// newEngine returns an engine with an environment that has a budget.
func newEngine(t *testing.T, store *ledger.Store) *leasing.Service {
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
	_, err = engine.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    "catan-7",
		Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type:    sandbox.TypeCatan,
			Image:   "player",
			Network: sandbox.NetworkNone,
			Budget:  &sandbox.Budget{Monthly: 1e6 * sandbox.USD},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return engine
}
