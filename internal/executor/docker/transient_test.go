package docker_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// leasesThroughProxy is a lease service with one environment, whose engine is behind a proxy.
func leasesThroughProxy(t *testing.T, network sandbox.NetworkMode) (*leasing.Service, *dockertest.Proxy, *world) {
	t.Helper()
	x, p := throughProxy(t)
	w := newWorldOf(t, newExecutor(t), dockertest.Busybox(t), func(*sandbox.EnvironmentSpec) {})
	behind := *w
	behind.x = x
	e, end := behind.engineOn(t, filepath.Join(t.TempDir(), "ledger.db"))
	t.Cleanup(func() { p.Set(nil); end() })
	_, err := e.PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: w.ref.EnvironmentID, Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCustom, Image: w.image, Network: network}})
	must(t, err)
	return e, p, w
}

// failing counts the requests to the engine, and answers 500 to the nth of them, from 1; 0 fails none.
func failing(n int64) (fault faulttest.Fault, calls *atomic.Int64, failed *atomic.Value) {
	calls, failed = new(atomic.Int64), new(atomic.Value)
	return func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if calls.Add(1) == n {
			failed.Store(r.Method + " " + r.URL.Path)
			faulttest.Error500(rw, r, pass)
			return
		}
		pass(rw, r)
	}, calls, failed
}

// TestAnInternalErrorOfTheEngineLosesNoLease answers 500 to each request of a spawn, one at a time.
func TestAnInternalErrorOfTheEngineLosesNoLease(t *testing.T) {
	t.Parallel()
	for _, network := range []sandbox.NetworkMode{sandbox.NetworkNone, sandbox.NetworkRestricted, sandbox.NetworkFull} {
		t.Run(string(network), func(t *testing.T) {
			t.Parallel()
			losesNoLease(t, network)
		})
	}
}

func losesNoLease(t *testing.T, network sandbox.NetworkMode) {
	e, p, w := leasesThroughProxy(t, network)
	agent := 0
	acquire := func() error {
		agent++
		_, err := e.Acquire(t.Context(),
			sandbox.Acquire{AgentDID: fmt.Sprintf("did:plc:a%d", agent), EnvironmentID: w.ref.EnvironmentID, Owner: "test"})
		return err
	}
	must(t, acquire()) // the executor has read the engine's identity
	fault, calls, _ := failing(0)
	p.Set(fault)
	must(t, acquire())
	all := calls.Load()
	if all < 5 {
		t.Fatalf("a spawn makes %d calls, so the test sees too little", all)
	}
	for n := int64(1); n <= all; n++ {
		fault, _, failed := failing(n)
		p.Set(fault)
		if err := acquire(); err != nil {
			t.Errorf("500 to call %d of %d, %v: the lease is lost: %v", n, all, failed.Load(), err)
		}
		if failed.Load() == nil {
			t.Errorf("call %d of %d was never made", n, all)
		}
	}
	t.Logf("each of %d calls failed once", all)
}

func TestTheNextGenerationIsAcquiredWhileTheEngineRefusesRemovals(t *testing.T) {
	t.Parallel()
	e, p, w := leasesThroughProxy(t, sandbox.NetworkNone)
	acquire := sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.ref.EnvironmentID, Owner: "test"}
	first, err := e.Acquire(t.Context(), acquire)
	must(t, err)
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if r.Method == http.MethodDelete {
			faulttest.Error500(rw, r, pass)
			return
		}
		pass(rw, r)
	})
	if _, err := e.Release(t.Context(), sandbox.LeaseRef{ID: first.Lease.ID}); err != nil {
		wantCode(t, err, sandbox.Failed) // it is expired, and its removal is retried
	}
	second, err := e.Acquire(t.Context(), acquire)
	must(t, err)
	if second.Lease.Generation != 2 || second.Lease.SandboxID == first.Lease.SandboxID {
		t.Errorf("generation %d in sandbox %s follows sandbox %s",
			second.Lease.Generation, second.Lease.SandboxID, first.Lease.SandboxID)
	}
	o, err := w.x.Inspect(t.Context(), driver.Handle{
		LedgerID:      w.ref.LedgerID,
		EnvironmentID: w.ref.EnvironmentID,
		SandboxID:     second.Lease.SandboxID,
		Instance:      w.ref.Instance,
	})
	must(t, err)
	if o.State != sandbox.StateRunning {
		t.Errorf("the second generation is %s", o.State)
	}
}

// TestAStartThatFailsForGoodIsTriedAFewTimesOnly: an engine also answers 500 to a permanent failure.
func TestAStartThatFailsForGoodIsTriedAFewTimesOnly(t *testing.T) {
	t.Parallel()
	e, p, w := leasesThroughProxy(t, sandbox.NetworkNone)
	var starts atomic.Int64
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if r.Method == http.MethodPost && filepath.Base(r.URL.Path) == "start" {
			starts.Add(1)
			faulttest.Error500(rw, r, pass)
			return
		}
		pass(rw, r)
	})
	_, err := e.Acquire(t.Context(),
		sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.ref.EnvironmentID, Owner: "test"})
	wantCode(t, err, sandbox.Failed)
	if n := starts.Load(); n != 3 {
		t.Errorf("it was started %d times, want 3", n)
	}
}

// TestAnInternalErrorOfTheEngineLosesNoEnvironment answers 500 to each request that creates or removes parts of an
// environment, one at a time. Some parts run concurrently, so a request is the nth of its kind in any order. The engine
// seems to be on another machine, so that the gateway is always reached by an exec. On this machine that is only needed
// until the gateway has created its socket.
func TestAnInternalErrorOfTheEngineLosesNoEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, newExecutor(t), dockertest.Busybox(t), func(*sandbox.EnvironmentSpec) {})
	p := dockertest.NewProxy(t)
	far := httptest.NewServer(p)
	t.Cleanup(far.Close)
	x, err := docker.New(docker.Config{Host: "tcp://" + far.Listener.Addr().String()})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close()) })
	spec := w.environment()
	spec.Network = sandbox.NetworkRestricted
	pass := func(kind string, nth int) (made map[string]int) {
		ref := w.ref
		ref.LedgerID = sandbox.RandomIDs(sandbox.LedgerIDLength) // so that its relay is created too
		fault, calls := failingOfKind(kind, nth)
		p.Set(fault)
		err := x.Provision(t.Context(), ref, spec)
		if err == nil {
			err = x.Deprovision(t.Context(), ref)
		}
		p.Set(nil)
		if err != nil {
			t.Errorf("500 to call %d of %s: %v", nth, kind, err)
		}
		must(t, x.Deprovision(t.Context(), ref))
		for _, left := range objectsOn(t, w.api, ref.LedgerID) {
			t.Errorf("500 to call %d of %s: left behind: %s", nth, kind, left)
		}
		return calls()
	}
	pass("", 0) // the executor has read the engine's identity
	kinds := pass("", 0)
	if len(kinds) < 20 {
		t.Fatalf("an environment takes %d kinds of calls, so the test sees too little", len(kinds))
	}
	failed := 0
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for nth := 1; nth <= kinds[kind]; nth++ {
			switch made := pass(kind, nth)[kind]; {
			case made >= nth:
				failed++
			case nth == 1: // a later one may not be needed, thanks to a request of another part
				t.Errorf("%s was never called", kind)
			}
		}
	}
	t.Logf("each of %d calls of %d kinds failed once", failed, len(kinds))
}

// nameInPath matches what differs between two objects of one kind: a version, an id, a name with an id.
var nameInPath = regexp.MustCompile(`/v1\.[0-9]+|[0-9a-z-]*[0-9a-z]{12,}`)

// failingOfKind counts the requests to the engine by kind, which is a method and a path without names. It answers 500
// to the nth of one kind.
func failingOfKind(kind string, nth int) (fault faulttest.Fault, calls func() map[string]int) {
	var mu sync.Mutex
	made := map[string]int{}
	return func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
			k := r.Method + " " + nameInPath.ReplaceAllString(r.URL.Path, "*")
			mu.Lock()
			made[k]++
			fail := k == kind && made[k] == nth
			mu.Unlock()
			if fail {
				faulttest.Error500(rw, r, pass)
				return
			}
			pass(rw, r)
		}, func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(made)
		}
}
