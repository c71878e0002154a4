package environment

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
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

// A plan says nothing of a path or a URL that it does not know. It refuses one that it knows.
func TestAnUnknownPlaceIsNotRefused(t *testing.T) {
	t.Parallel()
	r := &Resource{}
	r.Provider = &configured.Provider{Embedded: true}
	for _, row := range []struct {
		place types.String
		says  []string
	}{
		{types.StringUnknown(), nil},
		{types.StringValue("/maps"), []string{
			`mount[0].source "/maps" lies in no directory`, `copy[0].source "/maps" lies in no directory`,
			`archive[0].url "/maps" is on no host`, `workspace.git.url "/maps" is on no host`,
		}},
	} {
		var diags diag.Diagnostics
		m := empty()
		m.Mounts = collection.List(t.Context(), mountAttribute(),
			[]Mount{{row.place, types.StringValue("/maps"), types.BoolValue(false)}}, &diags)
		m.Copies = collection.List(t.Context(), copyAttribute(),
			[]Copy{{row.place, types.StringValue("/workspace")}}, &diags)
		m.Archives = collection.List(t.Context(), archiveAttribute(), []Archive{{URL: row.place}}, &diags)
		m.Workspace = &Workspace{Git: &GitSource{URL: row.place}}
		diags.Append(r.checkHostPaths(t.Context(), &m)...)
		diags.Append(r.checkArchives(t.Context(), &m)...)
		diags.Append(r.checkWorkspace(&m)...)
		if len(diags) != len(row.says) {
			t.Errorf("of %s it says %v", row.place, diags)
		}
		for i, d := range diags {
			if i < len(row.says) && !strings.Contains(d.Detail(), row.says[i]) {
				t.Errorf("of %s it says %s, want %s", row.place, d.Detail(), row.says[i])
			}
		}
	}
}
