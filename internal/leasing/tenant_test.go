package leasing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// catan is a tenant of the environments catan-*.
var catan = &sandbox.Tenant{Name: "catan", Environments: []string{"catan-*"}}

// inSharedWorld has two environments whose agents share their state. The tenant may use one of them.
func inSharedWorld(t *testing.T, f func(w *world)) {
	inWorld(t, func(w *world) {
		w.startLoop()
		agents := func(s *sandbox.SnapshotSpec) { s.Scope = sandbox.ScopeAgent }
		w.environment(kept(agents))
		w.environment(kept(agents), func(p *sandbox.PutEnvironment) { p.ID = "other" })
		f(w)
	})
}

// leased acquires ann's lease in an environment for the tenant, nil for the operator.
func (w *world) leased(tenant *sandbox.Tenant, environment string) sandbox.Lease {
	w.Helper()
	a, err := w.engine.Acquire(w.Context(),
		sandbox.Acquire{AgentDID: ann, EnvironmentID: environment, Owner: "test", Tenant: tenant})
	if err != nil {
		w.Fatal(err)
	}
	return a.Lease
}

// leave stores what an agent should remember, and ends its lease.
func (w *world) leave(l sandbox.Lease, text string) {
	w.Helper()
	w.write(l.ID, text)
	if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		w.Fatal(err)
	}
}

func TestATenantBeginsWithWhatTheOperatorSavedInItsEnvironments(t *testing.T) {
	inSharedWorld(t, func(w *world) {
		w.leave(w.leased(nil, game), "the operator's")
		l := w.leased(catan, game)
		w.remembers(l, "the operator's")
		if l.Snapshot.Role != sandbox.RoleHolder || l.Snapshot.Key != ann+"@catan-*" || l.Snapshot.RestoredFrom.Key != ann {
			t.Errorf("its state is %+v", l.Snapshot)
		}
		w.leave(l, "the tenant's")
		w.remembers(w.leased(nil, "other"), "the operator's")
		w.remembers(w.leased(catan, game), "the tenant's")
	})
}

func TestATenantBeginsWithoutWhatTheOperatorSavedElsewhere(t *testing.T) {
	inSharedWorld(t, func(w *world) {
		w.leave(w.leased(nil, game), "of the tenant's environment")
		w.leave(w.leased(nil, "other"), "private")
		l := w.leased(catan, game)
		w.remembers(l, "")
		if l.Snapshot.RestoredFrom != nil {
			t.Errorf("it begins with %+v", l.Snapshot.RestoredFrom)
		}
	})
}

// A tenant's lease does not overtake the operator's unsaved state.
func TestATenantWaitsForWhatTheOperatorIsAboutToSave(t *testing.T) {
	inSharedWorld(t, func(w *world) {
		l := w.leased(nil, game)
		w.write(l.ID, "of the last minute")
		w.bucket.fail(sandbox.Errorf(sandbox.Unavailable, "the bucket is away"))
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Fatal(err)
		}
		_, err := w.engine.Acquire(w.Context(),
			sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test", Tenant: catan})
		if sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Fatalf("while the state cannot be saved: %v", err)
		}
		w.bucket.fault(nil)
		later(time.Minute)
		w.remembers(w.leased(catan, game), "of the last minute")
	})
}

// Two leases of a tenant begin with one source. The second lease then copies the first, as usual.
func TestASourceIsOneForAllLeasesOfATenant(t *testing.T) {
	inSharedWorld(t, func(w *world) {
		w.environment(kept(func(s *sandbox.SnapshotSpec) { s.Scope = sandbox.ScopeAgent }),
			func(p *sandbox.PutEnvironment) { p.ID = "catan-8" })
		w.leave(w.leased(nil, game), "the operator's")
		first, second := w.leased(catan, game), w.leased(catan, "catan-8")
		w.remembers(first, "the operator's")
		w.remembers(second, "the operator's")
		if first.Snapshot.Role != sandbox.RoleHolder || second.Snapshot.Role != sandbox.RoleCopy ||
			second.Snapshot.Key != first.Snapshot.Key {
			t.Errorf("their states are %+v and %+v", first.Snapshot, second.Snapshot)
		}
	})
}

// An adopted sandbox does not say which token leased it.
func TestWhatAnAdoptedAgentHasGoesNoFurtherThanItsEnvironment(t *testing.T) {
	inSharedWorld(t, func(w *world) {
		w.write(w.leased(catan, game).ID, "of the tenant")
		lost := w.store.ID()
		w.close()
		w.url = "sqlite://" + w.path + ".new"
		w.open()
		w.startLoop()
		agents := func(s *sandbox.SnapshotSpec) { s.Scope = sandbox.ScopeAgent }
		w.environment(kept(agents))
		w.environment(kept(agents), func(p *sandbox.PutEnvironment) { p.ID = "other" })
		if _, err := w.engine.Adopt(w.Context(), sandbox.AdoptRequest{LedgerID: lost, EnvironmentID: game}); err != nil {
			t.Fatal(err)
		}
		l := w.lease(annLease)
		if l.Snapshot == nil || l.Snapshot.Key != ann+"@"+game {
			t.Fatalf("the adopted lease's state is %+v", l.Snapshot)
		}
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
			t.Fatal(err)
		}
		w.remembers(w.leased(nil, "other"), "")
		w.remembers(w.leased(catan, game), "of the tenant")
	})
}
