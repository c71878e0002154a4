package executortest

import (
	"cmp"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testLifecycle(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	for name, test := range map[string]func(*testing.T, *world){
		"spawning twice finds the first sandbox":          spawnTwice,
		"eight racing spawns make one sandbox":            spawnRacing,
		"a killed sandbox is gone, also for the next":     killTwice,
		"a sandbox that never was counts as killed":       killUnknown,
		"a paused and a stopped sandbox can be killed":    killAsleep,
		"a sandbox removed behind the back can be killed": killRemoved,
		"a sandbox sleeps by pause and wakes": func(t *testing.T, w *world) {
			sleepAndWake(t, w, sandbox.SleepPause)
		},
		"a sandbox sleeps by stop and wakes": func(t *testing.T, w *world) {
			sleepAndWake(t, w, sandbox.SleepStop)
		},
		"a wake tells whether it started the sandbox":       wakeTells,
		"sleep and wake of an absent sandbox":               sleepUnknown,
		"a handle of another instance is unavailable":       otherInstance,
		"an environment in use is not deprovisioned":        deprovisionInUse,
		"provisioning twice and deprovisioning twice":       provisionTwice,
		"an absent image is named as such":                  missingImage,
		"kill takes the files along":                        killRemovesFiles,
		"a renewal starts nothing, and tells how it stands": renewed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

func spawnTwice(t *testing.T, w *world) {
	spec := w.spec()
	must(t, w.x.Spawn(t.Context(), spec))
	first, err := w.x.Inspect(t.Context(), spec.Handle)
	must(t, err)
	must(t, w.x.Spawn(t.Context(), spec))
	second, err := w.x.Inspect(t.Context(), spec.Handle)
	must(t, err)
	if first.State != sandbox.StateRunning || !reflect.DeepEqual(second, first) {
		t.Errorf("after the second spawn: %+v, want %+v", second, first)
	}
}

func spawnRacing(t *testing.T, w *world) {
	spec := w.spec()
	const callers = 8
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if err := w.x.Spawn(t.Context(), spec); err != nil {
				t.Errorf("spawn: %v", err)
			}
		})
	}
	all.Wait()
	list, err := w.x.List(t.Context(), w.ref.LedgerID)
	must(t, err)
	found := 0
	for _, o := range list {
		if o.Handle == spec.Handle {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d callers made %d sandboxes, want 1", callers, found)
	}
	w.wantState(t, spec.Handle, sandbox.StateRunning)
}

func killTwice(t *testing.T, w *world) {
	h := w.spawn(t)
	for range 2 {
		must(t, w.x.Kill(t.Context(), h))
		_, err := w.x.Inspect(t.Context(), h)
		wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	}
}

func killUnknown(t *testing.T, w *world) { must(t, w.x.Kill(t.Context(), w.spec().Handle)) }

func killAsleep(t *testing.T, w *world) {
	for _, mode := range w.sleepModes() {
		h := w.spawn(t)
		must(t, w.x.Sleep(t.Context(), h, mode))
		must(t, w.x.Kill(t.Context(), h))
		_, err := w.x.Inspect(t.Context(), h)
		wantError(t, err, sandbox.NotFound, "")
	}
}

func (w *world) sleepModes() []sandbox.SleepMode {
	if w.x.Capabilities().Pause {
		return []sandbox.SleepMode{sandbox.SleepPause, sandbox.SleepStop}
	}
	return []sandbox.SleepMode{sandbox.SleepStop}
}

func killRemoved(t *testing.T, w *world) {
	if w.RemoveBehindBack == nil {
		t.Skip("only the backend can remove its sandboxes")
	}
	h := w.spawn(t)
	w.RemoveBehindBack(t, h)
	_, err := w.x.Inspect(t.Context(), h)
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	must(t, w.x.Kill(t.Context(), h))
}

func sleepAndWake(t *testing.T, w *world, mode sandbox.SleepMode) {
	asleep := sandbox.StateStopped
	if mode == sandbox.SleepPause {
		if asleep = sandbox.StatePaused; !w.x.Capabilities().Pause {
			t.Skip("the backend cannot pause")
		}
	}
	h := w.spawn(t)
	for range 2 { // the second time it is already asleep, then awake
		must(t, w.x.Sleep(t.Context(), h, mode))
		w.wantState(t, h, asleep)
	}
	for range 2 {
		wake(t, w.x, h)
		w.wantState(t, h, sandbox.StateRunning)
	}
}

// wakeTells: only Wake shows that the CPU time of a sandbox counts from zero.
func wakeTells(t *testing.T, w *world) {
	h := w.spawn(t)
	if w.x.Capabilities().Records {
		t.Skip("the backend's records tell it")
	}
	want := func(want bool) {
		t.Helper()
		started, err := w.x.Wake(t.Context(), h)
		must(t, err)
		if started != want {
			t.Errorf("the wake tells started=%t, want %t", started, want)
		}
	}
	want(false) // it is awake
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	want(true)
	want(false)
	if w.x.Capabilities().Pause {
		must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
		want(false)
		must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
		w.StopBehindBack(t, h)
		w.awaitStopped(t, h)
		want(true)
	}
	w.StopBehindBack(t, h)
	w.awaitStopped(t, h)
	want(true)
}

func renewed(t *testing.T, w *world) {
	h := w.spawn(t)
	limits := driver.Limits{TTL: sandbox.Duration(time.Hour), SleepAfter: sandbox.Duration(time.Hour)}
	for _, want := range []sandbox.State{sandbox.StateRunning, sandbox.StateStopped} {
		o, err := w.x.Touch(t.Context(), h, limits)
		must(t, err)
		if o.SandboxID != h.SandboxID || o.State != want || o.Rest != "" && want == sandbox.StateRunning {
			t.Errorf("renewed it is %+v, want %s", o, want)
		}
		must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	}
	w.wantState(t, h, sandbox.StateStopped)
	if o, err := w.x.Inspect(t.Context(), h); err != nil || w.x.Capabilities().KeepsTime && o.Rest != sandbox.StopRequest {
		t.Errorf("put to sleep it is %+v: %v", o, err)
	}
	_, err := w.x.Touch(t.Context(), w.spec().Handle, limits)
	wantError(t, err, sandbox.NotFound, "")
}

func sleepUnknown(t *testing.T, w *world) {
	h := w.spec().Handle
	wantError(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop), sandbox.NotFound, "")
	wantError(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause), sandbox.NotFound, "")
	_, err := w.x.Wake(t.Context(), h)
	wantError(t, err, sandbox.NotFound, "")
}

func otherInstance(t *testing.T, w *world) {
	spec := w.spec()
	must(t, w.x.Spawn(t.Context(), spec))
	known, unknown := spec, w.spec()
	known.Instance, unknown.Instance = "another-instance", "another-instance"
	ref := w.ref
	ref.Instance = "another-instance"
	check := func(err error) {
		t.Helper()
		wantError(t, err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
	}
	for _, other := range []driver.SandboxSpec{known, unknown} {
		check(w.x.Spawn(t.Context(), other))
		check(w.x.Sleep(t.Context(), other.Handle, sandbox.SleepStop))
		check(w.x.Kill(t.Context(), other.Handle))
		_, err := w.x.Wake(t.Context(), other.Handle)
		check(err)
		_, err = w.x.Inspect(t.Context(), other.Handle)
		check(err)
		_, err = w.x.Touch(t.Context(), other.Handle, driver.Limits{})
		check(err)
		_, err = w.x.Usage(t.Context(), other.Handle)
		check(err)
	}
	check(w.x.Check(t.Context(), ref, w.environment()))
	check(w.x.Provision(t.Context(), ref, w.environment()))
	check(w.x.Deprovision(t.Context(), ref))
	w.wantState(t, spec.Handle, sandbox.StateRunning)
}

func deprovisionInUse(t *testing.T, w *world) {
	w.spawn(t)
	wantError(t, w.x.Deprovision(t.Context(), w.ref), sandbox.Conflict, "")
}

func provisionTwice(t *testing.T, w *world) {
	ref := w.ref
	ref.EnvironmentID = "contract-2.x_-"
	must(t, w.x.Check(t.Context(), ref, w.environment()))
	for range 2 {
		must(t, w.x.Provision(t.Context(), ref, w.environment()))
	}
	for range 2 {
		must(t, w.x.Deprovision(t.Context(), ref))
	}
}

func missingImage(t *testing.T, w *world) {
	w.needExec(t)
	env := w.environment()
	env.Image = cmp.Or(w.MissingImage, "sandbox-test/no-such-image:1")
	if !w.ImageUnseen {
		wantError(t, w.x.Check(t.Context(), w.ref, env), sandbox.NotFound, sandbox.ReasonImageNotFound)
	}
	wantError(t, w.x.Provision(t.Context(), w.ref, env), sandbox.NotFound, sandbox.ReasonImageNotFound)
	spec := w.spec()
	spec.Image = env.Image
	wantError(t, w.x.Spawn(t.Context(), spec), sandbox.NotFound, sandbox.ReasonImageNotFound)
}

func killRemovesFiles(t *testing.T, w *world) {
	w.needExec(t)
	spec := w.spec()
	must(t, w.x.Spawn(t.Context(), spec))
	w.sh(t, spec.Handle, "echo secret > /workspace/mine; echo secret > /data/mine")
	must(t, w.x.Kill(t.Context(), spec.Handle))
	must(t, w.x.Spawn(t.Context(), spec)) // with the same id, so that it would find leftover volumes
	if got := w.sh(t, spec.Handle, "ls -A /workspace /data").stdout(); got != "/data:\n\n/workspace:\nconfig.json\n" {
		t.Errorf("a new sandbox begins with %q", got)
	}
}
