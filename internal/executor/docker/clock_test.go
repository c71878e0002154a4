package docker_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// aside is the difference of the ledger's clock to the engine's, in both directions.
var aside = map[string]time.Duration{"behind": -time.Hour, "ahead": time.Hour}

// late is how long after its deadline the end of a sandbox is noticed on a busy machine.
const late = 10 * time.Second

// byAnotherClock gives a specification a deadline that is lives away, by a clock that differs by this much.
func byAnotherClock(spec driver.SandboxSpec, by, lives time.Duration) driver.SandboxSpec {
	spec.AsOf = time.Now().Add(by)
	spec.Deadline = spec.AsOf.Add(lives)
	return spec
}

// wantEnd waits until a sandbox has ended itself. The end must be neither early nor much too late.
func (w *world) wantEnd(t *testing.T, h driver.Handle, at time.Time) {
	t.Helper()
	var o driver.Observation
	testwait.Poll(time.Until(at.Add(late)), func() bool {
		var err error
		o, err = w.x.Inspect(t.Context(), h)
		must(t, err)
		return o.State == sandbox.StateStopped
	})
	const exitDeadline = 124
	if o.State != sandbox.StateStopped || o.ExitCode != exitDeadline {
		t.Fatalf("%s after its deadline the sandbox is %s (exit code %d)", time.Since(at), o.State, o.ExitCode)
	}
	if early := at.Sub(o.StoppedAt); early > time.Second {
		t.Errorf("it ended %s before its deadline", early)
	}
}

func TestADeadlineIsKeptWhateverTheLedgersClockShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	for name, by := range aside {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const lives = 15 * time.Second
			spec, end := byAnotherClock(w.spec(), by, lives), time.Now().Add(lives)
			must(t, w.x.Spawn(t.Context(), spec))
			if got := w.exec(t, spec.Handle, "echo", "lives"); got != "lives\n" {
				t.Errorf("it says %q", got)
			}
			o, err := w.x.Inspect(t.Context(), spec.Handle)
			must(t, err)
			if !o.Deadline.Equal(spec.Deadline.Truncate(time.Microsecond)) {
				t.Errorf("its deadline is %s, want the ledger's %s", o.Deadline, spec.Deadline)
			}
			w.wantEnd(t, spec.Handle, end)
		})
	}
}

func TestARestartInPlaceKeepsTheDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	for clock, by := range aside {
		t.Run(clock, func(t *testing.T) {
			t.Parallel()
			const lives = 15 * time.Second
			spec, end := byAnotherClock(w.spec(), by, lives), time.Now().Add(lives)
			must(t, w.x.Spawn(t.Context(), spec))
			for _, stop := range []func() error{
				func() error { return w.x.Sleep(t.Context(), spec.Handle, sandbox.SleepStop) },
				func() error { return dockertest.Engine(t).ContainerKill(t.Context(), name(spec.Handle), "KILL") },
			} {
				must(t, stop())
				wake(t, w.x, spec.Handle)
			}
			w.wantEnd(t, spec.Handle, end)
			if _, err := w.x.Wake(t.Context(), spec.Handle); err == nil {
				w.wantEnd(t, spec.Handle, time.Now()) // nothing runs in it any more
			}
		})
	}
}

func TestASandboxOfAPoolKeepsTheDeadlineOfItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	for name, by := range aside {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waiting := byAnotherClock(w.spec(), by, time.Hour)
			waiting.LeaseID, waiting.AgentDID, waiting.Generation, waiting.Config = "", "", 0, nil
			must(t, w.x.Spawn(t.Context(), waiting))
			const lives = 15 * time.Second
			spec, end := w.spec(), time.Now().Add(lives)
			spec.Handle = waiting.Handle
			spec = byAnotherClock(spec, by, lives)
			must(t, w.x.Assign(t.Context(), spec))
			if got := w.exec(t, spec.Handle, "echo", "lives"); got != "lives\n" {
				t.Errorf("it says %q", got)
			}
			w.wantEnd(t, spec.Handle, end)
		})
	}
}

// TestALeaseLivesWhateverItsLedgersClockShows: a ledger on PostgreSQL uses its server's clock.
func TestALeaseLivesWhateverItsLedgersClockShows(t *testing.T) {
	t.Parallel()
	for name, by := range aside {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, dockertest.Busybox(t))
			e, end := w.engineAside(t, filepath.Join(t.TempDir(), "ledger.db"), by)
			t.Cleanup(end)
			env := w.environment()
			env.Type, env.MaxLifetime = sandbox.TypeCustom, sandbox.Duration(10*time.Minute)
			env.Resources = sandbox.DefaultResources
			_, err := e.PutEnvironment(t.Context(),
				sandbox.PutEnvironment{ID: w.ref.EnvironmentID, Owner: "test", EnvironmentSpec: env})
			must(t, err)
			a, err := e.Acquire(t.Context(),
				sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.ref.EnvironmentID, Owner: "test"})
			must(t, err)
			h := w.spec().Handle
			h.SandboxID = a.Lease.SandboxID
			if got := w.exec(t, h, "echo", "lives"); got != "lives\n" {
				t.Errorf("it says %q", got)
			}
			o, err := w.x.Inspect(t.Context(), h)
			must(t, err)
			if o.State != sandbox.StateRunning || !o.Deadline.Equal(a.Lease.LeasedAt.Add(10*time.Minute)) {
				t.Errorf("it is %s until %s, and leased at %s", o.State, o.Deadline, a.Lease.LeasedAt)
			}
		})
	}
}
