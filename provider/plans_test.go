package provider_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An end by the rules changes nothing. The exit code says so, the plan in JSON has it as a change outside of Terraform
// without a planned change, and a refresh shows it. A vanished sandbox is a planned change.
func TestAccEndAndDriftInExitCodesAndJSON(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tf := terraform(t, w.Embedded()+environment(w)+lease("ended", "")+lease("vanished", ""))
	tf.Run("apply", "-auto-approve", "-input=false")
	w.Condition(w.Service(), "agent.death", w.Name, "did:plc:ended")
	exits(t, tf, 0)
	if out := tf.Run("plan", "-refresh-only", "-no-color",
		"-input=false"); !regexp.MustCompile(`~ status += "active" -> "(expired|destroyed)"`).MatchString(out) {
		t.Errorf("a refresh shows\n%s", out)
	}
	l, err := w.Service().GetLease(t.Context(), sandbox.LeaseID("did:plc:vanished", w.Name))
	w.Must(err)
	w.Must(w.Docker.ContainerRemove(t.Context(), w.Container(l.SandboxID), dockerapi.ContainerRemoveOptions{Force: true}))
	exits(t, tf, 2)
	tf.Run("plan", "-input=false", "-out=planned")
	var plan tfjson.Plan
	w.Must(plan.UnmarshalJSON([]byte(tf.Run("show", "-json", "planned"))))
	for object, want := range map[string][2]tfjson.Action{
		"sandbox_lease.ended":    {tfjson.ActionUpdate, tfjson.ActionNoop},
		"sandbox_lease.vanished": {tfjson.ActionDelete, tfjson.ActionCreate},
	} {
		if got := [2]tfjson.Action{
			actionOf(plan.ResourceDrift, object), actionOf(plan.ResourceChanges, object),
		}; got != want {
			t.Errorf("for %s, the plan has the drift and the change %q, want %q", object, got, want)
		}
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

func exits(t *testing.T, tf *providertest.CLI, want int) {
	t.Helper()
	out, err := tf.Script("code=0; terraform plan -input=false -detailed-exitcode || code=$?; echo exit code $code")
	if err != nil || !strings.HasSuffix(out, fmt.Sprintf("exit code %d\n", want)) {
		t.Errorf("a plan must exit with %d: %v\n%s", want, err, out)
	}
}

// actionOf returns the only action on an object.
func actionOf(changes []*tfjson.ResourceChange, address string) tfjson.Action {
	for _, c := range changes {
		if c.Address == address && len(c.Change.Actions) == 1 {
			return c.Change.Actions[0]
		}
	}
	return ""
}

// The state of an earlier provider plans nothing. The ledger supplies what it lacks, and attributes that no longer
// exist are ignored.
func TestAccStateOfAnEarlierProvider(t *testing.T) {
	t.Parallel()
	providertest.OverBothServices(t, func(t *testing.T, w *providertest.World, configuration string) {
		tf := terraform(t, configuration+environment(w)+lease("ann", "")+fmt.Sprintf(`
resource "sandbox_container_image" "player" {
  name = "%s/player"
  build = {
    context = "player"
  }
}
`, w.Name))
		tf.Write("player/Dockerfile", "FROM scratch\nCOPY . /\n")
		tf.Run("apply", "-auto-approve", "-input=false")
		makeOlder(t, tf)
		if p := tf.Plan(); len(p.Changes) != 0 || len(p.Diagnostics) != 0 {
			t.Errorf("with the state of an earlier provider the plan is %+v", p)
		}
		tf.Run("apply", "-auto-approve", "-input=false")
		if strings.Contains(tf.Read("terraform.tfstate"), "given_up") {
			t.Error("the state keeps what no schema has")
		}
		tf.Run("destroy", "-auto-approve", "-input=false")
	})
}

// added are the attributes and blocks that the first provider lacked, by resource.
var added = map[string][]string{
	"sandbox_environment": {
		"warm_pool", "budget", "env_passthrough", "env_blocked", "builtin_tools", "secrets", "mount", "copy", "archive", "state",
		"initial_state", "skills", "confinement", "timeouts", "post_start", "process", "post_mortem", "command_timeout",
		"image_pull", "network.allow", "network.private_cidrs",
	},
	"sandbox_container_image": {
		"source", "push", "registry_auth", "copies", "digest", "size", "layers", "build.dockerfile_inline", "build.no_cache",
		"build.builder", "build.secrets",
	},
}

// blocks are the lists that used to be blocks. Without elements, a block was empty, not null.
var blocks = []string{"mount", "copy", "post_start", "process", "registry_auth"}

// makeOlder removes from the state what the first provider lacked, and adds what providers no longer have.
func makeOlder(t *testing.T, tf *providertest.CLI) {
	t.Helper()
	var state struct {
		Version   int    `json:"version"`
		Serial    int    `json:"serial"`
		Lineage   string `json:"lineage"`
		Resources []struct {
			Mode      string           `json:"mode"`
			Type      string           `json:"type"`
			Name      string           `json:"name"`
			Provider  string           `json:"provider"`
			Instances []map[string]any `json:"instances"`
		} `json:"resources"`
	}
	if err := json.Unmarshal([]byte(tf.Read("terraform.tfstate")), &state); err != nil {
		t.Fatal(err)
	}
	dropped := 0
	for _, r := range state.Resources {
		for _, i := range r.Instances {
			attributes, _ := i["attributes"].(map[string]any)
			for _, name := range added[r.Type] {
				of := attributes
				if block, inner, nested := strings.Cut(name, "."); nested {
					of, _ = attributes[block].(map[string]any)
					name = inner
				}
				if _, has := of[name]; has {
					dropped++
				}
				delete(of, name)
				if slices.Contains(blocks, name) {
					of[name] = []any{}
				}
			}
			attributes["given_up"] = "x"
			i["schema_version"] = 0
		}
	}
	if want := len(added["sandbox_environment"]) + len(added["sandbox_container_image"]); dropped != want {
		t.Errorf("%d attributes were taken from the state, want %d", dropped, want)
	}
	older, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	tf.Write("terraform.tfstate", string(older))
}

// If an environment ends between the plan and the apply, the apply fails and says so. Terraform plans again as it
// applies, and the provider must plan the same.
func TestAccAnEnvironmentThatEndsAfterThePlan(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tf := terraform(t, w.Reconciler().Configuration+environment(w)+lease("again", `on_expiry = "recreate"`))
	tf.Run("apply", "-auto-approve", "-input=false")
	w.Condition(w.Service(), "agent.death", w.Name, "did:plc:again")
	if said := tf.Run("plan", "-input=false", "-no-color", "-out=planned"); !strings.Contains(said, "1 to change") {
		t.Errorf("no next generation is planned:\n%s", said)
	}
	w.Condition(w.Service(), "game.finished", w.Name, "")
	said := unwrapped(tf.Fail("apply", "-input=false", "-no-color", "planned"))
	if strings.Contains(said, "inconsistent") || !strings.Contains(said, "Leasing Again Failed") ||
		!strings.Contains(said, w.Name+" ended") {
		t.Errorf("the apply does not say that the environment has ended: %s", said)
	}
	p := tf.Plan()
	if len(p.Changes) != 0 {
		t.Errorf("planned %v for an environment that has ended", p.Changes)
	}
	p.Warning(t, "Leases Wait For Environment "+w.Name)
	tf.Run("destroy", "-auto-approve", "-input=false")
}
