package reconciler_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestRestartLeavesLivingSandboxesAlone kills the reconciler under living leases. `make bench` measures
// the same with 200 of them.
func TestRestartLeavesLivingSandboxesAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	const players = 8
	var wg sync.WaitGroup
	for i := range players {
		wg.Go(func() {
			if _, err := w.service.Acquire(t.Context(),
				sandbox.Acquire{AgentDID: agent(i), EnvironmentID: "catan"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	running := func() []string {
		ids := strings.Fields(w.docker("ps", "-q", "--no-trunc", "--filter", w.labelled(), "--filter", sandboxes))
		slices.Sort(ids)
		return ids
	}
	leases := func() []sandbox.Lease {
		t.Helper()
		list, err := w.service.ListLeases(t.Context(), sandbox.LeaseFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	containers := func() (ids []string) {
		for _, l := range leases() {
			ids = append(ids, l.ContainerID)
		}
		slices.Sort(ids)
		return ids
	}
	before, then := leases(), running()
	if got := containers(); !slices.Equal(got, then) {
		t.Errorf("the leases have the containers %v, the engine has %v", got, then)
	}
	w.kill()
	began := time.Now()
	w.start()
	w.eventually("every sandbox is seen again", func() bool {
		return !slices.ContainsFunc(leases(), func(l sandbox.Lease) bool { return l.ObservedAt.Before(began) })
	})
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("they were seen again after %s, want 5s", d)
	}
	if now := running(); len(now) != players || !slices.Equal(now, then) {
		t.Errorf("the containers were %v and are %v", then, now)
	}
	if got := containers(); !slices.Equal(got, then) {
		t.Errorf("after the restart the leases have the containers %v, the engine has %v", got, then)
	}
	for i, l := range leases() {
		if b := before[i]; l.Status != sandbox.LeaseActive || l.SandboxID != b.SandboxID || l.LastSequence != b.LastSequence {
			t.Errorf("it was %+v and is %+v", b, l)
		}
	}
}
