package servicetest

import (
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var adoptTests = []test{
	{"AdoptedSandboxIsALease", adoptedOfThisLedger},
	{"AdoptedSandboxOfALostLedgerIsALease", adoptedOfALostLedger},
	{"AdoptedSandboxKeepsItsDeadline", adoptedSandboxKeepsItsDeadline},
	{"AdoptedToEndIsDestroyed", adoptedToEndIsDestroyed},
	{"AdoptTakesFromNoPoolButToDestroy", adoptTakesFromNoPoolButToDestroy},
	{"AdoptNeedsTheEnvironment", adoptNeedsTheEnvironment},
	{"AdoptOvertakesNoLivingLease", adoptOvertakesNoLivingLease},
	{"AdoptTakesNoOldGeneration", adoptTakesNoOldGeneration},
	{"DryAdoptChangesNothing", dryAdoptChangesNothing},
	{"AdoptRequestIsChecked", adoptRequestIsChecked},
}

const lostLedger = "lostlostlostlost"

var bobsLease = sandbox.LeaseID(bob, game)

// adopt adopts the planted sandbox and returns the result.
func (w *world) adopt(r sandbox.AdoptRequest) sandbox.Adoption {
	w.Helper()
	report := must(w.Service.Adopt(w.Context(), r))(w)
	if len(report.Sandboxes) != 1 || report.DryRun != r.DryRun || r.LedgerID != "" && report.LedgerID != r.LedgerID {
		w.Fatalf("the report is %+v, want one sandbox", report)
	}
	a := report.Sandboxes[0]
	if a.SandboxID != strayID || a.LeaseID != bobsLease || a.EnvironmentID != game || a.Instance != w.Instance {
		w.Errorf("the sandbox is %+v", a)
	}
	return a
}

func (w *world) wantAdopted(a sandbox.Adoption) {
	w.Helper()
	if !a.Adopted || a.Why != "" {
		w.Errorf("it was not adopted: %+v", a)
	}
}

func (w *world) wantRefused(a sandbox.Adoption, why string) {
	w.Helper()
	if a.Adopted || !strings.Contains(a.Why, why) {
		w.Errorf("adopted is %t because %q, want it refused because %q", a.Adopted, a.Why, why)
	}
	if w.Running() == 0 {
		w.Error("the sandbox that was not adopted is gone")
	}
}

func adoptedOfThisLedger(w *world)  { w.adoptedIsALease(w.ledgerID(), "") }
func adoptedOfALostLedger(w *world) { w.adoptedIsALease(lostLedger, lostLedger) }

// adoptedIsALease plants a sandbox under a label, adopts it, and uses the lease until its end.
func (w *world) adoptedIsALease(label, asked string) {
	w.environment()
	made := w.Now()
	w.plant(label)
	w.Pass(time.Hour)
	w.wantAdopted(w.adopt(sandbox.AdoptRequest{LedgerID: asked}))
	l := w.lease(bob)
	w.wantLease(l, 3, sandbox.LeaseActive, "")
	if l.SandboxID != strayID || l.Phase != sandbox.PhaseAwake || !l.LeasedAt.Equal(made) ||
		l.Owner != owner || l.Cost != 0 {
		w.Errorf("the lease is %+v", l)
	}
	if again := must(w.Service.Adopt(w.Context(), sandbox.AdoptRequest{LedgerID: asked}))(w); len(again.Sandboxes) != 0 {
		w.Errorf("adopted again: %+v", again)
	}
	run := sandbox.ExecRequest{Command: []string{"echo", "hello"}}
	if res := must(w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: bobsLease}, run))(w); res.ExitCode != 0 {
		w.Errorf("a command in it gave %+v", res)
	}
	w.Advance(time.Minute)
	if cost := w.lease(bob).Cost; cost == 0 {
		w.Error("a minute of it costs nothing")
	}
	if found := must(w.Service.ListDrift(w.Context(),
		sandbox.DriftFilter{Status: sandbox.DriftOpen}))(w); len(found) != 0 {
		w.Errorf("adopted, it drifts: %+v", found)
	}
	w.wantReceipt(w.deliver("game.finished"), sandbox.DeliveryApplied, 1)
	w.Advance(time.Second)
	w.wantLease(w.lease(bob), 3, sandbox.LeaseDestroyed, sandbox.EndedByCondition)
	if w.Running() != 0 {
		w.Error("its sandbox is there still")
	}
}

func adoptedSandboxKeepsItsDeadline(w *world) {
	w.environment()
	spec := w.plant(lostLedger)
	w.wantAdopted(w.adopt(sandbox.AdoptRequest{LedgerID: lostLedger}))
	w.Pass(4 * time.Hour)
	if l := must(w.Service.Renew(w.Context(),
		sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: bobsLease}}))(w); !l.ExpiresAt.Equal(spec.Deadline) {
		w.Errorf("renewed, it expires at %s, and its sandbox ends itself at %s", l.ExpiresAt, spec.Deadline)
	}
	w.Advance(time.Hour + time.Second)
	w.wantLease(w.lease(bob), 3, sandbox.LeaseDestroyed, sandbox.EndedByMaxLifetime)
}

func adoptedToEndIsDestroyed(w *world) {
	w.environment()
	w.plant(lostLedger)
	w.wantAdopted(w.adopt(sandbox.AdoptRequest{LedgerID: lostLedger, End: true}))
	w.Advance(time.Second)
	w.wantLease(w.lease(bob), 3, sandbox.LeaseDestroyed, sandbox.EndedByAdmin)
	if w.Running() != 0 {
		w.Error("its sandbox is there still")
	}
	if l := w.acquire(bob); l.Generation != 4 {
		w.Errorf("the next generation is %d, want 4", l.Generation)
	}
}

// adoptTakesFromNoPoolButToDestroy plants a sandbox that was created for a warm pool. Its labels do not show whether a
// lease has had it since.
func adoptTakesFromNoPoolButToDestroy(w *world) {
	w.environment()
	w.plant(lostLedger, func(s *driver.SandboxSpec) { s.LeaseID, s.AgentDID, s.Generation = "", "", 0 })
	adopt := func(end bool) sandbox.Adoption {
		w.Helper()
		report := must(w.Service.Adopt(w.Context(), sandbox.AdoptRequest{LedgerID: lostLedger, End: end}))(w)
		if len(report.Sandboxes) != 1 || report.Sandboxes[0].SandboxID != strayID {
			w.Fatalf("the report is %+v", report)
		}
		return report.Sandboxes[0]
	}
	w.wantRefused(adopt(false), "adopt it with end, which destroys it")
	w.wantAdopted(adopt(true))
	w.Advance(time.Second)
	if w.Running() != 0 {
		w.Error("its sandbox is there still")
	}
	if leases := must(w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{}))(w); len(leases) != 0 {
		w.Errorf("it left the leases %+v", leases)
	}
}

func adoptNeedsTheEnvironment(w *world) {
	w.plant(lostLedger)
	w.wantRefused(w.adopt(sandbox.AdoptRequest{LedgerID: lostLedger}), "create it first")
	other := must(w.Service.Adopt(w.Context(), sandbox.AdoptRequest{LedgerID: lostLedger, EnvironmentID: "rpg-1"}))(w)
	if len(other.Sandboxes) != 0 {
		w.Errorf("of another environment there are %+v", other.Sandboxes)
	}
	w.environment()
	w.wantAdopted(w.adopt(sandbox.AdoptRequest{LedgerID: lostLedger, EnvironmentID: game}))
}

func adoptOvertakesNoLivingLease(w *world) {
	w.environment()
	l := w.acquire(bob)
	w.plant(lostLedger)
	w.wantRefused(w.adopt(sandbox.AdoptRequest{LedgerID: lostLedger}), "is live in generation 1")
	if now := w.lease(bob); now.SandboxID != l.SandboxID {
		w.Errorf("the lease has moved to %s", now.SandboxID)
	}
}

func adoptTakesNoOldGeneration(w *world) {
	w.environment()
	w.acquire(bob)
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: bobsLease}))(w)
	w.plant(lostLedger, func(s *driver.SandboxSpec) { s.Generation = 1 })
	w.wantRefused(w.adopt(sandbox.AdoptRequest{LedgerID: lostLedger}), "given out generation 1")
	w.wantLease(w.lease(bob), 1, sandbox.LeaseDestroyed, sandbox.EndedByRelease)
}

func dryAdoptChangesNothing(w *world) {
	w.environment()
	w.plant(lostLedger)
	w.wantAdopted(w.adopt(sandbox.AdoptRequest{LedgerID: lostLedger, DryRun: true}))
	_, err := w.Service.GetLease(w.Context(), bobsLease)
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}

func adoptRequestIsChecked(w *world) {
	_, err := w.Service.Adopt(w.Context(), sandbox.AdoptRequest{LedgerID: "x"})
	w.wantError(err, sandbox.Invalid, "", "ledger_id")
	w.BackendAway(true)
	_, err = w.Service.Adopt(w.Context(), sandbox.AdoptRequest{})
	w.wantError(err, sandbox.Unavailable, "")
}
