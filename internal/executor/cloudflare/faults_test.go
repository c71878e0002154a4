package cloudflare_test

import (
	_ "embed" // a part of a Worker
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
)

//go:embed testdata/faults.js
var faultsScript string

// faulty returns a Worker whose sandboxes have a fault of testdata/faults.js.
func faulty(t *testing.T, check time.Duration) *world {
	t.Helper()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Append: faultsScript, Check: check})
	return &world{t, server, server.Worker()}
}

func withFault(fault string) func(*driver.SandboxSpec) {
	return func(s *driver.SandboxSpec) { s.Env = map[string]string{"FAULT": fault} }
}

// TestAFailingSaveDoesNotOutlastTheTTL: the sandbox cannot sleep, because that would lose /data. Its ttl ends it.
func TestAFailingSaveDoesNotOutlastTheTTL(t *testing.T) {
	t.Parallel()
	w := faulty(t, 0)
	h := w.spawn(cloudflare.Limits{SleepAfter: time.Second, TTL: 5 * time.Second}, withFault("no save"))
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseTTL {
		t.Errorf("it stopped as %+v", p)
	}
}
