package executortest

import (
	"slices"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testCleaner(t *testing.T, cfg Config) {
	for name, test := range map[string]func(*testing.T, *world){
		"what sandboxes and environments have is listed":  dependentsListed,
		"another ledger's objects are not listed":         dependentsOfThisLedger,
		"what is in use is not removed":                   dependentInUse,
		"what nothing uses is removed, twice as well":     dependentRemoved,
		"what has another owner now is not removed":       dependentOfAnotherOwner,
		"a kill leaves nothing over of its sandbox alone": killLeavesNothing,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, cfg))
		})
	}
}

// owned returns the backend's objects that belong to h; shared objects if h has no sandbox.
func (w *world) owned(t *testing.T, h driver.Handle) []driver.Dependent {
	t.Helper()
	all, err := w.x.Dependents(t.Context(), h.LedgerID)
	must(t, err)
	return slices.DeleteFunc(all, func(l driver.Dependent) bool { return l.Handle != h })
}

// shared is the handle of the objects that the sandboxes of the environment share.
func (w *world) shared() driver.Handle {
	return driver.Handle{LedgerID: w.ref.LedgerID, EnvironmentID: w.ref.EnvironmentID, Instance: w.ref.Instance}
}

func (w *world) wantOwned(t *testing.T, h driver.Handle) []driver.Dependent {
	t.Helper()
	owned := w.owned(t, h)
	if len(owned) == 0 {
		t.Skip("the backend keeps nothing beside sandboxes")
	}
	return owned
}

func dependentsListed(t *testing.T, w *world) {
	h := w.spawn(t)
	for _, l := range append(w.wantOwned(t, h), w.wantOwned(t, w.shared())...) {
		if l.Name == "" || l.Kind == "" || l.CreatedAt.IsZero() {
			t.Errorf("it is listed as %+v", l)
		}
	}
}

func dependentsOfThisLedger(t *testing.T, w *world) {
	theirs := newWorld(t, w.Config)
	theirs.wantOwned(t, theirs.spawn(t))
	all, err := w.x.Dependents(t.Context(), w.ref.LedgerID)
	must(t, err)
	for _, l := range all {
		if l.LedgerID != w.ref.LedgerID {
			t.Errorf("the list has another ledger's %+v", l)
		}
	}
}

func dependentInUse(t *testing.T, w *world) {
	h := w.spawn(t)
	for _, l := range append(w.wantOwned(t, h), w.owned(t, w.shared())...) {
		if l.Kind != driver.DependentTemplate { // nothing uses it after the copy
			wantError(t, w.x.RemoveDependent(t.Context(), l), sandbox.Conflict, "")
		}
	}
	w.wantState(t, h, sandbox.StateRunning)
}

func dependentRemoved(t *testing.T, w *world) {
	h := w.spawn(t)
	left := append(w.wantOwned(t, h), w.wantOwned(t, w.shared())...)
	w.RemoveBehindBack(t, h)
	for range 2 {
		for _, l := range left {
			must(t, w.x.RemoveDependent(t.Context(), l))
		}
	}
	if left := append(w.owned(t, h), w.owned(t, w.shared())...); len(left) != 0 {
		t.Errorf("still there: %+v", left)
	}
}

func dependentOfAnotherOwner(t *testing.T, w *world) {
	h := w.spawn(t)
	left := w.wantOwned(t, h)
	w.RemoveBehindBack(t, h)
	for _, l := range left {
		l.SandboxID = sandbox.RandomIDs(sandbox.SandboxIDLength)
		wantError(t, w.x.RemoveDependent(t.Context(), l), sandbox.Conflict, "")
	}
	if now := w.owned(t, h); len(now) != len(left) {
		t.Errorf("%d objects are left of %d", len(now), len(left))
	}
	must(t, w.x.Kill(t.Context(), h))
}

func killLeavesNothing(t *testing.T, w *world) {
	h := w.spawn(t)
	w.wantOwned(t, h)
	must(t, w.x.Kill(t.Context(), h))
	if left := w.owned(t, h); len(left) != 0 {
		t.Errorf("left over: %+v", left)
	}
	w.wantOwned(t, w.shared())
}
