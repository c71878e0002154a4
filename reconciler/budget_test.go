package reconciler_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestABudgetEndsWhatRunsOnDocker makes a sandbox use all of its CPU at a high price. It measures how much the budget
// was exceeded when the sandbox was gone.
func TestABudgetEndsWhatRunsOnDocker(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_ALL") == "" {
		t.Skip("takes 10 seconds: set SANDBOX_TEST_ALL")
	}
	const cpuSecond, budget = 10_000_000, 40_000_000 // 4 CPU seconds
	prices := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(prices, []byte(`{"name": "dear", "source": "test", "as_of": "2026-11-01",
		"memory_gib_second_usd": "0", "cpu_second_usd": "0.01", "disk_gb_second_usd": "0"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "", func(c *reconciler.Config) { c.DockerPriceBook = prices })
	w.environment("budget-1", func(p *sandbox.PutEnvironment) {
		p.TTL, p.Budget = sandbox.Duration(30*time.Second), &sandbox.Budget{Monthly: budget} // reserves 3.75 CPU seconds
	})
	l, began := w.acquire("did:plc:ada", "budget-1"), time.Now()
	if _, err := w.service.StartExec(t.Context(), sandbox.LeaseRef{ID: l.ID}, sandbox.ExecRequest{
		Command: []string{"sh", "-c", "while :; do :; done"}, Timeout: sandbox.Duration(10 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the sandbox is gone", func() bool {
		l = w.lease(l.ID)
		return l.Status == sandbox.LeaseDestroyed
	})
	if l.EndedBy != sandbox.EndedByBudget || !strings.Contains(l.EndReason, "the budget of environment budget-1") {
		t.Fatalf("the lease ended by %q: %s", l.EndedBy, l.EndReason)
	}
	ran := l.DestroyedAt.Sub(began)
	over := l.Cost - budget
	late := time.Duration(float64(ran) * float64(over) / float64(l.Cost)) // assuming a constant rate
	t.Logf("of $%s it cost $%s in %s: the sandbox was gone %s late, after %.1f CPU seconds too many",
		sandbox.NanoUSD(budget), l.Cost, ran, late, float64(over)/cpuSecond)
	if over < 0 || late > 30*time.Second {
		t.Errorf("the sandbox was gone %s after the budget was spent, $%s above it", late, over)
	}
}
