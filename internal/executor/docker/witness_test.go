package docker_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestACloneOfTheEngineSaysOfNothingThatItIsGone makes a machine answer that has the engine's id and nothing else.
func TestACloneOfTheEngineSaysOfNothingThatItIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawn(t)
	x, p := throughProxy(t)
	must(t, x.LeaveWitness(t.Context(), w.ref.LedgerID, w.ref.Instance, 7))
	t.Cleanup(func() {
		must(t, w.x.RemoveWitness(context.WithoutCancel(t.Context()), w.ref.LedgerID, w.ref.Instance, 7))
	})
	p.Set(dockertest.Clone(func(what string) { t.Errorf("the clone is asked for %s", what) }))
	if id, err := x.Instance(t.Context()); err != nil || id != w.ref.Instance {
		t.Fatalf("the clone has the id %s, %v", id, err)
	}
	spec := w.spec()
	for what, try := range map[string]func() error{
		"looking":   func() error { _, err := x.Inspect(t.Context(), h); return err },
		"ending":    func() error { return x.Kill(t.Context(), h) },
		"measuring": func() error { _, err := x.Usage(t.Context(), h); return err },
		"making":    func() error { return x.Spawn(t.Context(), spec) },
		"removing":  func() error { return x.Deprovision(t.Context(), w.ref) },
	} {
		if err := try(); sandbox.CodeOf(err) != sandbox.Unavailable || sandbox.ReasonOf(err) != sandbox.ReasonOtherInstance {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n, err := x.Witness(t.Context(), w.ref.LedgerID, w.ref.Instance); err != nil || n != 0 {
		t.Errorf("the clone has number %d, %v", n, err)
	}
	p.Set(nil)
	if o, err := x.Inspect(t.Context(), h); err != nil || o.State != sandbox.StateRunning {
		t.Errorf("the engine itself: %s, %v", o.State, err)
	}
}

func TestTheWitnessOnlyGrowsAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	ledgerID, instance := w.ref.LedgerID, w.ref.Instance
	want := func(n int64) {
		t.Helper()
		other := newExecutor(t)
		defer func() { must(t, other.Close()) }()
		if got, err := other.Witness(t.Context(), ledgerID, instance); err != nil || got != n {
			t.Errorf("another program finds number %d, want %d: %v", got, n, err)
		}
	}
	want(0)
	replica := newExecutor(t)
	defer func() { must(t, replica.Close()) }()
	for n := int64(1); n <= 12; n += 2 {
		must(t, w.x.LeaveWitness(t.Context(), ledgerID, instance, n))
		want(n)
		must(t, replica.LeaveWitness(t.Context(), ledgerID, instance, n+1))
		want(n + 1)
	}
	must(t, w.x.LeaveWitness(t.Context(), ledgerID, instance, 12)) // it exists
	neighbour := sandbox.RandomIDs(sandbox.LedgerIDLength)
	if n, err := w.x.Witness(t.Context(), neighbour, instance); err != nil || n != 0 {
		t.Errorf("another ledger has number %d, %v", n, err)
	}
	if names := witnesses(t, ledgerID); len(names) > 4 { // two of each replica
		t.Errorf("older numbers are kept: %v", names)
	}
	if left, err := w.x.Dependents(t.Context(), ledgerID); err != nil ||
		slices.ContainsFunc(left, func(l driver.Dependent) bool { return l.Kind == "witness" }) {
		t.Errorf("the witness is a dependent: %+v, %v", left, err)
	}
	must(t, w.x.RemoveWitness(t.Context(), ledgerID, instance, 12))
	want(0)
	if names := witnesses(t, ledgerID); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

// TestTheEngineIsNoCloneOnceAnotherProgramRemovedTheLastEnvironment has two programs on one ledger and one engine.
func TestTheEngineIsNoCloneOnceAnotherProgramRemovedTheLastEnvironment(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t, dockertest.Busybox(t)), newExecutor(t)
	t.Cleanup(func() { must(t, other.Close()) })
	path := filepath.Join(t.TempDir(), "ledger.db")
	running, end := w.engineOn(t, path)
	defer end()
	leaving, end := w.engineWith(t, path, 0, other)
	defer end()
	put := sandbox.PutEnvironment{ID: w.ref.EnvironmentID, Owner: "test", EnvironmentSpec: w.environment()}
	put.Type, put.Resources = sandbox.TypeCustom, sandbox.DefaultResources
	_, err := running.PutEnvironment(t.Context(), put)
	must(t, err)
	must(t, leaving.DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: put.ID, Owner: "test"}))
	if names := witnesses(t, w.ref.LedgerID); len(names) != 0 {
		t.Fatalf("left behind: %v", names)
	}
	must(t, running.Resync(t.Context(), sandbox.Docker))
	_, err = running.PutEnvironment(t.Context(), put)
	must(t, err)
	must(t, running.DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: put.ID, Owner: "test"}))
}

// witnesses names the volumes of a ledger's witness.
func witnesses(t *testing.T, ledgerID string) (names []string) {
	t.Helper()
	found, err := dockertest.Engine(t).VolumeList(t.Context(), dockerapi.VolumeListOptions{Filters: dockerapi.NewFilters(
		dockerapi.Filter("label", "io.sandbox-lease.ledger="+ledgerID),
		dockerapi.Filter("label", "io.sandbox-lease.role=witness"))})
	must(t, err)
	for _, v := range found.Volumes {
		names = append(names, v.Name)
	}
	return names
}

func BenchmarkLeaveWitness(b *testing.B) {
	x := newExecutor(b)
	defer func() { _ = x.Close() }() // the test has its results
	instance, err := x.Instance(b.Context())
	must(b, err)
	ledgerID := sandbox.RandomIDs(sandbox.LedgerIDLength)
	var n int64
	for b.Loop() {
		n++
		must(b, x.LeaveWitness(b.Context(), ledgerID, instance, n))
	}
	must(b, x.RemoveWitness(b.Context(), ledgerID, instance, n))
}
