package cloudflare_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
)

// TestTheWorkerJudgesHostsAsTheGatewayDoes runs the cases of internal/gateway/policy on the Worker's rules.
func TestTheWorkerJudgesHostsAsTheGatewayDoes(t *testing.T) {
	cloudflaretest.Need(t)
	t.Parallel()
	const file = "../../gateway/policy/testdata/hosts.json"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var shared struct {
		Cases []struct {
			Host   string
			Port   int
			Reason string
		}
	}
	if err := json.Unmarshal(b, &shared); err != nil || len(shared.Cases) == 0 {
		t.Fatalf("%d cases: %v", len(shared.Cases), err)
	}
	policy := buildModule(t, "policy")
	out, err := exec.CommandContext(t.Context(), "node", "testdata/judgehosts.mjs", policy, file).Output()
	if err != nil {
		t.Fatalf("judge the cases: %v", err)
	}
	var reasons []string
	if err := json.Unmarshal(out, &reasons); err != nil || len(reasons) != len(shared.Cases) {
		t.Fatalf("%d cases have the reasons %s: %v", len(shared.Cases), out, err)
	}
	for i, c := range shared.Cases {
		if reasons[i] != c.Reason {
			t.Errorf("%q port %d: %q, want %q", c.Host, c.Port, reasons[i], c.Reason)
		}
	}
}

// buildModule builds a module of the Worker for Node.js.
func buildModule(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".mjs")
	build := exec.CommandContext(t.Context(), "node_modules/.bin/esbuild", "src/"+name+".ts", "--bundle", "--format=esm",
		"--outfile="+path, "--log-level=warning")
	build.Dir = "worker"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the Worker's %s: %v\n%s(run make worker)", name, err, out)
	}
	return path
}

// TestAFloodOfAttemptsIsCountedAndNoLineIsLoggedTwice: one sandbox makes 1,600 attempts in a moment, and the database
// fails.
func TestAFloodOfAttemptsIsCountedAndNoLineIsLoggedTwice(t *testing.T) {
	cloudflaretest.Need(t)
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "node", "testdata/logattempts.mjs", buildModule(t, "attempts")).Output()
	if err != nil {
		t.Fatalf("log attempts: %v", err)
	}
	type result struct {
		Open, Lines, Unique, Dropped, Largest int
		Later                                 bool
	}
	var got result
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("it says %s: %v", out, err)
	}
	// 256 of 300 concurrent requests are allowed. 1,000 lines are logged at once and 44 after a pause; 300 are counted.
	// After an hour, open ones whose end was never reported do not count.
	if want := (result{Open: 256, Later: true, Lines: 1044, Unique: 1044, Dropped: 300, Largest: 200}); got != want {
		t.Errorf("it has %+v, want %+v", got, want)
	}
}
