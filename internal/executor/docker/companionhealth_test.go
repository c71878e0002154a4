package docker_test

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// checkPause is the pause between two checks of a ready companion in these tests.
const checkPause = 300 * time.Millisecond

// withMode makes the health of the companion depend on its /data/mode: ok, bad, or flood, which never ends. Until its
// program has written that file, it is unhealthy. It counts its checks in /data/checks.
func withMode(c *sandbox.Companion) {
	c.Command = []string{"sh", "-c", "echo started; echo ok >/data/mode; exec sleep 7014"}
	c.HealthCheck = sandbox.CompanionHealthCheck{Interval: sandbox.Duration(100 * time.Millisecond),
		Timeout: sandbox.Duration(checkPause), Command: []string{"sh", "-c", "echo >>/data/checks; " +
			"case $(cat /data/mode) in ok) ;; bad) echo no schema; exit 4;; flood) exec yes;; *) exit 5;; esac"}}
}

// inCompanion runs a shell line in a lease's companion.
func (w *companionWorld) inCompanion(l sandbox.Lease, line string) string {
	w.Helper()
	h := driver.Handle{LedgerID: w.ref.LedgerID, EnvironmentID: w.ref.EnvironmentID, Instance: w.ref.Instance,
		SandboxID: l.SandboxID}
	return w.world.exec(w.T, h.Of("db"), "sh", "-c", line)
}

func (w *companionWorld) checks(l sandbox.Lease) int {
	w.Helper()
	return strings.Count(w.inCompanion(l, "cat /data/checks"), "\n")
}

// awaitHealth makes all engines check companions until that of a lease has a state.
func (w *companionWorld) awaitHealth(l sandbox.Lease, want sandbox.CompanionState, engines ...*leasing.Service) {
	w.Helper()
	eventually(w.T, "the companion is "+string(want), func() bool {
		for _, e := range engines {
			began := time.Now()
			_, err := e.CheckCompanions(w.Context(), sandbox.Docker, checkPause)
			must(w.T, err)
			if took := time.Since(began); took > 5*time.Second { // on a busy machine; a pass waits for no check
				w.Errorf("a pass took %s", took)
			}
		}
		return w.of(l).State == want
	})
}

// companionEvents returns the types of the events about companions, and the data of the latest one.
func (w *companionWorld) companionEvents(l sandbox.Lease) (types []sandbox.EventType, last sandbox.CompanionFailure) {
	w.Helper()
	events, err := w.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: l.SandboxID})
	must(w.T, err)
	for _, e := range events {
		if strings.HasPrefix(string(e.Type), "companion.") {
			types, last = append(types, e.Type), sandbox.CompanionFailure{}
			must(w.T, json.Unmarshal(e.Data, &last))
		}
	}
	return types, last
}

func TestACompanionThatBecomesUnhealthyIsAnEventAndAState(t *testing.T) {
	t.Parallel()
	world := newWorld(t, dockertest.Busybox(t))
	path := filepath.Join(t.TempDir(), "ledger.db")
	e, end := world.engineOn(t, path)
	defer end()
	other, endOther := world.engineOn(t, path)
	defer endOther()
	w := &companionWorld{t, world, e}
	w.put(func(c *sandbox.Companion, _ *sandbox.EnvironmentSpec) { withMode(c) })
	l := w.leased()
	both := []*leasing.Service{e, other}

	w.inCompanion(l, "echo bad >/data/mode")
	w.awaitHealth(l, sandbox.CompanionUnhealthy, both...)
	_, f := w.companionEvents(l)
	if want := `3 health checks in a row failed (the last check ended with exit code 4 and wrote "no schema")`; f.Name != "db" ||
		f.Reason != want || f.Output != "started" || f.Restarts || w.of(l).Message != want {
		t.Errorf("companion.unhealthy has %+v, the companion is %+v", f, w.of(l))
	}
	w.inCompanion(l, "echo ok >/data/mode")
	w.awaitHealth(l, sandbox.CompanionReady, both...)
	w.inCompanion(l, "echo flood >/data/mode")
	w.awaitHealth(l, sandbox.CompanionUnhealthy, both...)
	types, f := w.companionEvents(l)
	if !strings.Contains(f.Reason, "did not end within 300ms") || f.Output != "started" {
		t.Errorf("companion.unhealthy has %+v", f)
	}
	if want := []sandbox.EventType{sandbox.EventCompanionReady, sandbox.EventCompanionUnhealthy,
		sandbox.EventCompanionReady, sandbox.EventCompanionUnhealthy}; !slices.Equal(types, want) {
		t.Errorf("events %q, want %q", types, want)
	}
	w.release(l)
}

// lateStarts delays the start of companions' programs, as a busy machine does.
type lateStarts struct{ *docker.Executor }

func (x lateStarts) RunProcess(ctx context.Context, h driver.Handle, p driver.ProcessRun) (sandbox.ExecResult, error) {
	select {
	case <-time.After(time.Second):
		return x.Executor.RunProcess(ctx, h, p)
	case <-ctx.Done():
		return sandbox.ExecResult{}, ctx.Err()
	}
}

func TestACheckThatPassesWithoutTheProgramDoesNotGiveUpItsStart(t *testing.T) {
	t.Parallel()
	world := newWorld(t, dockertest.Busybox(t))
	e, end := world.engineWith(t, filepath.Join(t.TempDir(), "ledger.db"), 0, lateStarts{world.x})
	defer end()
	w := &companionWorld{t, world, e}
	w.put(func(c *sandbox.Companion, _ *sandbox.EnvironmentSpec) {
		withMode(c)
		c.HealthCheck.Command = []string{"true"}
	})
	l := w.leased()
	eventually(t, "the program of the companion has begun", func() bool {
		return w.inCompanion(l, "cat /data/mode || true") == "ok\n"
	})
	w.release(l)
}

func TestOneReconcilerChecksACompanionAndOnlyWhileItsSandboxIsAwake(t *testing.T) {
	t.Parallel()
	world := newWorld(t, dockertest.Busybox(t))
	path := filepath.Join(t.TempDir(), "ledger.db")
	e, end := world.engineOn(t, path)
	defer end()
	other, endOther := world.engineOn(t, path)
	defer endOther()
	w := &companionWorld{t, world, e}
	w.put(func(c *sandbox.Companion, env *sandbox.EnvironmentSpec) {
		withMode(c)
		env.SleepMode = sandbox.SleepPause
	})
	l := w.leased()
	active := func() time.Time {
		is, err := w.GetLease(t.Context(), l.ID)
		must(t, err)
		return is.LastActivity
	}
	passes := func(lasts time.Duration) {
		var passing sync.WaitGroup
		for _, e := range []*leasing.Service{e, other} {
			passing.Go(func() {
				for until := time.Now().Add(lasts); time.Now().Before(until); {
					if _, err := e.CheckCompanions(t.Context(), sandbox.Docker, checkPause); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond) //nolint:forbidigo // the pace of the loop
				}
			})
		}
		passing.Wait()
	}
	before, used, began := w.checks(l), active(), time.Now()
	passes(5 * checkPause)
	if made, most := w.checks(l)-before, int(time.Since(began)/checkPause)+1; made < 1 || made > most {
		t.Errorf("two engines made %d checks, want 1 to %d", made, most)
	}
	if got := active(); !got.Equal(used) {
		t.Errorf("checks are activity: at %s, not %s", got, used)
	}
	_, err := w.Sleep(t.Context(), sandbox.LeaseRef{ID: l.ID})
	must(t, err)
	passes(2 * checkPause)
	if l, err := w.GetLease(t.Context(), l.ID); err != nil || l.SandboxState != sandbox.SandboxAsleep {
		t.Errorf("the sandbox is %s (%v)", l.SandboxState, err)
	}
	if c := w.of(l); c.State != sandbox.CompanionReady {
		t.Errorf("the companion is %+v", c)
	}
	w.release(l)
}

func TestAnUnhealthyCompanionIsStartedAgainWhereItsDeclarationSaysSo(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(c *sandbox.Companion, _ *sandbox.EnvironmentSpec) {
		withMode(c)
		c.Restart = sandbox.CompanionOnFailure
	})
	l := w.leased()
	w.inCompanion(l, "echo bad >/data/mode")
	w.awaitHealth(l, sandbox.CompanionUnhealthy, w.Service)
	if _, f := w.companionEvents(l); !f.Restarts {
		t.Errorf("companion.unhealthy has %+v", f)
	}
	eventually(t, "the companion is ready again", func() bool {
		must(t, w.Work(t.Context(), l.SandboxID))
		must(t, w.Look(t.Context(), l.SandboxID))
		return w.of(l).State == sandbox.CompanionReady
	})
	if c := w.of(l); c.Restarts != 1 || c.Message != "" {
		t.Errorf("the companion is %+v", c)
	}
	want := []sandbox.EventType{sandbox.EventCompanionReady, sandbox.EventCompanionUnhealthy, sandbox.EventCompanionReady}
	if types, _ := w.companionEvents(l); !slices.Equal(types, want) {
		t.Errorf("events %q, want %q", types, want)
	}
	w.release(l)
}

func TestLogsOfCompanionsCanBeRead(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(c *sandbox.Companion, _ *sandbox.EnvironmentSpec) {
		c.Command = []string{"sh", "-c", "echo to stdout; echo to stderr >&2; touch /data/up; " +
			"until test -e /data/end; do sleep 0.1; done; echo last words; exit 9"}
		c.HealthCheck = sandbox.CompanionHealthCheck{Command: []string{"test", "-e", "/data/up"}}
	})
	l := w.leased()
	open := func(r sandbox.CompanionLogRequest) sandbox.ProcessLog {
		t.Helper()
		r.LeaseRef, r.Name = sandbox.LeaseRef{ID: l.ID}, "db"
		log, err := w.ReadCompanion(t.Context(), r)
		must(t, err)
		return log
	}
	wantLog := func(log sandbox.ProcessLog, offset int64, want string) {
		t.Helper()
		text, err := io.ReadAll(log)
		must(t, err)
		if must(t, log.Close()); log.Offset != offset || string(text) != want {
			t.Errorf("the log from byte %d is %q, want from %d %q", log.Offset, text, offset, want)
		}
	}
	wantLog(open(sandbox.CompanionLogRequest{}), 0, "to stdout\nto stderr\n")
	wantLog(open(sandbox.CompanionLogRequest{Offset: 10}), 10, "to stderr\n")
	following := open(sandbox.CompanionLogRequest{Follow: true})
	w.endCompanion(l)
	wantLog(following, 0, "to stdout\nto stderr\nlast words\n")
	w.awaitFailure(l, sandbox.CompanionFailed)
	wantLog(open(sandbox.CompanionLogRequest{Follow: true}), 0, "to stdout\nto stderr\nlast words\n")
	for _, r := range []sandbox.CompanionLogRequest{{Name: "cache"}, {Name: ""}} {
		r.ID = l.ID
		if _, err := w.ReadCompanion(t.Context(), r); sandbox.ReasonOf(err) != sandbox.ReasonCompanionNotFound {
			t.Errorf("the log of companion %q: %v", r.Name, err)
		}
	}
	_, err := w.ReadCompanion(t.Context(), sandbox.CompanionLogRequest{LeaseRef: sandbox.LeaseRef{ID: l.ID}, Name: "db",
		Offset: -1})
	wantCode(t, err, sandbox.Invalid)
	w.release(l)
}
