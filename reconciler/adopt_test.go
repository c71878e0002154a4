package reconciler_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestSandboxOfALostLedgerIsAdopted loses the ledger of a living lease. A new ledger adopts the sandbox and ends it.
func TestSandboxOfALostLedgerIsAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	l := w.acquire(agent(0), "catan")
	w.exec(l.ID, "sh", "-c", "echo mine > /workspace/note")
	info, err := w.service.Ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := w.labelled()
	w.kill()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(strings.TrimPrefix(w.config.LedgerURL, "sqlite://") + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	w.start()
	t.Cleanup(func() { // even if the test fails, remove the objects of the lost ledger
		for _, id := range strings.Fields(w.docker("ps", "-aq", "--filter", lost)) {
			w.docker("rm", "-f", id)
		}
	})
	if w.labelled() == lost {
		t.Fatal("the new ledger has the lost one's id")
	}
	w.environment("catan")
	report, err := w.service.Adopt(t.Context(), sandbox.AdoptRequest{LedgerID: info.ID})
	if err != nil || len(report.Sandboxes) != 1 || !report.Sandboxes[0].Adopted {
		t.Fatalf("%+v, %v", report, err)
	}
	adopted := w.lease(l.ID)
	if adopted.SandboxID != l.SandboxID || adopted.Generation != l.Generation || adopted.Status != sandbox.LeaseActive {
		t.Errorf("adopted as %+v", adopted)
	}
	if latest := l.LeasedAt.Add(time.Duration(l.MaxLifetime)); adopted.ExpiresAt.After(latest) {
		t.Errorf("it expires at %s, and its sandbox ends itself at %s", adopted.ExpiresAt, latest)
	}
	if note := w.exec(l.ID, "cat", "/workspace/note"); note != "mine\n" {
		t.Errorf("the note is %q", note)
	}
	if status, r := w.post("msg_1", sandbox.Condition{Type: "game.finished", Timestamp: time.Now(),
		Data: sandbox.ConditionData{EnvironmentID: "catan"}}); status != 202 || r.Matched != 1 {
		t.Fatalf("%d %+v", status, r)
	}
	w.eventually("the adopted lease is destroyed", func() bool { return w.lease(l.ID).Status == sandbox.LeaseDestroyed })
	if err := w.service.DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: "catan"}); err != nil {
		t.Fatal(err)
	}
	left := w.docker("ps", "-aq", "--filter", lost) + w.docker("volume", "ls", "-q", "--filter", lost) +
		w.docker("images", "-q", "--filter", lost)
	if left != "" {
		t.Errorf("left on the engine of the lost ledger: %s", left)
	}
}
