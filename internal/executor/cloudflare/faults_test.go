package cloudflare_test

import (
	"context"
	_ "embed" // a part of a Worker
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
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

// fault is what testdata/faults.js knows of a sandbox.
type fault struct {
	Saved    bool `json:"saved"`
	Saves    int  `json:"saves"`    // that began
	Restores int  `json:"restores"` // that began
	Uploads  int  `json:"uploads"`  // that began
	Uploaded int  `json:"uploaded"`
}

func (w *world) fault(h driver.Handle) (f fault) {
	w.Helper()
	w.ask("/fault?name="+url.QueryEscape(h.LedgerID+"/"+h.SandboxID), &f)
	return f
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

// interruptedWake begins a wake of a sandbox with saved /data, and returns once it restores /data. The restore hangs.
func (w *world) interruptedWake(fault string, l cloudflare.Limits) driver.Handle {
	w.Helper()
	h := w.spawn(l, withFault(fault))
	w.sh(h, "echo kept > /data/note")
	w.must(w.worker.Sleep(w.Context(), h))
	waking, x := make(chan struct{}), w.worker
	go func() {
		defer close(waking)
		_ = x.Wake(w.Context(), h) // a reset or a kill ends it
	}()
	w.Cleanup(func() { <-waking })
	testwait.Until(w, patience, "the wake restores /data", func() bool { return w.fault(h).Restores == 2 })
	return h
}

// TestAnInterruptedWakeKeepsTheSavedData resets Durable Objects while they restore /data. Their containers run on, with
// an empty /data, which must neither be used nor saved.
func TestAnInterruptedWakeKeepsTheSavedData(t *testing.T) {
	t.Parallel()
	w := faulty(t, 3*time.Second)
	ends := map[string]func(*world, driver.Handle){
		"its retry":  func(*world, driver.Handle) {},
		"an alarm":   endsByAlarm,
		"a command":  refusesCommands,
		"an export":  func(w *world, h driver.Handle) { w.wantExport(h, "./ ./note") },
		"its status": func(w *world, h driver.Handle) { w.awaitStopped(h) },
	}
	handles := map[string]driver.Handle{}
	for name := range ends {
		handles[name] = w.interruptedWake("second start", cloudflare.Limits{SleepAfter: 10 * time.Second})
	}
	w.server.Reset()
	w.worker = w.server.Worker()
	for name, end := range ends {
		t.Run("by "+name, func(t *testing.T) {
			t.Parallel()
			w, h := w.with(t), handles[name]
			end(w, h)
			w.must(w.worker.Wake(t.Context(), h))
			if got := w.sh(h, "cat /data/note"); got != "kept\n" {
				t.Errorf("after the wake /data/note has %q", got)
			}
			w.wantPeriods(h, cloudflare.CauseSleep, cloudflare.CauseStartFailed, "")
		})
	}
}

// TestAContainerOfAnEarlierReleaseRunsOn: an earlier Worker did not record that its containers have got /data.
func TestAContainerOfAnEarlierReleaseRunsOn(t *testing.T) {
	t.Parallel()
	w := faulty(t, 0)
	h := w.spawn(cloudflare.Limits{}, withFault("earlier release"))
	w.server.Reset()
	w.worker = w.server.Worker()
	if got := w.sh(h, "echo kept > /data/note; echo fine"); got != "fine\n" {
		t.Errorf("after the deployment it says %q", got)
	}
	w.wantPeriods(h, "")
	w.must(w.worker.Sleep(t.Context(), h))
	w.must(w.worker.Wake(t.Context(), h))
	if got := w.sh(h, "cat /data/note"); got != "kept\n" {
		t.Errorf("after a sleep /data/note has %q", got)
	}
}

// endsByAlarm waits until a container has ended without any request.
func endsByAlarm(w *world, h driver.Handle) {
	testwait.Until(w, patience, "the copy has its end", func() bool {
		rows := w.server.Query(fmt.Sprintf("SELECT view FROM sandboxes WHERE id = '%s'", h.SandboxID))
		return len(rows) == 1 && strings.Contains(fmt.Sprint(rows[0]["view"]), `"state":"stopped"`)
	})
}

func refusesCommands(w *world, h driver.Handle) {
	_, err := w.exec(h, sandbox.ExecRequest{Command: []string{"true"}})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonInvalidState)
}

// TestAKillDoesNotWaitForARestore: the guest may not answer, even once its container has ended.
func TestAKillDoesNotWaitForARestore(t *testing.T) {
	t.Parallel()
	w := faulty(t, 0)
	h := w.interruptedWake("silent", cloudflare.Limits{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w.must(w.worker.Kill(ctx, h))
	w.wantPeriods(h, cloudflare.CauseSleep, cloudflare.CauseKill)
}

// TestAKillDoesNotWaitForASave: the guest may not answer, even once its container has ended.
func TestAKillDoesNotWaitForASave(t *testing.T) {
	t.Parallel()
	w := faulty(t, 0)
	h := w.spawn(cloudflare.Limits{}, withFault("mute"))
	before, slept := w.fault(h).Saves, make(chan struct{})
	go func() {
		defer close(slept)
		_ = w.worker.Sleep(t.Context(), h) // the kill ends it
	}()
	defer func() { <-slept }()
	testwait.Until(t, patience, "the sleep saves /data", func() bool { return w.fault(h).Saves > before })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w.must(w.worker.Kill(ctx, h))
	w.wantPeriods(h, cloudflare.CauseKill)
}

// TestALateUploadLeavesNothing kills a sandbox while its /data is saved.
func TestALateUploadLeavesNothing(t *testing.T) {
	t.Parallel()
	w := faulty(t, 0)
	h := w.spawn(cloudflare.Limits{}, withFault("late upload"))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// The kill may end the command.
		_, _ = w.exec(h, sandbox.ExecRequest{Command: []string{"sh", "-c", "echo late > /data/note"}})
	}()
	testwait.Until(t, patience, "the upload begins", func() bool { return w.fault(h).Uploads == 1 })
	w.must(w.worker.Kill(t.Context(), h))
	<-ended
	testwait.Until(t, patience, "the upload ends", func() bool { return w.fault(h).Uploaded == 1 })
	testwait.Until(t, 20*time.Second, "nothing is saved", func() bool { return !w.fault(h).Saved })
}
