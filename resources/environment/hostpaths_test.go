package environment

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestAPlanWarnsOfWritableMountsOnce(t *testing.T) {
	t.Parallel()
	model := func(user string, mounts ...sandbox.Mount) *Model {
		m := empty()
		spec := sandbox.EnvironmentSpec{
			Image:       "player",
			HostAccess:  sandbox.HostAccess{Mounts: mounts},
			Confinement: sandbox.Confinement{User: user},
		}
		if diags := flatten(t.Context(), sandbox.Environment{ID: "catan", EnvironmentSpec: spec.WithDefaults()},
			"ledger", &m); diags.HasError() {
			t.Fatal(diags)
		}
		m.Name = types.StringValue("catan")
		return &m
	}
	writable, other := sandbox.Mount{Source: "/maps", Target: "/maps", Writable: true},
		sandbox.Mount{Source: "/saves", Target: "/saves", Writable: true}
	readOnly := sandbox.Mount{Source: "/rules", Target: "/rules"}
	for name, row := range map[string]struct {
		plan, state *Model
		says        string
	}{
		"a writable mount": {plan: model("", readOnly, writable), says: "/maps"},
		"a further writable mount": {
			plan:  model("", writable, other),
			state: model("", writable),
			says:  "/maps, /saves",
		},
		"a mount that becomes writable": {plan: model("", writable), state: model("", readOnly), says: "/maps"},
		"a mount whose user is given up": {
			plan:  model("", writable),
			state: model("1000:1000", writable),
			says:  "/maps",
		},
		"no mount":                            {plan: model("")},
		"a read-only mount":                   {plan: model("", readOnly)},
		"a writable mount that is there":      {plan: model("", writable, readOnly), state: model("", writable)},
		"a writable mount with a user":        {plan: model("1000:1000", writable)},
		"a writable mount that becomes other": {plan: model("", readOnly), state: model("", writable)},
	} {
		diags := row.plan.planMounts(t.Context(), row.state)
		if row.says == "" {
			if len(diags) != 0 {
				t.Errorf("%s: %v", name, diags)
			}
			continue
		}
		if len(diags) != 1 || diags.HasError() || !strings.Contains(diags[0].Summary(), "Environment catan") ||
			!strings.Contains(diags[0].Detail(), row.says+" only where") {
			t.Errorf("%s: %v", name, diags)
		}
	}
}
