package docker_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestOrphansOnAnEngineAreRemovedOnTheSecondLook makes the lease service resync a real Docker Engine, with a clock that
// the test advances.
func TestOrphansOnAnEngineAreRemovedOnTheSecondLook(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	var ahead atomic.Int64
	store, err := ledger.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "ledger.db"), ledger.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		IDs: func(int) string { return w.ref.LedgerID },
	})
	must(t, err)
	e, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{w.x}})
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()); must(t, store.Close()) })

	// One environment and one lease are alive.
	env := w.environment()
	env.Type, env.Resources = sandbox.TypeCustom, sandbox.DefaultResources
	_, err = e.PutEnvironment(t.Context(),
		sandbox.PutEnvironment{ID: w.ref.EnvironmentID, Owner: "test", EnvironmentSpec: env})
	must(t, err)
	living, err := e.Acquire(t.Context(),
		sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.ref.EnvironmentID, Owner: "test"})
	must(t, err)
	before := objectsOfLedger(t, w.ref.LedgerID)

	// These objects remain of an environment and its sandbox, and of a spawn that a crash interrupted.
	gone := w.ref
	gone.EnvironmentID = "gone-1"
	must(t, w.x.Provision(t.Context(), gone, env))
	spec := w.spec()
	spec.EnvironmentID = gone.EnvironmentID
	must(t, w.x.Spawn(t.Context(), spec))
	made, err := api.ContainerInspect(t.Context(), name(spec.Handle))
	must(t, err)
	must(t, api.ContainerRemove(t.Context(), made.ID, dockerapi.ContainerRemoveOptions{Force: true}))
	labels := made.Config.Labels
	labels["io.sandbox-lease.role"] = "carrier"
	_, err = api.ContainerCreate(t.Context(),
		&dockerapi.ContainerConfig{Image: w.image, Cmd: []string{"true"}, Labels: labels},
		nil, nil, nil, name(spec.Handle)+"-carrier")
	must(t, err)
	// These objects only look like orphans.
	foreign := name(spec.Handle) + "-workspace2"
	_, err = api.VolumeCreate(t.Context(), dockerapi.VolumeCreateOptions{Name: foreign})
	must(t, err)
	t.Cleanup(func() { must(t, api.VolumeRemove(context.WithoutCancel(t.Context()), foreign, true)) })
	all := objectsOfLedger(t, w.ref.LedgerID)
	if n := len(all) - len(before); n != 5 {
		t.Fatalf("%d objects are left over, want populator, workspace, data, guest volume and template image: %q", n, all)
	}

	look := func(want []string) {
		t.Helper()
		must(t, e.Resync(t.Context(), sandbox.Docker))
		if got := objectsOfLedger(t, w.ref.LedgerID); len(got) != len(want) {
			t.Fatalf("the engine has %q, want %q", got, want)
		}
	}
	look(all) // too young
	ahead.Add(int64(3 * time.Minute))
	look(all) // the first look
	look(all) // still within the grace period
	ahead.Add(int64(3 * time.Minute))
	// A guest volume is in use until its last populator is gone. The next look removes it.
	if err := e.Resync(t.Context(), sandbox.Docker); err != nil && sandbox.CodeOf(err) != sandbox.Conflict {
		t.Fatal(err)
	}
	look(before)
	got := objectsOfLedger(t, w.ref.LedgerID)
	slices.Sort(got)
	slices.Sort(before)
	if !slices.Equal(got, before) {
		t.Errorf("the engine has %q, want %q", got, before)
	}
	_, err = api.VolumeInspect(t.Context(), foreign)
	must(t, err)
	found, err := e.ListDrift(t.Context(), sandbox.DriftFilter{})
	must(t, err)
	for _, f := range found {
		if f.Kind != sandbox.DriftLeftover || !strings.Contains(f.Resolution, "destroyed by a resync") {
			t.Errorf("finding %+v", f)
		}
	}
	if len(found) != 6 { // including the sandbox's channel, a directory of the relay
		t.Errorf("%d findings, want 6: %+v", len(found), found)
	}
	if r, err := e.Release(t.Context(), sandbox.LeaseRef{ID: living.Lease.ID}); err != nil ||
		r.Status != sandbox.LeaseDestroyed {
		t.Errorf("releasing the living lease: %s, %v", r.Status, err)
	}
}
