package servicetest

import (
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var maintenanceTests = []test{
	{"SweepReportsAndDestroys", sweepReportsAndDestroys},
	{"DrySweepChangesNothing", drySweepChangesNothing},
	{"SweepOfALedgerThatNeverKnewASandboxRefuses", sweepOfAnEmptyLedger},
	{"SweepWithoutABackendIsUnavailable", sweepWithoutABackend},
	{"AuditNamesWhatIsWeakened", auditNamesWhatIsWeakened},
	{"AuditWithoutABackendIsUnavailable", auditWithoutABackend},
}

const strayID = "straystraystraystraystrays"

// plant creates a sandbox on the backend that the ledger does not know.
func (w *world) plant(ledgerID string, change ...func(s *driver.SandboxSpec)) driver.SandboxSpec {
	w.Helper()
	spec := driver.SandboxSpec{
		Handle:     driver.Handle{LedgerID: ledgerID, EnvironmentID: game, SandboxID: strayID, Instance: w.Instance},
		LeaseID:    sandbox.LeaseID(bob, game),
		AgentDID:   bob,
		Generation: 3,
		Image:      "player",
		Resources:  sandbox.Resources{MemoryMB: 4096, CPUMillis: 500, PIDs: 256, DiskMB: 8000},
		Deadline:   w.Now().Add(5 * time.Hour),
	}
	for _, c := range change {
		c(&spec)
	}
	w.Plant(spec)
	return spec
}

func (w *world) ledgerID() string {
	w.Helper()
	return must(w.Service.Ledger(w.Context()))(w).ID
}

// sweep returns the findings of a sweep on the only instance.
func (w *world) sweep(dry bool) []sandbox.SweepFinding {
	w.Helper()
	report := must(w.Service.Sweep(w.Context(), sandbox.SweepRequest{DryRun: dry}))(w)
	if report.LedgerID != w.ledgerID() || report.DryRun != dry || len(report.Instances) != 1 {
		w.Fatalf("the report is %+v", report)
	}
	if i := report.Instances[0]; i.Backend != sandbox.Docker || i.Instance != w.Instance || i.Error != "" {
		w.Errorf("the instance is %+v", i)
	}
	return report.Instances[0].Findings
}

// wantStray checks that a sweep found only the planted sandbox, and its action.
func (w *world) wantStray(found []sandbox.SweepFinding, action sandbox.SweepAction, why string) {
	w.Helper()
	if len(found) != 1 || found[0].Kind != sandbox.DriftOrphan || found[0].SandboxID != strayID ||
		found[0].EnvironmentID != game {
		w.Fatalf("found %+v, want the planted sandbox", found)
	}
	if f := found[0]; f.Action != action || !strings.Contains(f.Why, why) || f.FirstSeenAt.IsZero() ||
		f.CreatedAt.IsZero() {
		w.Errorf("found %+v, want %s because %q", f, action, why)
	}
}

func sweepReportsAndDestroys(w *world) {
	w.environment()
	l := w.acquire(ann)
	w.plant(w.ledgerID())
	if found := w.sweep(false); len(found) != 0 {
		w.Errorf("found %+v, but it was made a moment ago", found)
	}
	w.Pass(3 * time.Minute)
	w.wantStray(w.sweep(false), sandbox.SweepKeep, "next resync")
	w.wantStray(w.sweep(false), sandbox.SweepKeep, "first seen")
	w.Pass(3 * time.Minute)
	w.wantStray(w.sweep(true), sandbox.SweepDestroy, "")
	w.wantStray(w.sweep(false), sandbox.SweepDestroy, "")
	if w.Running() != 1 {
		w.Errorf("%d sandboxes run, want that of the lease", w.Running())
	}
	w.Remove(l.SandboxID)
	found := w.sweep(true)
	if len(found) != 1 || found[0].Kind != sandbox.DriftVanished || found[0].LeaseID != annsLease ||
		found[0].Action != sandbox.SweepRecord {
		w.Errorf("found %+v, want the vanished sandbox", found)
	}
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "") // a dry run ends nothing
	w.sweep(false)
	if by := w.lease(ann).EndedBy; by != sandbox.EndedByVanished {
		w.Errorf("ended by %q", by)
	}
}

func drySweepChangesNothing(w *world) {
	w.environment()
	w.acquire(ann)
	w.plant(w.ledgerID())
	for range 4 {
		w.Pass(3 * time.Minute)
		w.wantStray(w.sweep(true), sandbox.SweepKeep, "next resync")
	}
	if found := must(w.Service.ListDrift(w.Context(), sandbox.DriftFilter{}))(w); len(found) != 0 || w.Running() != 2 {
		w.Errorf("%d sandboxes run, and the ledger has %+v", w.Running(), found)
	}
}

func sweepOfAnEmptyLedger(w *world) {
	w.environment()
	w.plant(w.ledgerID())
	for range 3 {
		w.Pass(3 * time.Minute)
		w.wantStray(w.sweep(false), sandbox.SweepKeep, "sandbox adopt")
	}
	if w.Running() != 1 {
		w.Error("a ledger that never knew a sandbox has destroyed one")
	}
}

func sweepWithoutABackend(w *world) {
	w.BackendAway(true)
	_, err := w.Service.Sweep(w.Context(), sandbox.SweepRequest{})
	w.wantError(err, sandbox.Unavailable, "")
}

// audit returns the checks of the only instance.
func (w *world) audit(r sandbox.AuditRequest) (sandbox.AuditReport, []sandbox.AuditCheck) {
	w.Helper()
	report := must(w.Service.Audit(w.Context(), r))(w)
	if report.LedgerID != w.ledgerID() || len(report.Instances) != 1 {
		w.Fatalf("the report is %+v", report)
	}
	i := report.Instances[0]
	if i.Backend != sandbox.Docker || i.Instance != w.Instance || i.Error != "" {
		w.Errorf("the instance is %+v", i)
	}
	return report, i.Checks
}

func auditNamesWhatIsWeakened(w *world) {
	w.environment()
	if report, checks := w.audit(sandbox.AuditRequest{}); len(checks) != 0 || report.Findings() != 0 {
		w.Errorf("an audit of nothing found %+v", checks)
	}
	anns, bobs := w.acquire(ann), w.acquire(bob)
	if report, checks := w.audit(sandbox.AuditRequest{}); len(checks) != 2 || report.Findings() != 0 {
		w.Errorf("an audit of two sandboxes found %+v", checks)
	}
	w.Weaken(bobs.SandboxID, "it is privileged")
	report, checks := w.audit(sandbox.AuditRequest{EnvironmentID: game})
	if report.Findings() != 1 {
		w.Errorf("%d findings, want 1: %+v", report.Findings(), checks)
	}
	for _, c := range checks {
		want := sandbox.VerdictPass
		if c.SandboxID == bobs.SandboxID {
			want = sandbox.VerdictFinding
		}
		if c.Verdict != want || (c.Detail == "it is privileged") != (want == sandbox.VerdictFinding) ||
			c.EnvironmentID != game || c.Rule == "" || c.Title == "" {
			w.Errorf("the check is %+v, want %s", c, want)
		}
	}
	if _, checks := w.audit(sandbox.AuditRequest{EnvironmentID: "another"}); len(checks) != 0 {
		w.Errorf("an audit of another environment found %+v", checks)
	}
	w.wantLease(w.lease(ann), anns.Generation, sandbox.LeaseActive, "") // an audit ends nothing
	w.wantLease(w.lease(bob), bobs.Generation, sandbox.LeaseActive, "")
}

func auditWithoutABackend(w *world) {
	w.environment()
	w.BackendAway(true)
	_, err := w.Service.Audit(w.Context(), sandbox.AuditRequest{})
	w.wantError(err, sandbox.Unavailable, "")
}
