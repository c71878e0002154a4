package cli_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
)

func TestUsageAndHealthOfALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	w.want(w.run("leases", "usage", "did:plc:ann::catan-7"), cli.ExitDone, "running", "1.0 MiB", "PIDS")
	w.want(w.run("leases", "health", "did:plc:ann::catan-7"), cli.ExitDone, "true", "active", "awake")
	w.want(w.run("leases", "health", "did:plc:ann::catan-7", "-o", "json"), cli.ExitDone, `"healthy": true`)
	w.BackendAway(true)
	w.want(w.run("leases", "health", "did:plc:ann::catan-7"), cli.ExitFailed, "false", "the engine is away")
	w.want(w.run("leases", "usage", "did:plc:ann::catan-7"), cli.ExitRetry, "the engine is away")
	w.want(w.run("leases", "health", "did:plc:bob::catan-7"), cli.ExitFailed, "did:plc:bob")
	w.want(w.run("leases", "usage"), cli.ExitUsage, "1 argument, ")
}
