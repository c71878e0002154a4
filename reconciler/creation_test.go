package reconciler_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// restricted returns an environment with the most objects on an engine: a gateway with its volume and image, in
// addition to the seed and the guest.
func (w *world) restricted(id string) sandbox.PutEnvironment {
	p := sandbox.PutEnvironment{
		ID:              id,
		EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, Network: sandbox.NetworkRestricted},
	}
	w.ground.place(w, &p.EnvironmentSpec)
	return p
}

const ms = time.Millisecond

// dropped requests an environment and drops the connection after a while.
func (w *world) dropped(p sandbox.PutEnvironment, after time.Duration) error {
	ctx, cancel := context.WithTimeout(w.Context(), after)
	defer cancel()
	_, err := w.service.PutEnvironment(ctx, p)
	return err
}

// TestAClientThatDropsItsConnectionTakesNoEnvironmentAway: a client cancels the creation of an environment while
// another client requests the same one.
func TestAClientThatDropsItsConnectionTakesNoEnvironmentAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	for round, after := range []time.Duration{50 * ms, 150 * ms, 300 * ms, 600 * ms, 900 * ms, 1200 * ms} {
		p := w.restricted(fmt.Sprintf("game-%d", round))
		gone := make(chan error, 1)
		go func() { gone <- w.dropped(p, after) }()
		env, err := w.service.PutEnvironment(w.Context(), p)
		if err != nil || env.Status != sandbox.EnvironmentOpen {
			t.Fatalf("dropped after %s (%v): the other one has it as %q: %v", after, <-gone, env.Status, err)
		}
		l := w.acquire("did:plc:ann", p.ID)
		w.exec(l.ID, "true")
		t.Logf("dropped after %s: %v", after, <-gone)
		if env, err := w.service.GetEnvironment(w.Context(), p.ID); err != nil || env.Status != sandbox.EnvironmentOpen ||
			env.Leases.Ready != 1 {
			t.Errorf("dropped after %s: it is %q with %+v: %v", after, env.Status, env.Leases, err)
		}
		w.exec(l.ID, "true")
	}
}

// TestACreationThatIsDroppedLeavesNothingOnTheEngine, even though its ledger never had a sandbox.
func TestACreationThatIsDroppedLeavesNothingOnTheEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	drops := []time.Duration{100 * ms, 400 * ms, 800 * ms}
	for round, after := range drops {
		p := w.restricted(fmt.Sprintf("game-%d", round))
		p.CreateOnly = true
		_ = w.dropped(p, after) // an error does not tell whether the engine was faster
	}
	faster := 0
	w.eventually("the creations are rolled back", func() bool {
		envs, err := w.service.ListEnvironments(w.Context())
		for _, env := range envs { // only an environment that was created grants a lease
			_, err := w.service.Acquire(w.Context(), sandbox.Acquire{AgentDID: agent(0), EnvironmentID: env.ID})
			if err != nil {
				continue
			}
			faster++
			end := sandbox.DeleteEnvironment{ID: env.ID, Force: true}
			if err := w.service.DeleteEnvironment(w.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		return err == nil && len(envs) == 0
	})
	if faster == len(drops) {
		t.Error("the engine was faster than every drop")
	}
	filter := w.labelled()
	left := w.docker("ps", "-aq", "--filter", filter) + w.docker("volume", "ls", "-q", "--filter", filter) +
		w.docker("image", "ls", "-q", "--filter", filter)
	if left != "" {
		t.Errorf("left on the engine: %s", left)
	}
	p := w.restricted("game-0")
	p.CreateOnly = true
	if env, err := w.service.PutEnvironment(w.Context(), p); err != nil || env.Status != sandbox.EnvironmentOpen {
		t.Errorf("its next try: %q, %v", env.Status, err)
	}
}
