package executortest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testObserver(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	for name, test := range map[string]func(*testing.T, *world){
		"inspect reports what was asked for":          inspectReports,
		"inspect sees a stop behind the back":         inspectSeesStop,
		"looking wakes nothing":                       lookingWakesNothing,
		"list knows this ledger only":                 listThisLedger,
		"list knows one environment only":             listThisEnvironment,
		"usage of running, paused and stopped":        usage,
		"usage counts the CPU time that was used":     usageCPU,
		"when it ran is known":                        boots,
		"watch sees a kill and a removal":             watchSees,
		"watch ends with its context":                 watchEnds,
		"what is absent is not found":                 absentNotFound,
		"a command out of memory is reported as such": outOfMemory,
	} {
		t.Run(name, func(t *testing.T) {
			cfg.skip(t, "Observer/"+name)
			t.Parallel()
			test(t, w)
		})
	}
}

func inspectReports(t *testing.T, w *world) {
	spec := w.spec()
	before := time.Now().Add(-time.Minute) // the backend's clock may differ slightly
	must(t, w.x.Spawn(t.Context(), spec))
	got, err := w.x.Inspect(t.Context(), spec.Handle)
	must(t, err)
	want := driver.Observation{
		Handle:     spec.Handle,
		State:      sandbox.StateRunning,
		Image:      spec.Image,
		Resources:  spec.Resources,
		LeaseID:    spec.LeaseID,
		AgentDID:   spec.AgentDID,
		Generation: spec.Generation,
		Deadline:   spec.Deadline.Truncate(time.Microsecond).UTC(),
		CreatedAt:  got.CreatedAt,
		StartedAt:  got.StartedAt,
		Boot:       got.Boot,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("observation is\n%+v, want\n%+v", got, want)
	}
	if got.CreatedAt.Before(before) || got.StartedAt.Before(got.CreatedAt) {
		t.Errorf("made at %s and started at %s, want that order and after %s", got.CreatedAt, got.StartedAt, before)
	}
}

func inspectSeesStop(t *testing.T, w *world) {
	h := w.spawn(t)
	w.StopBehindBack(t, h)
	w.awaitStopped(t, h)
	list, err := w.x.List(t.Context(), w.ref.LedgerID)
	must(t, err)
	i := slices.IndexFunc(list, func(o driver.Observation) bool { return o.Handle == h })
	if i < 0 || list[i].State != sandbox.StateStopped {
		t.Errorf("the list does not show %s as stopped: %+v", h.SandboxID, list)
	}
	wake(t, w.x, h)
	w.wantState(t, h, sandbox.StateRunning)
}

func lookingWakesNothing(t *testing.T, w *world) {
	for _, mode := range w.sleepModes() {
		h := w.spawn(t)
		must(t, w.x.Sleep(t.Context(), h, mode))
		asleep := w.state(t, h)
		_, err := w.x.List(t.Context(), w.ref.LedgerID)
		must(t, err)
		if _, err := w.x.Usage(t.Context(), h); err != nil {
			wantError(t, err, sandbox.Conflict, "")
		}
		w.wantState(t, h, asleep)
	}
}

func listThisLedger(t *testing.T, w *world) {
	mine := w.spawn(t)
	other := newWorld(t, w.Config)
	theirs := other.spawn(t)
	list, err := w.x.List(t.Context(), w.ref.LedgerID)
	must(t, err)
	has := func(h driver.Handle) bool {
		return slices.ContainsFunc(list, func(o driver.Observation) bool { return o.Handle == h })
	}
	if !has(mine) || has(theirs) {
		t.Errorf("list of ledger %s has its own: %t, another's: %t", w.ref.LedgerID, has(mine), has(theirs))
	}
	list, err = w.x.List(t.Context(), "ledgerofnobody22")
	if err != nil || len(list) != 0 {
		t.Errorf("list of an unknown ledger: %v, %v", list, err)
	}
}

func listThisEnvironment(t *testing.T, w *world) {
	other := *w
	other.ref.EnvironmentID = "contract-2"
	must(t, w.x.Provision(t.Context(), other.ref, w.environment()))
	mine, theirs := w.spawn(t), other.spawn(t)
	list, err := w.x.ListEnvironment(t.Context(), w.ref)
	must(t, err)
	if i := slices.IndexFunc(list, func(o driver.Observation) bool { return o.Handle == mine }); i < 0 ||
		list[i].State != sandbox.StateRunning {
		t.Errorf("the list of an environment does not show its sandbox %s as running: %+v", mine.SandboxID, list)
	}
	if slices.ContainsFunc(list, func(o driver.Observation) bool { return o.Handle == theirs }) {
		t.Error("the list of an environment has a sandbox of another one")
	}
	must(t, w.x.Kill(t.Context(), theirs))
	must(t, w.x.Deprovision(t.Context(), other.ref))
	none, err := w.x.ListEnvironment(t.Context(), other.ref)
	if err != nil || len(none) != 0 {
		t.Errorf("the list of an environment that is gone: %+v, %v", none, err)
	}
}

func usage(t *testing.T, w *world) {
	h := w.spawn(t)
	u, err := w.x.Usage(t.Context(), h)
	must(t, err)
	if w.x.Capabilities().Exec && (u.MemoryBytes <= 0 || u.PIDs < 1) {
		t.Errorf("usage of a running sandbox is %+v", u)
	}
	if w.x.Capabilities().Pause {
		must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
		paused, err := w.x.Usage(t.Context(), h)
		must(t, err)
		if paused.CPUTime < u.CPUTime {
			t.Errorf("CPU time went back from %s to %s", u.CPUTime, paused.CPUTime)
		}
	}
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	if w.state(t, h) == sandbox.StateStopped {
		_, err = w.x.Usage(t.Context(), h)
		wantError(t, err, sandbox.Conflict, "")
	}
}

func usageCPU(t *testing.T, w *world) {
	w.needExec(t)
	if !w.x.Capabilities().CPUTime {
		t.Skip("the backend reports no CPU time")
	}
	h := w.spawn(t)
	before, err := w.x.Usage(t.Context(), h)
	must(t, err)
	res := w.sh(t, h, "timeout 0.5 sh -c 'while :; do :; done'; true")
	after, err := w.x.Usage(t.Context(), h)
	must(t, err)
	if told := res.CPUTime; w.x.Capabilities().Channel &&
		(told < before.CPUTime+50*time.Millisecond || told > after.CPUTime) {
		t.Errorf("the command tells %s, between readings of %s and %s", told, before.CPUTime, after.CPUTime)
	}
	if used := after.CPUTime - before.CPUTime; used < 50*time.Millisecond {
		t.Errorf("half a second of work counts as %s", used)
	}
}

// boots: a backend that records boots reports each start and stop once, even for a killed sandbox. Other backends
// report only the latest boot.
func boots(t *testing.T, w *world) {
	records := w.x.Capabilities().Records
	ask := func(h driver.Handle) []driver.Boot {
		t.Helper()
		ran, err := w.x.Boots(t.Context(), h)
		must(t, err)
		o, err := w.x.Inspect(t.Context(), h)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return ran
		}
		must(t, err)
		if last := ran[len(ran)-1]; !last.StartedAt.Equal(o.StartedAt) || last.Number != o.Boot {
			t.Errorf("it ran last as %+v, and is observed as %+v", last, o)
		}
		return ran
	}
	h := w.spawn(t)
	first := ask(h)
	if len(first) != 1 || first[0].StartedAt.IsZero() || !first[0].StoppedAt.IsZero() ||
		(first[0].Number == 1) != records {
		t.Fatalf("awake it ran as %+v", first)
	}
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	slept := ask(h)
	if len(slept) != 1 || !slept[0].StartedAt.Equal(first[0].StartedAt) || slept[0].StoppedAt.Before(first[0].StartedAt) {
		t.Fatalf("asleep it ran as %+v, before as %+v", slept, first)
	}
	wake(t, w.x, h)
	woken := ask(h)
	if last := woken[len(woken)-1]; last.StartedAt.Before(slept[0].StoppedAt) || !last.StoppedAt.IsZero() ||
		records && (len(woken) != 2 || last.Number != 2) {
		t.Fatalf("woken it ran as %+v, before as %+v", woken, slept)
	}
	must(t, w.x.Kill(t.Context(), h))
	if !records {
		w.wantRemembered(t, h, woken[0])
		return
	}
	killed := ask(h)
	if len(killed) != 2 || killed[0] != woken[0] || killed[1].StoppedAt.Before(killed[1].StartedAt) ||
		killed[1].StoppedAt.IsZero() {
		t.Errorf("killed it ran as %+v, before as %+v", killed, woken)
	}
}

// wantRemembered checks what the backend reports about a removed sandbox: nothing, or when it ended.
func (w *world) wantRemembered(t *testing.T, h driver.Handle, before driver.Boot) {
	t.Helper()
	ran, err := w.x.Boots(t.Context(), h)
	if err != nil {
		wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
		return
	}
	if len(ran) != 1 {
		t.Fatalf("removed it ran as %+v", ran)
	}
	i := ran[0]
	// An event may be slightly late.
	started := i.StartedAt.IsZero() || i.StartedAt.Sub(before.StartedAt).Abs() < time.Second
	if !started || i.StoppedAt.Before(before.StartedAt) || i.RemovedAt.Before(i.StoppedAt) ||
		i.RemovedAt.After(time.Now().Add(time.Second)) {
		t.Errorf("removed it ran as %+v, before as %+v", i, before)
	}
}

// watching collects the reports of a Watch.
type watching struct {
	mu   sync.Mutex
	seen []string
	done chan error
	stop context.CancelFunc
}

func (w *world) watch(t *testing.T) *watching {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	v, ready := &watching{done: make(chan error, 1), stop: stop}, make(chan struct{})
	go func() {
		v.done <- w.x.Watch(ctx, w.ref.LedgerID, func() { close(ready) }, func(id string) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.seen = append(v.seen, id)
		})
	}()
	t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-v.done:
		t.Fatalf("watch ended at once: %v", err)
	case <-time.After(patience):
		t.Fatal("watch did not get ready")
	}
	return v
}

// count returns how often a sandbox was reported.
func (v *watching) count(id string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, s := range v.seen {
		if s == id {
			n++
		}
	}
	return n
}

func watchSees(t *testing.T, w *world) {
	killed, removed := w.spawn(t), w.spawn(t)
	v := w.watch(t)
	before := v.count(removed.SandboxID)
	must(t, w.x.Kill(t.Context(), killed))
	eventually(t, "the watch reports the kill", func() bool { return v.count(killed.SandboxID) > 0 })
	if w.RemoveBehindBack == nil {
		return
	}
	w.RemoveBehindBack(t, removed)
	eventually(t, "the watch reports the removal", func() bool { return v.count(removed.SandboxID) > before })
	must(t, w.x.Kill(t.Context(), removed))
}

func watchEnds(t *testing.T, w *world) {
	v := w.watch(t)
	v.stop()
	select {
	case err := <-v.done:
		if err == nil || !errors.Is(err, context.Canceled) {
			t.Errorf("watch returned %v, want the context's error", err)
		}
	case <-time.After(patience):
		t.Error("watch goes on after its context has ended")
	}
}

func absentNotFound(t *testing.T, w *world) {
	h := w.spec().Handle
	_, err := w.x.Inspect(t.Context(), h)
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	_, err = w.x.Usage(t.Context(), h)
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}

func outOfMemory(t *testing.T, w *world) {
	w.needExec(t)
	w.needBackend(t)
	h := w.spawn(t)
	res := w.sh(t, h, "dd if=/dev/zero of=/dev/null bs=512M count=1")
	if !res.OOMKilled || res.ExitCode == 0 {
		t.Errorf("a command that wants more than the limit ended with %+v", res.ExecResult)
	}
	if got := w.sh(t, h, "echo still here").stdout(); got != "still here\n" {
		t.Errorf("after the command the sandbox says %q", got)
	}
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	o, err := w.x.Inspect(t.Context(), h)
	must(t, err)
	if o.OOMKilled {
		t.Error("a sandbox that was put to sleep counts as ended for want of memory")
	}
}
