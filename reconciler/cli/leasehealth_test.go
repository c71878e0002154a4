package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
)

func TestUsageAndHealthOfALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	w.want(w.run("lease", "usage", "did:plc:ann::catan-7"), cli.ExitDone, "running", "1.0 MiB", "PIDS")
	w.want(w.run("lease", "health", "did:plc:ann::catan-7"), cli.ExitDone, "true", "active", "awake")
	w.want(w.run("lease", "health", "did:plc:ann::catan-7", "-o", "json"), cli.ExitDone, `"healthy": true`)
	w.BackendAway(true)
	w.want(w.run("lease", "health", "did:plc:ann::catan-7"), cli.ExitFailed, "false", "the engine is away")
	w.want(w.run("lease", "usage", "did:plc:ann::catan-7"), cli.ExitRetry, "the engine is away")
	w.want(w.run("lease", "health", "did:plc:bob::catan-7"), cli.ExitFailed, "did:plc:bob")
	w.want(w.run("lease", "usage"), cli.ExitUsage, "1 argument (lease), ")
}

func TestUsageOfALeaseOverTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const lease = "did:plc:ann::catan-7"
	w.game(time.Second)
	history := func(args ...string) result {
		return w.run(append([]string{"lease", "usage", lease, "--history"}, args...)...)
	}
	began := w.Now()
	for range 3 {
		w.Advance(time.Minute)
		l, err := w.Service.GetLease(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		w.Burn(l.SandboxID, 15*time.Second)
	}
	w.want(history(), cli.ExitDone, "SAMPLED", "CPU TIME", "0.250", "30s", "1.0 MiB")
	only := history("--from", began.Add(2*time.Minute).Format(time.RFC3339), "--to", w.Now().Format(time.RFC3339))
	w.want(only, cli.ExitDone, "0.250", "30s")
	if lines := strings.Count(only.out, "\n"); lines != 2 {
		t.Errorf("a title and one sample are %d lines: %s", lines, only.out)
	}
	w.want(history("-o", "json"), cli.ExitDone, `"cpu_millis": 250`, `"lease_id": "did:plc:ann::catan-7"`)
	w.want(history("--from", "yesterday"), cli.ExitUsage, "--from")
	w.want(w.run("lease", "usage", lease, "--to", "2026-08-01T00:00:00Z"), cli.ExitUsage, "--history")
	w.want(w.run("lease", "release", lease), cli.ExitDone)
	w.want(w.run("lease", "usage", lease), cli.ExitFailed, "has ended")
	w.want(history(), cli.ExitDone, "0.250")
}
