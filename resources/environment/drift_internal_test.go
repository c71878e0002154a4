package environment

import (
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestAPolicyThatIsKeptIsAWarningAndNoChange: no apply can change the policy, so no plan may contain it. Changes made
// outside Terraform are planned.
func TestAPolicyThatIsKeptIsAWarningAndNoChange(t *testing.T) {
	t.Parallel()
	const of = "deployment of environment game: "
	kept := sandbox.DriftFinding{
		Kind: sandbox.DriftChanged, Field: of + "scheduling_policy", Expected: "durable_object", Observed: "default",
	}
	changed := sandbox.DriftFinding{Kind: sandbox.DriftChanged, Field: of + "script", Expected: "a", Observed: "b"}
	for _, found := range [][]sandbox.DriftFinding{{kept}, {changed}, {kept, changed}, nil} {
		env := sandbox.Environment{ID: "game", Drift: found}
		var drift, warnings int
		for _, f := range found {
			if f == kept {
				warnings++
			} else {
				drift++
			}
		}
		if n := len(flattenDrift(found).Elements()); n != drift {
			t.Errorf("of %v the plan has %d changes, want %d", found, n, drift)
		}
		notice := keptNotice(env)
		if len(notice) != warnings || len(driftNotice(env)) != drift {
			t.Errorf("of %v it warns %v and %v", found, notice, driftNotice(env))
		}
		for _, d := range notice {
			const says = "made with the scheduling policy default, and would be made with durable_object"
			if !strings.Contains(d.Detail(), says) || !strings.Contains(d.Detail(), "-replace") {
				t.Errorf("the warning says %q", d.Detail())
			}
		}
	}
}
