package leasing_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestAnEnvironmentThatDoesNotAnswerHidesNoOther: the state of its sandboxes is unknown, and the other sandboxes are
// inspected.
func TestAnEnvironmentThatDoesNotAnswerHidesNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.environment(func(p *sandbox.PutEnvironment) { p.ID = "mute" })
		seen := w.acquire(ann)
		a, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: "mute", Owner: "test"})
		if err != nil {
			t.Fatal(err)
		}
		unknown := a.Lease
		w.startLoop()
		broken := errors.New("its database is away")
		w.backend.Mute("mute", broken)
		w.backend.Remove(seen.SandboxID)
		var partial *sandbox.PartialError
		err = w.engine.Resync(w.Context(), sandbox.Docker)
		if !errors.As(err, &partial) || !errors.Is(partial.Of("mute"), broken) || partial.Of(game) != nil ||
			sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("the resync returns %v", err)
		}
		later(10 * time.Minute)
		if found, err := w.engine.ListDrift(w.Context(), sandbox.DriftFilter{LeaseID: seen.ID}); err != nil ||
			len(found) != 1 || found[0].Kind != sandbox.DriftVanished {
			t.Errorf("the findings of the environment that answers are %+v: %v", found, err)
		}
		if found, err := w.engine.ListDrift(w.Context(), sandbox.DriftFilter{LeaseID: unknown.ID}); err != nil ||
			len(found) != 0 {
			t.Errorf("the findings of the environment that does not answer are %+v: %v", found, err)
		}
		w.want(w.lease(unknown.ID), sandbox.LeaseActive, "")
		w.backend.Mute("mute", nil)
		if err := w.engine.Resync(w.Context(), sandbox.Docker); err != nil {
			t.Errorf("with everything in reach the resync returns %v", err)
		}
		w.want(w.lease(unknown.ID), sandbox.LeaseActive, "")
	})
}
