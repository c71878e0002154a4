// Package executortest is the contract of driver.Executor as one suite of tests. Every backend passes it, and skips
// only what its capabilities exclude.
package executortest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config configures the suite for a backend.
type Config struct {
	// New returns an executor, always for the same backend instance. The suite closes it.
	New func(t *testing.T) driver.Executor
	// Timed is New for an executor whose removals of sandboxes are timed. Removing is the time that the backend itself
	// took for them; nil if that cannot be measured.
	Timed    func(t *testing.T) driver.Executor
	Removing func() time.Duration
	// Image has a POSIX shell and the usual commands, if the backend runs commands.
	Image string
	// MissingImage does not exist; empty means the name of a missing Docker image. ImageUnseen means that only Provision
	// detects that.
	MissingImage string
	ImageUnseen  bool
	// Resources are the resources of sandboxes; the zero value means small ones.
	Resources sandbox.Resources
	// Runtime is the container runtime of sandboxes; empty means the engine's own.
	Runtime string
	// StandIn means that the tested backend is a stand-in. Unlike the real one, it does not limit memory and network.
	StandIn bool
	// RemoveBehindBack and StopBehindBack change a sandbox without the executor. RemoveBehindBack is nil if only the
	// backend can remove sandboxes.
	RemoveBehindBack, StopBehindBack func(t *testing.T, h driver.Handle)
	// BreakChannel ends the process that serves a sandbox's channel; nil if there is none.
	BreakChannel func(t *testing.T, h driver.Handle)
	// Without names parts of the suite, or rows as part/row, that cannot run here, with the reason. The rows of the
	// deadline's attacker are its attacks, which may succeed here.
	Without map[string]string
	// FewAttempts limits attacks to the number of attempts without SANDBOX_TEST_LONG.
	FewAttempts bool
	// SharedLimits are resources that a sandbox can exhaust for others, because the kernel counts them for
	// all sandboxes together.
	SharedLimits []string
	// Objects lists everything on the backend that belongs to a ledger; nil skips that check.
	Objects func(t *testing.T, ledgerID string) []string
}

// Run runs the suite.
func Run(t *testing.T, cfg Config) {
	for _, part := range []struct {
		name string
		test func(*testing.T, Config)
	}{
		{"Lifecycle", testLifecycle},
		{"Observer", testObserver},
		{"Cleaner", testCleaner},
		{"Exec", testExec},
		{"Follow", testFollow},
		{"Processes", testProcesses},
		{"Connections", testConnections},
		{"Hardening", testHardening},
		{"Secrets", testSecrets},
		{"Files", testFiles},
		{"Deadline", testDeadline},
		{"Export", testExport},
		{"Network", testNetwork},
		{"Assign", testAssign},
		{"Companions", testCompanions},
		{"Attacks", testAttacks},
	} {
		t.Run(part.name, func(t *testing.T) {
			if reason := cfg.Without[part.name]; reason != "" {
				t.Skip(reason)
			}
			part.test(t, cfg)
		})
	}
}

// skip skips a row of a part that cannot run here.
func (cfg Config) skip(t *testing.T, row string) {
	t.Helper()
	if reason := cfg.Without[row]; reason != "" {
		t.Skip(reason)
	}
}

// patience limits every wait for a backend. It is generous because test machines are busy.
const patience = 30 * time.Second

// world is one environment of a new ledger on the tested backend.
type world struct {
	Config
	x   driver.Executor
	ref driver.EnvironmentRef
}

// newWorld provisions an environment. At the end of the test it checks that nothing of it is left.
func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	x := cfg.New(t)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("close the executor: %v", err)
		}
	})
	instance, err := x.Instance(t.Context())
	must(t, err)
	w := &world{Config: cfg, x: x, ref: driver.EnvironmentRef{
		LedgerID: sandbox.RandomIDs(sandbox.LedgerIDLength), EnvironmentID: "contract-1", Instance: instance,
	}}
	t.Cleanup(func() { w.cleanUp(t) })
	must(t, x.Provision(t.Context(), w.ref, w.environment()))
	return w
}

// needExec skips a test on a backend that cannot run commands.
func (w *world) needExec(t *testing.T) {
	t.Helper()
	if !w.x.Capabilities().Exec {
		t.Skip("the backend runs no commands")
	}
}

func (w *world) environment() sandbox.EnvironmentSpec {
	return sandbox.EnvironmentSpec{
		Image:       w.Image,
		Network:     sandbox.NetworkNone,
		Resources:   w.resources(),
		Confinement: sandbox.Confinement{Runtime: w.Runtime},
	}.WithDefaults()
}

func (w *world) resources() sandbox.Resources {
	if w.Resources != (sandbox.Resources{}) {
		return w.Resources
	}
	return sandbox.Resources{MemoryMB: 64, CPUMillis: 1000, PIDs: 64}
}

// needBackend skips a test of limits on a stand-in, which lacks them.
func (w *world) needBackend(t *testing.T) {
	t.Helper()
	if w.StandIn {
		t.Skip("what runs here stands in for the backend, and has other limits")
	}
}

func (w *world) cleanUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 4*patience)
	defer cancel()
	list, err := w.x.List(ctx, w.ref.LedgerID)
	if err != nil {
		t.Errorf("list what the test made: %v", err)
	}
	for _, o := range list {
		if err := w.x.Kill(ctx, o.Handle); err != nil {
			t.Errorf("kill what the test made: %v", err)
		}
	}
	if err := w.x.Deprovision(ctx, w.ref); err != nil {
		t.Errorf("deprovision: %v", err)
	}
	if w.Objects != nil {
		for _, left := range w.Objects(t, w.ref.LedgerID) {
			t.Errorf("left behind: %s", left)
		}
	}
}

// spec describes a new sandbox.
func (w *world) spec() driver.SandboxSpec {
	const agent = "did:plc:contract"
	return driver.SandboxSpec{
		Handle: driver.Handle{
			LedgerID: w.ref.LedgerID, EnvironmentID: w.ref.EnvironmentID, Instance: w.ref.Instance,
			SandboxID: sandbox.RandomIDs(sandbox.SandboxIDLength),
		},
		LeaseID:         sandbox.LeaseID(agent, w.ref.EnvironmentID),
		Generation:      1,
		AgentDID:        agent,
		EnvironmentType: sandbox.TypeCustom,
		Image:           w.Image,
		Resources:       w.resources(),
		Network:         sandbox.NetworkNone,
		Confinement:     sandbox.Confinement{Runtime: w.Runtime},
		SleepMode:       sandbox.SleepPause,
		Env:             map[string]string{"FLAVOUR": "of the environment"},
		Deadline:        time.Now().Add(time.Hour),
		Config:          []byte(`{"seat":"red"}`),
		Version:         "0.1.0",
	}
}

// spawn creates a sandbox from a spec, which the given functions change.
func (w *world) spawn(t *testing.T, change ...func(*driver.SandboxSpec)) driver.Handle {
	t.Helper()
	spec := w.spec()
	for _, f := range change {
		f(&spec)
	}
	must(t, w.x.Spawn(t.Context(), spec))
	return spec.Handle
}

func (w *world) state(t *testing.T, h driver.Handle) sandbox.State {
	t.Helper()
	o, err := w.x.Inspect(t.Context(), h)
	must(t, err)
	return o.State
}

// wantState waits for a moment: Engine 20.10 reports a container as paused for a while after its thaw.
func (w *world) wantState(t *testing.T, h driver.Handle, want sandbox.State) {
	t.Helper()
	testwait.NoError(t, 2*time.Second, "the sandbox is "+string(want), func() error {
		if got := w.state(t, h); got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// awaitStopped waits until a sandbox has ended on its own.
func (w *world) awaitStopped(t *testing.T, h driver.Handle) {
	t.Helper()
	eventually(t, "the sandbox has stopped", func() bool { return w.state(t, h) == sandbox.StateStopped })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testwait.Until(t, patience, what, ok)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wake wakes a sandbox.
func wake(t *testing.T, x driver.Lifecycle, h driver.Handle) {
	t.Helper()
	_, err := x.Wake(t.Context(), h)
	must(t, err)
}

// wantError checks the code and, unless empty, the reason.
func wantError(t *testing.T, err error, code sandbox.Code, reason sandbox.Reason) {
	t.Helper()
	if sandbox.CodeOf(err) != code || (reason != "" && sandbox.ReasonOf(err) != reason) {
		t.Errorf("error has code %q and reason %q, want %q and %q: %v",
			sandbox.CodeOf(err), sandbox.ReasonOf(err), code, reason, err)
	}
}

// Compile compiles a Go program to a static Linux binary. source is its main package.
func Compile(t testing.TB, source string, env ...string) []byte {
	t.Helper()
	return compile(t, map[string]string{"main.go": source}, env...)
}
