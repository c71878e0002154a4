package docker_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// world is one environment of a new ledger, for tests that only Docker needs.
type world struct {
	x     *docker.Executor
	api   *dockerapi.Client
	ref   driver.EnvironmentRef
	image string
}

// newWorld provisions an environment, and checks at the end of the test that nothing of it is left.
func newWorld(t testing.TB, image string) *world {
	t.Helper()
	return newWorldOf(t, newExecutor(t), image, func(*sandbox.EnvironmentSpec) {})
}

// newWorldOf is newWorld with other settings, on an executor that it closes.
func newWorldOf(t testing.TB, x *docker.Executor, image string, change func(*sandbox.EnvironmentSpec)) *world {
	t.Helper()
	return newWorldAt(t, x, dockertest.Engine(t), image, change)
}

// newWorldAt is newWorldOf on an engine.
func newWorldAt(t testing.TB, x *docker.Executor, api *dockerapi.Client, image string,
	change func(*sandbox.EnvironmentSpec)) *world {
	t.Helper()
	w := &world{x: x, api: api, image: image}
	instance, err := w.x.Instance(t.Context())
	must(t, err)
	w.ref = driver.EnvironmentRef{
		LedgerID:      sandbox.RandomIDs(sandbox.LedgerIDLength),
		EnvironmentID: "docker-1",
		Instance:      instance,
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		list, err := w.x.List(ctx, w.ref.LedgerID)
		if err != nil {
			t.Error(err)
		}
		for _, o := range list {
			if err := w.x.Kill(ctx, o.Handle); err != nil {
				t.Error(err)
			}
		}
		if err := w.x.Deprovision(ctx, w.ref); err != nil {
			t.Error(err)
		}
		if err := w.x.RemoveWitness(ctx, w.ref.LedgerID, w.ref.Instance, math.MaxInt64); err != nil {
			t.Error(err)
		}
		for _, left := range objectsOn(t, w.api, w.ref.LedgerID) {
			t.Errorf("left behind: %s", left)
		}
		if err := w.x.Close(); err != nil {
			t.Error(err)
		}
	})
	spec := w.environment()
	change(&spec)
	must(t, w.x.Provision(t.Context(), w.ref, spec))
	return w
}

func (w *world) environment() sandbox.EnvironmentSpec {
	return sandbox.EnvironmentSpec{
		Image: w.image, Network: sandbox.NetworkNone,
		Resources: sandbox.Resources{MemoryMB: 64, CPUMillis: 1000, PIDs: 64},
	}.WithDefaults()
}

func (w *world) spec() driver.SandboxSpec {
	return driver.SandboxSpec{
		Handle: driver.Handle{
			LedgerID: w.ref.LedgerID, EnvironmentID: w.ref.EnvironmentID, Instance: w.ref.Instance,
			SandboxID: sandbox.RandomIDs(sandbox.SandboxIDLength),
		},
		LeaseID: "did:plc:docker::docker-1", Generation: 1, AgentDID: "did:plc:docker", EnvironmentType: sandbox.TypeCustom,
		Image: w.image, Resources: sandbox.Resources{MemoryMB: 64, CPUMillis: 1000, PIDs: 64}, Network: sandbox.NetworkNone,
		Deadline: time.Now().Add(time.Hour), Config: []byte(`{"seat":"red"}`),
	}
}

func (w *world) spawn(t *testing.T) driver.Handle {
	t.Helper()
	spec := w.spec()
	must(t, w.x.Spawn(t.Context(), spec))
	return spec.Handle
}

// ownUser returns the user and group of a sandbox whose environment sets none, as uid:gid.
func ownUser(h driver.Handle) string {
	i := sandbox.Confinement{}.Identity(h.SandboxID, false)
	return fmt.Sprintf("%d:%d", i.UID, i.GID)
}

// exec runs a command and returns its output.
func (w *world) exec(t testing.TB, h driver.Handle, command ...string) string {
	t.Helper()
	r, err := sandbox.ExecRequest{Command: command}.Normalize()
	must(t, err)
	res, err := w.x.Exec(t.Context(), h, r)
	must(t, err)
	if res.ExitCode != 0 {
		t.Errorf("%v: exit code %d: %s", command, res.ExitCode, res.Stderr)
	}
	return string(res.Stdout)
}

// engineOn opens a lease service on a ledger in a file, under the world's label.
func (w *world) engineOn(t *testing.T, path string) (e *leasing.Service, end func()) {
	t.Helper()
	return w.engineAside(t, path, 0)
}

// engineAside is engineOn with a ledger whose clock is wrong.
func (w *world) engineAside(t *testing.T, path string, by time.Duration) (e *leasing.Service, end func()) {
	t.Helper()
	return w.engineWith(t, path, by, w.x)
}

// engineWith is engineAside on another executor.
func (w *world) engineWith(t *testing.T, path string, by time.Duration, x driver.Executor) (e *leasing.Service,
	end func()) {
	t.Helper()
	store, err := ledger.Open(t.Context(), "sqlite://"+path, ledger.Options{
		IDs: func(int) string { return w.ref.LedgerID }, Now: func() time.Time { return time.Now().Add(by) },
	})
	must(t, err)
	e, err = leasing.New(leasing.Config{
		Store:     store,
		Executors: []driver.Executor{x},
		Keys:      seal.InFile(path+".key", true),
		Logger:    slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(t, err)
	return e, func() { must(t, e.Close()); must(t, store.Close()) }
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wake wakes a sandbox.
func wake(t testing.TB, x driver.Lifecycle, h driver.Handle) {
	t.Helper()
	_, err := x.Wake(t.Context(), h)
	must(t, err)
}

func wantCode(t *testing.T, err error, code sandbox.Code) {
	t.Helper()
	if sandbox.CodeOf(err) != code {
		t.Errorf("error has code %q, want %q: %v", sandbox.CodeOf(err), code, err)
	}
}
