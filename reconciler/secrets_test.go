package reconciler_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestSecretsOutliveTheReconciler tests real containers, a warm pool, a stop, and a kill and restart of the reconciler
// on its ledger and key.
func TestSecretsOutliveTheReconciler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	const value = "hunter2-of-the-reconciler"
	stopping := func(p *sandbox.PutEnvironment) {
		p.SleepMode, p.Secrets = sandbox.SleepStop, []string{"token"}
		p.WarmPool = &sandbox.WarmPool{Size: 1}
	}
	w.environment("catan", stopping,
		func(p *sandbox.PutEnvironment) { p.SecretValues = map[string]sandbox.Secret{"token": value} })
	w.eventually("a sandbox waits", func() bool { return w.poolReady() == 1 })
	l := w.acquire(agent(0), "catan")
	holds := func(value string) bool { // without printing it: the output of commands is stored
		t.Helper()
		sum, _, _ := strings.Cut(w.exec(l.ID, "sha256sum", "/run/secrets/token"), " ")
		return sum == fmt.Sprintf("%x", sha256.Sum256([]byte(value)))
	}
	if !holds(value) {
		t.Error("from the pool it holds something else")
	}
	if _, err := w.service.Sleep(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	w.kill()
	w.start()
	if !holds(value) {
		t.Error("after a stop and another reconciler it holds something else")
	}
	w.environment("catan", stopping,
		func(p *sandbox.PutEnvironment) { p.SecretValues = map[string]sandbox.Secret{"token": "changed"} })
	if !holds("changed") {
		t.Error("after a change it holds something else")
	}
	if told := w.docker("inspect", "sandbox-"+w.ledgerID()+"-"+l.SandboxID); strings.Contains(told, value) {
		t.Error("the engine reveals the value")
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(w.config.TokenFile), "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the reconciler's files are %v: %v", files, err)
	}
	for _, f := range files {
		if content, err := os.ReadFile(f); err == nil && strings.Contains(string(content), value) {
			t.Errorf("%s holds the value", f)
		}
	}
}

func (w *world) ledgerID() string {
	w.Helper()
	info, err := w.service.Ledger(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return info.ID
}

func TestAuditOfRealSandboxesFindsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	l := w.acquire(agent(0), "catan")
	report, err := w.service.Audit(t.Context(), sandbox.AuditRequest{})
	if err != nil || report.Findings() != 0 || len(report.Instances) != 1 || len(report.Instances[0].Checks) < 30 {
		t.Fatalf("the report is %+v: %v", report, err)
	}
	w.docker("update", "--pids-limit", "-1", "sandbox-"+w.ledgerID()+"-"+l.SandboxID)
	if report, err = w.service.Audit(t.Context(), sandbox.AuditRequest{EnvironmentID: "catan"}); err != nil ||
		report.Findings() != 1 {
		t.Errorf("after an update there are %d findings: %v", report.Findings(), err)
	}
}
