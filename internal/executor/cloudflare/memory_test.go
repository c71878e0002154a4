package cloudflare_test

import (
	_ "embed" // a part of a Worker
	"os"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
)

//go:embed testdata/memory.js
var memoryScript string

// memory is the answer of memory.js.
type memory struct {
	Objects int
	Alarms  []int64 // in milliseconds
	Timers  int
}

func (w *world) memory() (m memory) {
	w.Helper()
	w.ask("/memory", &m)
	return m
}

// TestAnIdleObjectIsSeldomInMemory: the Durable Object of an awake sandbox without callers is in memory at most 4 % of
// the time. Cloudflare removes an object from memory 10 s after its last event if nothing keeps it: no timer, no
// request, no WebSocket, no monitor() of its container (developers.cloudflare.com/durable-objects/concepts/
// durable-object-lifecycle and containers/api/durable-object-container, read 2026-11). The local runtime does so, too.
func TestAnIdleObjectIsSeldomInMemory(t *testing.T) {
	t.Parallel()
	const deployed, alarms = 5 * time.Minute, 2
	check := 30 * time.Second // the same alarms as in deployments, but more often
	if os.Getenv("SANDBOX_TEST_LONG") != "" {
		check = deployed
	}
	server := cloudflaretest.Start(t, cloudflaretest.Config{Check: check, Append: memoryScript})
	w := &world{t, server, server.Worker()}
	h := w.spawn(cloudflare.Limits{})
	left := func() bool { return server.InMemory() == 0 }
	testwait.Until(t, 20*time.Second, "the object has left memory after its start", left)
	w.sh(h, "echo hello") // its WebSocket closes after 10 s
	testwait.Until(t, 30*time.Second, "the object has left memory after a command", left)
	began := w.memory()

	const pause = 100 * time.Millisecond
	var last memory
	var inMemory, alarmed time.Duration
	for at, limit := time.Now(), time.Now().Add((alarms+1)*check); ; {
		time.Sleep(pause) //nolint:forbidigo // the test measures time
		passed := time.Since(at)
		at = at.Add(passed)
		if server.InMemory() > 0 {
			inMemory += passed
			continue
		}
		if last = w.memory(); len(last.Alarms) >= len(began.Alarms)+alarms {
			break
		}
		if at.After(limit) {
			t.Fatalf("after %s there were the alarms %v", (alarms+1)*check, last.Alarms)
		}
	}
	for _, ms := range last.Alarms[len(began.Alarms):] {
		alarmed += time.Duration(ms) * time.Millisecond
	}
	share := inMemory.Seconds() / alarms / deployed.Seconds()
	t.Logf("%d alarms took %s and kept the object in memory for %s: %.2f %% of the time, with an alarm every %s",
		alarms, alarmed, inMemory.Round(pause), 100*share, deployed)
	if share > 0.04 {
		t.Errorf("the object is in memory %.2f %% of the time, want at most 4 %%", 100*share)
	}
	if made := last.Objects - began.Objects; made != alarms {
		t.Errorf("%d alarms made %d objects, want one each", alarms, made)
	}
	if last.Timers > 0 {
		t.Errorf("%d timers are pending: at Cloudflare they would keep the object in memory", last.Timers)
	}
}
