package docker_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// counter counts the requests to an engine.
type counter struct {
	mu   sync.Mutex
	made []string
}

func (c *counter) count(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
	c.mu.Lock()
	c.made = append(c.made, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("name")))
	c.mu.Unlock()
	pass(rw, r)
}

// during returns the requests during do.
func (c *counter) during(t *testing.T, do func() error) []string {
	t.Helper()
	c.mu.Lock()
	c.made = nil
	c.mu.Unlock()
	must(t, do())
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made)
}

// TestRequestsToTheEngineAreCounted: more requests make a start, a claim and an end slower.
func TestRequestsToTheEngineAreCounted(t *testing.T) {
	t.Parallel()
	x, p := throughProxy(t)
	w := newWorldOf(t, newExecutor(t), dockertest.Busybox(t), func(*sandbox.EnvironmentSpec) {})
	t.Cleanup(func() { p.Set(nil) })
	must(t, x.Spawn(t.Context(), w.spec())) // it makes the requests that are made only once
	c := &counter{}
	p.Set(c.count)
	want := func(what string, n int, made []string) {
		t.Helper()
		if len(made) != n {
			t.Errorf("%s makes %d requests, want %d:\n%s", what, len(made), n, strings.Join(made, "\n"))
		}
	}

	cold := w.spec()
	want("a cold spawn", 7, c.during(t, func() error { return x.Spawn(t.Context(), cold) }))
	want("an end", 8, c.during(t, func() error { return x.Kill(t.Context(), cold.Handle) }))

	lease := w.spec()
	waiting := lease
	waiting.LeaseID, waiting.AgentDID, waiting.Config, waiting.Generation = "", "", nil, 0
	want("a spawn for a pool", 8, c.during(t, func() error { return x.Spawn(t.Context(), waiting) }))
	w.exec(t, lease.Handle, "true") // a guest that does not answer soon is looked for on the engine
	must(t, x.Sleep(t.Context(), lease.Handle, sandbox.SleepPause))
	want("a claim on a paused pool", 1, c.during(t, func() error {
		if _, err := x.Wake(t.Context(), lease.Handle); err != nil {
			return err
		}
		return x.Assign(t.Context(), lease)
	}))
	want("the end of what was in a pool", 10, c.during(t, func() error { return x.Kill(t.Context(), lease.Handle) }))

	lease = w.spec()
	waiting = lease
	waiting.LeaseID, waiting.AgentDID, waiting.Config, waiting.Generation = "", "", nil, 0
	must(t, x.Spawn(t.Context(), waiting))
	w.exec(t, lease.Handle, "true")
	want("a claim on a running pool", 0, c.during(t, func() error { return x.Assign(t.Context(), lease) }))
}

// TestAPageOfAnEnvironmentInspectsItsSandboxesAlone: otherwise a plan with many environments inspects all sandboxes for
// each.
func TestAPageOfAnEnvironmentInspectsItsSandboxesAlone(t *testing.T) {
	t.Parallel()
	e, p, w := leasesThroughProxy(t, sandbox.NetworkNone)
	const other, each = "catan-8", 5
	_, err := e.PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: other, Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCustom, Image: w.image, Network: sandbox.NetworkNone}})
	must(t, err)
	for i := range each {
		for _, environment := range []string{w.ref.EnvironmentID, other} {
			_, err := e.Acquire(t.Context(), sandbox.Acquire{AgentDID: fmt.Sprintf("did:plc:a%d", i),
				EnvironmentID: environment, Owner: "test"})
			must(t, err)
		}
	}
	t.Cleanup(func() {
		p.Set(nil)
		must(t, e.DeleteEnvironment(context.WithoutCancel(t.Context()), sandbox.DeleteEnvironment{ID: other, Force: true}))
	})
	c := &counter{}
	p.Set(c.count)
	made := c.during(t, func() error {
		leases, err := e.ListLeases(t.Context(), sandbox.LeaseFilter{EnvironmentID: other, Observe: true})
		if len(leases) != each {
			t.Errorf("%d leases are listed, want %d", len(leases), each)
		}
		return err
	})
	inspected := slices.DeleteFunc(made, func(r string) bool {
		return !strings.HasPrefix(r, "GET") || !strings.HasSuffix(r, "/json") || strings.HasSuffix(r, "/containers/json")
	})
	if len(inspected) != each {
		t.Errorf("a page of %d leases inspects\n%s", each, strings.Join(inspected, "\n"))
	}
}
