package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// companionWorld is a lease service with an environment whose sandboxes have a companion.
type companionWorld struct {
	*testing.T
	*world
	*leasing.Service
}

func newCompanionWorld(t *testing.T, change func(c *sandbox.Companion, env *sandbox.EnvironmentSpec)) *companionWorld {
	t.Helper()
	w := newWorld(t, dockertest.Busybox(t))
	e, end := w.engineOn(t, filepath.Join(t.TempDir(), "ledger.db"))
	t.Cleanup(end)
	c := &companionWorld{t, w, e}
	c.put(change)
	return c
}

// put sets the environment: its companion db serves HTTP on port 8800.
func (w *companionWorld) put(change func(c *sandbox.Companion, env *sandbox.EnvironmentSpec)) {
	w.Helper()
	putCompanions(w.T, w.Service, w.world, change)
}

func putCompanions(t *testing.T, e *leasing.Service, w *world,
	change func(c *sandbox.Companion, env *sandbox.EnvironmentSpec)) {
	t.Helper()
	env := w.environment()
	env.Resources = sandbox.Resources{MemoryMB: 512, CPUMillis: 500, PIDs: 64, DiskMB: 1024}
	c := sandbox.Companion{
		Image: w.image,
		Command: []string{"sh", "-c",
			"echo serving; cat /run/secrets/token >index.html; exec httpd -f -p 127.0.0.1:8800"},
		Secrets:     []string{"token"},
		Resources:   sandbox.Resources{MemoryMB: 64, CPUMillis: 500, PIDs: 64, DiskMB: 1024},
		HealthCheck: sandbox.CompanionHealthCheck{Port: 8800, Path: "/index.html"},
	}
	env.Secrets = []string{"token"}
	change(&c, &env)
	env.Companions = sandbox.Companions{"db": c}
	_, err := e.PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: w.ref.EnvironmentID, Owner: "test",
		EnvironmentSpec: env.WithDefaults(), SecretValues: map[string]sandbox.Secret{"token": companionToken}})
	must(t, err)
}

const companionToken = "hunter2-of-the-companion"

func (w *companionWorld) acquire(agent string) (sandbox.Acquired, error) {
	return w.Acquire(w.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: w.ref.EnvironmentID, Owner: "test"})
}

func (w *companionWorld) leased() sandbox.Lease {
	w.Helper()
	a, err := w.acquire("did:plc:ann")
	must(w.T, err)
	return a.Lease
}

func (w *companionWorld) of(l sandbox.Lease) sandbox.CompanionStatus {
	w.Helper()
	l, err := w.GetLease(w.Context(), l.ID)
	must(w.T, err)
	if len(l.Companions) != 1 || l.Status != sandbox.LeaseActive {
		w.Fatalf("the lease is %s, with companions %+v", l.Status, l.Companions)
	}
	return l.Companions[0]
}

// container returns the name of the container of a lease's companion.
func (w *companionWorld) container(l sandbox.Lease) string {
	return name(driver.Handle{LedgerID: w.ref.LedgerID, SandboxID: l.SandboxID}) + ".db"
}

// awaitFailure inspects the sandbox until its companion has a state. It returns the data of the latest failure.
func (w *companionWorld) awaitFailure(l sandbox.Lease, want sandbox.CompanionState) (f sandbox.CompanionFailure) {
	w.Helper()
	eventually(w.T, "the companion is "+string(want), func() bool {
		must(w.T, w.Look(w.Context(), l.SandboxID))
		return w.of(l).State == want
	})
	return w.failure(l.SandboxID)
}

func (w *companionWorld) failure(sandboxID string) (f sandbox.CompanionFailure) {
	w.Helper()
	events, err := w.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: sandboxID, Type: "companion.failed"})
	must(w.T, err)
	if len(events) == 0 {
		w.Fatal("there is no companion.failed")
	}
	must(w.T, json.Unmarshal(events[len(events)-1].Data, &f))
	return f
}

// wantNothingOf fails if the engine has any object of a sandbox.
func (w *companionWorld) wantNothingOf(sandboxID string) {
	w.Helper()
	for _, left := range objectsOfLedger(w.T, w.ref.LedgerID) {
		if strings.Contains(left, sandboxID) {
			w.Errorf("left behind: %s", left)
		}
	}
}

func (w *companionWorld) release(l sandbox.Lease) {
	w.Helper()
	r, err := w.Release(w.Context(), sandbox.LeaseRef{ID: l.ID})
	if must(w.T, err); r.Status != sandbox.LeaseDestroyed {
		w.Errorf("the lease is %s", r.Status)
	}
	w.wantNothingOf(l.SandboxID)
}

func (w *companionWorld) wantAnswer(l sandbox.Lease) {
	w.Helper()
	res, err := w.Exec(w.Context(), sandbox.LeaseRef{ID: l.ID},
		sandbox.ExecRequest{Command: []string{"wget", "-q", "-O", "-", "http://127.0.0.1:8800/"}})
	must(w.T, err)
	if got := string(res.Stdout); got != companionToken {
		w.Errorf("the companion answered %q (%s)", got, res.Stderr)
	}
}

func TestCompanionsAreReadyBeforeTheirLeaseAndSleepAndEndWithIt(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(_ *sandbox.Companion, env *sandbox.EnvironmentSpec) {
		env.SleepMode = sandbox.SleepStop
		env.PostStart = []sandbox.PostStart{{Command: []string{"wget", "-q", "-O", "answer", "http://127.0.0.1:8800/"}}}
	})
	l := w.leased()
	if c := w.of(l); c.State != sandbox.CompanionReady || c.Name != "db" || c.Since.IsZero() {
		t.Errorf("the companion is %+v", c)
	}
	w.wantAnswer(l)
	c, err := w.api.ContainerInspect(t.Context(), w.container(l))
	must(t, err)
	text, err := json.Marshal(c)
	must(t, err)
	if strings.Contains(string(text), companionToken) {
		t.Error("the engine shows the secret of a companion")
	}
	own, theirs := w.findings(strings.TrimSuffix(w.container(l), ".db")), w.findings(w.container(l))
	if !slices.Equal(own, theirs) {
		t.Errorf("the audit finds %q in the companion, and %q in its sandbox", theirs, own)
	}
	_, err = w.Sleep(t.Context(), sandbox.LeaseRef{ID: l.ID})
	must(t, err)
	if c, err := w.api.ContainerInspect(t.Context(), w.container(l)); err != nil || c.State.Running {
		t.Errorf("the companion of a stopped sandbox runs (%v)", err)
	}
	w.wantAnswer(l) // a command wakes both
	events, err := w.ListEvents(t.Context(), sandbox.EventFilter{SandboxID: l.SandboxID})
	must(t, err)
	var types []sandbox.EventType
	for _, e := range events {
		if strings.HasPrefix(string(e.Type), "companion.") || e.Type == sandbox.EventReady || e.Type == sandbox.EventAwake {
			types = append(types, e.Type)
		}
	}
	if want := []sandbox.EventType{sandbox.EventCompanionReady, sandbox.EventReady, sandbox.EventCompanionReady,
		sandbox.EventAwake}; !slices.Equal(types, want) {
		t.Errorf("events %q, want %q", types, want)
	}
	w.release(l)
}

func TestACompanionThatIsNeverHealthyFailsItsLease(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]struct {
		change func(*sandbox.Companion)
		want   string
	}{
		"never healthy": {func(c *sandbox.Companion) {
			c.Command = []string{"sh", "-c", "echo still migrating; sleep 7013"}
			c.HealthCheck = sandbox.CompanionHealthCheck{Command: []string{"sh", "-c", "echo no schema; exit 4"},
				StartPeriod: sandbox.Duration(3 * time.Second), Interval: sandbox.Duration(200 * time.Millisecond)}
		}, "it was not healthy after 3s (the last check ended with exit code 4 and wrote \"no schema\")" +
			"; its output ends with \"still migrating\""},
		"dying": {func(c *sandbox.Companion) { c.Command = []string{"sh", "-c", "echo no space left; exit 3"} },
			"its program ended with exit code 3; its output ends with \"no space left\""},
		"no HTTP": {func(c *sandbox.Companion) {
			c.Command = []string{"sh", "-c", "while :; do head -c 60000 /dev/zero | tr '\\0' A | nc -l -p 8800; done"}
			c.HealthCheck.StartPeriod = sandbox.Duration(3 * time.Second)
		}, "AAAA"},
		"no program": {func(c *sandbox.Companion) { c.Command = []string{"no-such-program"} }, "exit code 127"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newCompanionWorld(t, func(c *sandbox.Companion, _ *sandbox.EnvironmentSpec) { row.change(c) })
			_, err := w.acquire("did:plc:ann")
			if sandbox.CodeOf(err) != sandbox.Failed || sandbox.ReasonOf(err) != sandbox.ReasonCompanionFailed ||
				!strings.Contains(err.Error(), row.want) {
				t.Errorf("the acquire ended with %v, want %s", err, row.want)
			}
			if n := len(err.Error()); n > 4<<10 {
				t.Errorf("the error has %d bytes", n)
			}
			l, err := w.GetLease(t.Context(), sandbox.LeaseID("did:plc:ann", w.ref.EnvironmentID))
			must(t, err)
			if f := w.failure(l.SandboxID); f.Name != "db" || f.Reason == "" {
				t.Errorf("companion.failed has %+v", f)
			}
			w.release(l)
		})
	}
}

func TestACompanionThatEndsLaterIsFailedAndItsLeaseContinues(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(c *sandbox.Companion, _ *sandbox.EnvironmentSpec) {
		c.Command = []string{"sh", "-c", "httpd -p 127.0.0.1:8800; echo >index.html; " +
			"until test -e /data/end; do sleep 0.1; done; echo no space left; exit 9"}
	})
	l := w.leased()
	w.endCompanion(l)
	f := w.awaitFailure(l, sandbox.CompanionFailed)
	if f.ExitCode == nil || *f.ExitCode != 9 || f.Output != "no space left" || f.Restarts {
		t.Errorf("companion.failed has %+v", f)
	}
	w.release(l)
}

// TestTheCPUTimeOfACompanionIsBilled has a companion that uses its CPU and a sandbox that does nothing.
func TestTheCPUTimeOfACompanionIsBilled(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(c *sandbox.Companion, _ *sandbox.EnvironmentSpec) {
		c.Command = []string{"sh", "-c", "cat /run/secrets/token >index.html; httpd -p 127.0.0.1:8800; while :; do :; done"}
	})
	l := w.leased()
	counted := func() float64 {
		t.Helper()
		must(t, w.Resync(t.Context(), sandbox.Docker))
		report, err := w.Costs(t.Context(), sandbox.CostQuery{})
		must(t, err)
		return report.Total.CPUSeconds
	}
	eventually(t, "two seconds of CPU time are counted", func() bool { return counted() >= 2 })
	used, err := w.LeaseUsage(t.Context(), sandbox.LeaseRef{ID: l.ID})
	must(t, err)
	if own := time.Duration(used.CPUTime); own > time.Second {
		t.Errorf("the sandbox itself has used %s", own)
	}
	w.release(l)
}

// endCompanion ends the program of a companion that waits for /data/end.
func (w *companionWorld) endCompanion(l sandbox.Lease) {
	w.Helper()
	h := driver.Handle{LedgerID: w.ref.LedgerID, EnvironmentID: w.ref.EnvironmentID, Instance: w.ref.Instance,
		SandboxID: l.SandboxID}
	w.world.exec(w.T, h.Of("db"), "touch", "/data/end")
}

func TestACompanionIsStartedAgainWhereItsDeclarationSaysSo(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(c *sandbox.Companion, _ *sandbox.EnvironmentSpec) {
		c.Restart = sandbox.CompanionOnFailure
		c.Command = []string{"sh", "-c", "cat /run/secrets/token >index.html; httpd -p 127.0.0.1:8800; " +
			"until test -e /data/end; do sleep 0.1; done; rm /data/end; exit 9"}
	})
	l := w.leased()
	w.endCompanion(l)
	if f := w.awaitFailure(l, sandbox.CompanionStarting); !f.Restarts {
		t.Errorf("companion.failed has %+v", f)
	}
	eventually(t, "the companion is ready again", func() bool {
		must(t, w.Work(t.Context(), l.SandboxID))
		return w.of(l).State == sandbox.CompanionReady
	})
	if c := w.of(l); c.Restarts != 1 {
		t.Errorf("the companion is %+v", c)
	}
	w.wantAnswer(l)
	w.release(l)
}

func TestCompanionsFollowASandboxThatWasRestartedByHand(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(*sandbox.Companion, *sandbox.EnvironmentSpec) {})
	l := w.leased()
	container := strings.TrimSuffix(w.container(l), ".db")
	must(t, w.api.ContainerKill(t.Context(), container, "KILL"))
	eventually(t, "the sandbox is seen stopped", func() bool {
		must(t, w.Look(t.Context(), l.SandboxID))
		is, err := w.GetLease(t.Context(), l.ID)
		must(t, err)
		return is.SandboxState == sandbox.SandboxStopped
	})
	must(t, w.api.ContainerStart(t.Context(), container, dockerapi.StartOptions{}))
	must(t, w.Look(t.Context(), l.SandboxID))
	eventually(t, "the companion is ready again", func() bool {
		must(t, w.Work(t.Context(), l.SandboxID))
		return w.of(l).State == sandbox.CompanionReady
	})
	w.wantAnswer(l)
	if c := w.of(l); c.Restarts != 0 {
		t.Errorf("the companion is %+v", c)
	}
	w.release(l)
}

// A restarted engine ends paused containers. The ledger does not notice until the lease is used again.
func TestCompanionsStartWithASandboxThatStoppedUnseenInItsSleep(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(*sandbox.Companion, *sandbox.EnvironmentSpec) {})
	l := w.leased()
	_, err := w.Sleep(t.Context(), sandbox.LeaseRef{ID: l.ID})
	must(t, err)
	for _, container := range []string{strings.TrimSuffix(w.container(l), ".db"), w.container(l)} {
		must(t, w.api.ContainerKill(t.Context(), container, "KILL"))
	}
	_, err = w.Wake(t.Context(), sandbox.LeaseRef{ID: l.ID})
	must(t, err)
	eventually(t, "the companion answers", func() bool {
		must(t, w.Work(t.Context(), l.SandboxID))
		res, err := w.Exec(t.Context(), sandbox.LeaseRef{ID: l.ID},
			sandbox.ExecRequest{Command: []string{"wget", "-q", "-O", "-", "http://127.0.0.1:8800/"}})
		must(t, err)
		return string(res.Stdout) == companionToken
	})
	if c := w.of(l); c.State != sandbox.CompanionReady || c.Restarts != 0 {
		t.Errorf("the companion is %+v", c)
	}
	w.release(l)
}

// findings returns the rules that an audit finds broken for an object.
func (w *companionWorld) findings(object string) (rules []string) {
	w.Helper()
	checks, err := w.x.Audit(w.Context(), w.ref.LedgerID)
	must(w.T, err)
	seen := false
	for _, c := range checks {
		seen = seen || c.Object == object
		if c.Object == object && c.Verdict == sandbox.VerdictFinding {
			rules = append(rules, c.Rule+": "+c.Detail)
		}
	}
	if !seen {
		w.Errorf("no rule was checked for %s", object)
	}
	return rules
}

func TestACompanionThatIsRemovedOrChangedByHandIsDrift(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(*sandbox.Companion, *sandbox.EnvironmentSpec) {})
	l := w.leased()
	_, err := w.api.ContainerUpdate(t.Context(), w.container(l),
		dockerapi.UpdateConfig{Resources: dockerapi.Resources{Memory: 128 << 20, MemorySwap: 128 << 20}})
	must(t, err)
	drift := func() (fields []string) {
		must(t, w.Look(t.Context(), l.SandboxID))
		l, err := w.GetLease(t.Context(), l.ID)
		must(t, err)
		for _, d := range l.Drift {
			fields = append(fields, fmt.Sprintf("%s: %s, not %s", d.Field, d.Observed, d.Expected))
		}
		return fields
	}
	if got := drift(); !slices.Equal(got, []string{"companion db memory_mb: 128, not 64"}) {
		t.Errorf("drift %q", got)
	}
	must(t, w.api.ContainerRemove(t.Context(), w.container(l), dockerapi.ContainerRemoveOptions{Force: true}))
	if got := drift(); !slices.Equal(got, []string{"companion db: absent, not present"}) {
		t.Errorf("drift %q", got)
	}
	if c := w.of(l); c.State != sandbox.CompanionFailed || w.failure(l.SandboxID).Reason != c.Message {
		t.Errorf("the companion is %+v", c)
	}
	w.release(l)
}

func TestSandboxesOfAWarmPoolHaveTheirCompanions(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(_ *sandbox.Companion, env *sandbox.EnvironmentSpec) {
		env.WarmPool = &sandbox.WarmPool{Size: 1}
	})
	must(t, w.ReconcilePools(t.Context()))
	eventually(t, "a sandbox waits", func() bool {
		ids, _, err := w.ListDue(t.Context(), sandbox.Docker, sandbox.MaxPage)
		must(t, err)
		for _, id := range ids {
			must(t, w.Work(t.Context(), id))
		}
		env, err := w.GetEnvironment(t.Context(), w.ref.EnvironmentID)
		must(t, err)
		return env.Pool != nil && env.Pool.Ready == 1
	})
	l := w.leased()
	w.wantAnswer(l)
	w.release(l)
}

func TestFiftySandboxesWithCompanionsLeaveNothing(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("takes minutes: set SANDBOX_TEST_LONG=1, or run make test-long")
	}
	w := newCompanionWorld(t, func(c *sandbox.Companion, _ *sandbox.EnvironmentSpec) {
		c.HealthCheck.StartPeriod = sandbox.MaxStartPeriod
	})
	const n = 50
	var working sync.WaitGroup
	ids := make([]string, n)
	for i := range n {
		working.Go(func() {
			a, err := w.acquire(fmt.Sprintf("did:plc:agent-%d", i))
			if err != nil {
				t.Errorf("agent %d: %v", i, err)
				return
			}
			ids[i] = a.Lease.SandboxID
			if _, err := w.Release(t.Context(), sandbox.LeaseRef{ID: a.Lease.ID}); err != nil {
				t.Errorf("agent %d: %v", i, err)
			}
		})
	}
	working.Wait()
	for _, id := range ids {
		w.wantNothingOf(id)
	}
}

// companionLedger makes the test binary acquire a lease on this ledger, through the engine at companionEngine.
const (
	companionLedger = "SANDBOX_TEST_COMPANION_LEDGER"
	companionEngine = "SANDBOX_TEST_COMPANION_ENGINE"
	companionGame   = "SANDBOX_TEST_COMPANION_GAME"
)

// TestReconcilerThatIsKilledInTheMiddle is the process that TestAReconcilerKilledBetweenSandboxAndCompanion kills.
func TestReconcilerThatIsKilledInTheMiddle(t *testing.T) {
	if os.Getenv(companionLedger) == "" {
		t.Skip("another test runs this one")
	}
	x, err := docker.New(docker.Config{Host: os.Getenv(companionEngine)})
	must(t, err)
	store, err := ledger.Open(t.Context(), "sqlite://"+os.Getenv(companionLedger), ledger.Options{})
	must(t, err)
	w := &world{x: x, ref: driver.EnvironmentRef{LedgerID: store.ID(), EnvironmentID: os.Getenv(companionGame)}}
	must(t, store.Close())
	e, _ := w.engineOn(t, os.Getenv(companionLedger))
	_, err = e.Acquire(t.Context(),
		sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.ref.EnvironmentID, Owner: "test"})
	t.Fatalf("it was not killed: %v", err)
}

func TestAReconcilerKilledBetweenSandboxAndCompanion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	path := filepath.Join(t.TempDir(), "ledger.db")
	e, end := w.engineOn(t, path)
	putCompanions(t, e, w, func(*sandbox.Companion, *sandbox.EnvironmentSpec) {})
	end()

	proxy := dockertest.NewProxy(t)
	reached, dead, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	proxy.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if strings.HasSuffix(r.URL.Path, "/containers/create") && strings.HasSuffix(r.URL.Query().Get("name"), ".db") {
			once.Do(func() { close(reached) })
			<-dead
			return
		}
		pass(rw, r)
	})
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestReconcilerThatIsKilledInTheMiddle$")
	process.Env = append(os.Environ(), companionLedger+"="+path, companionEngine+"="+proxy.Host(),
		companionGame+"="+w.ref.EnvironmentID)
	process.Stdout, process.Stderr = os.Stderr, os.Stderr
	must(t, process.Start())
	select {
	case <-reached:
	case <-time.After(time.Minute):
		t.Error("the companion was not reached")
	}
	must(t, process.Process.Kill())
	_ = process.Wait() // it was killed
	close(dead)

	e, end = w.engineOn(t, path)
	defer end()
	c := &companionWorld{t, w, e}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := e.Acquire(ctx, sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.ref.EnvironmentID, Owner: "test"})
	must(t, err)
	if a.IsNew {
		t.Error("the lease of the killed process is lost")
	}
	c.wantAnswer(a.Lease)
	c.release(a.Lease)
}

// A companion has no /data, so it is not frozen while that of its sandbox is saved.
func TestCompanionsRunWhileTheirSandboxIsSaved(t *testing.T) {
	t.Parallel()
	w := newCompanionWorld(t, func(*sandbox.Companion, *sandbox.EnvironmentSpec) {})
	l := w.leased()
	h := driver.Handle{LedgerID: w.ref.LedgerID, EnvironmentID: w.ref.EnvironmentID, Instance: w.ref.Instance,
		SandboxID: l.SandboxID}
	r, err := w.x.Export(t.Context(), h)
	must(t, err)
	w.wantState(t, h, sandbox.StatePaused)
	w.wantState(t, h.Of("db"), sandbox.StateRunning)
	_, err = io.Copy(io.Discard, r)
	must(t, errors.Join(err, r.Close()))
	w.wantAnswer(l)
}
