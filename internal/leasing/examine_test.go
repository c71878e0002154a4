package leasing_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestWhatOthersChangedOfADeploymentIsAFindingUntilItIsDeployedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		get := func() sandbox.Environment {
			env, err := w.engine.GetEnvironment(w.Context(), game)
			if err != nil {
				w.Fatal(err)
			}
			return env
		}
		if env := get(); len(env.Drift) > 0 {
			t.Errorf("nothing changed, and the findings are %+v", env.Drift)
		}
		w.backend.Alter(w.gatewayRef(), driver.Difference{Setting: "image", Wanted: "ours", Found: "theirs"},
			driver.Difference{Setting: "script", Wanted: "a", Found: "b"})
		first := get()
		if len(first.Drift) != 2 || first.Drift[0].Kind != sandbox.DriftChanged || first.Drift[0].Expected != "ours" ||
			first.Drift[0].Observed != "theirs" {
			w.Fatalf("the findings are %+v", first.Drift)
		}
		if again := get(); len(again.Drift) != 2 || again.Drift[0].ID != first.Drift[0].ID {
			t.Errorf("the second look finds %+v", again.Drift)
		}

		w.backend.Fail(fake.OpDiffer, sandbox.Errorf(sandbox.Unavailable, "it does not answer"))
		if env := get(); len(env.Drift) != 2 {
			t.Errorf("a backend that does not answer changed the findings to %+v", env.Drift)
		}
		w.backend.Fail(fake.OpDiffer, nil)

		// The image was corrected from outside.
		w.backend.Alter(w.gatewayRef(), driver.Difference{Setting: "script", Wanted: "a", Found: "b"})
		if env := get(); len(env.Drift) != 1 || env.Drift[0].Observed != "b" {
			t.Errorf("the findings are %+v", env.Drift)
		}
		w.environment() // deploys it again
		if env := get(); len(env.Drift) > 0 {
			t.Errorf("it is deployed again, and the findings are %+v", env.Drift)
		}
		open, err := w.engine.ListDrift(w.Context(), sandbox.DriftFilter{EnvironmentID: game, Status: sandbox.DriftOpen})
		if err != nil || len(open) > 0 {
			t.Errorf("open are %+v: %v", open, err)
		}
	})
}
