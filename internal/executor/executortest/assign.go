package executortest

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testAssign(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	for name, test := range map[string]func(*testing.T, *world){
		"a pool's sandbox learns whose it is, asleep by pause": func(t *testing.T, w *world) {
			assignAsleep(t, w, sandbox.SleepPause)
		},
		"a pool's sandbox learns whose it is, asleep by stop": func(t *testing.T, w *world) {
			assignAsleep(t, w, sandbox.SleepStop)
		},
		"a pool's sandbox learns whose it is, awake":        assignAwake,
		"assigning an absent sandbox":                       assignUnknown,
		"assigning what is asleep":                          assignSleeping,
		"a sandbox takes one lease":                         assignTwice,
		"a sandbox that was not made for a pool is refused": assignLeased,
		"an earlier deadline holds":                         assignEarlier,
		"a later deadline does not":                         assignLater,
		"no code in it can write its lease":                 attackedLease,
		"no trace of a pool's sandbox is left":              killAssigned,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

// needPool skips a test on a backend without warm pools.
func (w *world) needPool(t *testing.T) {
	t.Helper()
	if !w.x.Capabilities().WarmPool {
		t.Skip("the backend has no warm pools")
	}
}

// spawnPooled creates a sandbox without a lease, and returns its later spec for an agent.
func (w *world) spawnPooled(t *testing.T, change ...func(*driver.SandboxSpec)) driver.SandboxSpec {
	t.Helper()
	spec := w.spec()
	pooled := spec
	pooled.LeaseID, pooled.AgentDID, pooled.Generation, pooled.Config = "", "", 0, nil
	for _, f := range change {
		f(&pooled)
	}
	must(t, w.x.Spawn(t.Context(), pooled))
	return spec
}

func assignAsleep(t *testing.T, w *world, mode sandbox.SleepMode) {
	w.needPool(t)
	if mode == sandbox.SleepPause && !w.x.Capabilities().Pause {
		t.Skip("the backend cannot pause")
	}
	byMode := func(s *driver.SandboxSpec) { s.SleepMode = mode }
	spec := w.spawnPooled(t, byMode)
	byMode(&spec)
	must(t, w.x.Sleep(t.Context(), spec.Handle, mode))
	wake(t, w.x, spec.Handle)
	for range 2 { // the answer may have been lost
		must(t, w.x.Assign(t.Context(), spec))
		w.wantLease(t, spec)
	}
	must(t, w.x.Sleep(t.Context(), spec.Handle, mode))
	wake(t, w.x, spec.Handle)
	w.wantLease(t, spec)
}

// wantLease checks what a sandbox knows about its lease.
func (w *world) wantLease(t *testing.T, spec driver.SandboxSpec) {
	t.Helper()
	w.wantState(t, spec.Handle, sandbox.StateRunning)
	if !w.x.Capabilities().Exec {
		return
	}
	const script = `echo "$AGENT_DID $ENVIRONMENT_ID $ENVIRONMENT_TYPE $FLAVOUR $HOME"; cat config.json`
	want := spec.AgentDID + " " + spec.EnvironmentID + " " + string(spec.EnvironmentType) +
		" of the environment /workspace\n" + string(spec.Config)
	if got := w.sh(t, spec.Handle, script).stdout(); got != want {
		t.Errorf("the sandbox knows %q, want %q", got, want)
	}
}

func assignAwake(t *testing.T, w *world) {
	w.needPool(t)
	spec := w.spawnPooled(t)
	must(t, w.x.Assign(t.Context(), spec))
	w.wantLease(t, spec)
}

func assignSleeping(t *testing.T, w *world) {
	w.needPool(t)
	spec := w.spawnPooled(t)
	must(t, w.x.Sleep(t.Context(), spec.Handle, sandbox.SleepStop))
	wantError(t, w.x.Assign(t.Context(), spec), sandbox.Conflict, sandbox.ReasonInvalidState)
	w.wantState(t, spec.Handle, sandbox.StateStopped)
}

func assignTwice(t *testing.T, w *world) {
	w.needPool(t)
	spec := w.spawnPooled(t)
	must(t, w.x.Assign(t.Context(), spec))
	other := spec
	other.LeaseID, other.AgentDID = "did:plc:other::"+spec.EnvironmentID, "did:plc:other"
	for _, mode := range []sandbox.SleepMode{"", sandbox.SleepStop} {
		if mode != "" {
			must(t, w.x.Sleep(t.Context(), spec.Handle, mode))
			wake(t, w.x, spec.Handle)
		}
		wantError(t, w.x.Assign(t.Context(), other), sandbox.Conflict, sandbox.ReasonInvalidState)
		w.wantLease(t, spec)
	}
	other = spec
	other.Generation++
	wantError(t, w.x.Assign(t.Context(), other), sandbox.Conflict, sandbox.ReasonInvalidState)
}

func assignUnknown(t *testing.T, w *world) {
	spec := w.spec()
	wantError(t, w.x.Assign(t.Context(), spec), sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	spec.Instance = "another-instance"
	wantError(t, w.x.Assign(t.Context(), spec), sandbox.Unavailable, sandbox.ReasonOtherInstance)
}

func assignLeased(t *testing.T, w *world) {
	spec := w.spec()
	must(t, w.x.Spawn(t.Context(), spec))
	wantError(t, w.x.Assign(t.Context(), spec), sandbox.Conflict, sandbox.ReasonInvalidState)
}

func assignEarlier(t *testing.T, w *world) {
	w.needPool(t)
	w.needExec(t)
	spec := w.spawnPooled(t)
	must(t, w.x.Sleep(t.Context(), spec.Handle, sandbox.SleepStop))
	deadlineIn(4 * time.Second)(&spec)
	wake(t, w.x, spec.Handle)
	must(t, w.x.Assign(t.Context(), spec))
	w.wantState(t, spec.Handle, sandbox.StateRunning)
	w.awaitStopped(t, spec.Handle)
	if early := time.Until(spec.Deadline); early > 0 {
		t.Errorf("it ended %s before its deadline", early)
	}
}

func assignLater(t *testing.T, w *world) {
	w.needPool(t)
	w.needExec(t)
	spec := w.spawnPooled(t, deadlineIn(8*time.Second)) // the agent's deadline is in an hour
	must(t, w.x.Assign(t.Context(), spec))
	w.awaitStopped(t, spec.Handle)
}

func attackedLease(t *testing.T, w *world) {
	w.needPool(t)
	w.needExec(t)
	spec := w.spawnPooled(t)
	must(t, w.x.Assign(t.Context(), spec))
	const attack = `
		d=/.sandbox-lease
		for f in $d/lease.json $d/other; do (echo '{}' > $f) 2>/dev/null && echo "wrote $f"; done
		rm -f $d/lease.json 2>/dev/null && echo removed
		mv $d/lease.json $d/l 2>/dev/null && echo moved
		mount -o remount,rw $d 2>/dev/null && echo remounted
		chmod 777 $d 2>/dev/null && echo opened
		true`
	if got := w.sh(t, spec.Handle, attack).stdout(); got != "" {
		t.Errorf("the sandbox could do this to its lease: %s", got)
	}
	w.wantLease(t, spec)
}

func killAssigned(t *testing.T, w *world) { // the world checks what is left
	w.needPool(t)
	waiting, taken := w.spawnPooled(t), w.spawnPooled(t)
	must(t, w.x.Assign(t.Context(), taken))
	for _, spec := range []driver.SandboxSpec{waiting, taken} {
		must(t, w.x.Kill(t.Context(), spec.Handle))
		wantError(t, w.x.Assign(t.Context(), spec), sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	}
}
