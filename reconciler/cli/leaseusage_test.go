package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
)

func TestUsageAndHealthOfALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	w.want(w.run("lease", "usage", "did:plc:ann::catan-7"), exit.Done, "running", "1.0 MiB", "PIDS")
	w.want(w.run("lease", "health", "did:plc:ann::catan-7"), exit.Done, "true", "active", "awake")
	w.want(w.run("lease", "health", "did:plc:ann::catan-7", "-o", "json"), exit.Done, `"healthy": true`)
	w.BackendAway(true)
	w.want(w.run("lease", "health", "did:plc:ann::catan-7"), exit.Failed, "false", "the engine is away")
	w.want(w.run("lease", "usage", "did:plc:ann::catan-7"), exit.Retry, "the engine is away")
	w.want(w.run("lease", "health", "did:plc:bob::catan-7"), exit.Failed, "did:plc:bob")
	w.want(w.run("lease", "usage"), exit.Usage, "1 argument (lease), ")
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
	w.want(history(), exit.Done, "SAMPLED", "CPU TIME", "0.250", "30s", "1.0 MiB")
	only := history("--from", began.Add(2*time.Minute).Format(time.RFC3339), "--to", w.Now().Format(time.RFC3339))
	w.want(only, exit.Done, "0.250", "30s")
	if lines := strings.Count(only.out, "\n"); lines != 2 {
		t.Errorf("a title and one sample are %d lines: %s", lines, only.out)
	}
	w.want(history("-o", "json"), exit.Done, `"cpu_millis": 250`, `"lease_id": "did:plc:ann::catan-7"`)
	w.want(history("--from", "yesterday"), exit.Usage, "--from")
	w.want(w.run("lease", "usage", lease, "--to", "2026-08-01T00:00:00Z"), exit.Usage, "--history")
	w.want(w.run("lease", "release", lease), exit.Done)
	w.want(w.run("lease", "usage", lease), exit.Failed, "has ended")
	w.want(history(), exit.Done, "0.250")
}
