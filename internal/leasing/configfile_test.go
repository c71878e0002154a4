package leasing_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Programs in sandboxes read these keys: JavaScript programs those in camel case, which other executors of agents have
// too.
func TestTheFileOfALeaseHasTheKeysThatProgramsReadInBothSpellings(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		l := w.acquire(ann)
		text, _ := w.backend.FileOf(l.SandboxID, "/workspace/config.json")
		var got map[string]any
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("it is %q: %v", text, err)
		}
		for key, want := range map[string]any{
			"agentDid": ann, "environmentId": game, "environmentType": "rpg",
			"agent_did": ann, "environment_id": game, "environment_type": "rpg",
			"lease_id": l.ID, "generation": float64(1), "sandbox_id": l.SandboxID, "allowed_root_directory": "/workspace",
		} {
			if !reflect.DeepEqual(got[key], want) {
				t.Errorf("%s is %v, want %v", key, got[key], want)
			}
			delete(got, key)
		}
		rest := slices.Sorted(maps.Keys(got))
		if want := []string{"ends_at_latest", "expiry_conditions", "leased_at"}; !slices.Equal(rest, want) {
			t.Errorf("the other keys are %q, want %q", rest, want)
		}
	})
}
