package environment

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The data source shows settings in the form of the resource's blocks, even for environments that Terraform did not
// create. It shows the hosts that a restricted sandbox reaches, even the default ones.
func TestSettingsAreShownInTheResourcesWords(t *testing.T) {
	t.Parallel()
	every := sandbox.Duration(60e9)
	spec := sandbox.EnvironmentSpec{
		Snapshot:   &sandbox.SnapshotSpec{CheckpointEvery: &every, SizeLimitMB: 7},
		HostAccess: sandbox.HostAccess{Mounts: []sandbox.Mount{{Source: "/srv/maps", Target: "/maps"}}},
	}.WithDefaults()
	got, diags := SettingsOf(t.Context(), spec)
	if diags.HasError() {
		t.Fatal(diags)
	}
	if got.Snapshot == nil || got.Snapshot.SizeLimitMB.ValueInt64() != 7 ||
		got.Snapshot.CheckpointEvery.ValueString() != "1m" || got.Snapshot.Scope.ValueString() == "" {
		t.Errorf("the state is %+v", got.Snapshot)
	}
	var mounts []Mount
	if diags := got.Mounts.ElementsAs(t.Context(), &mounts, false); diags.HasError() || len(mounts) != 1 ||
		mounts[0].Target.ValueString() != "/maps" || mounts[0].Writable.ValueBool() {
		t.Errorf("the mounts are %v, %v", got.Mounts, diags)
	}
	if n := len(got.Allow.Elements()); n != len(sandbox.DefaultEgress().Allow) || len(got.PrivateCIDRs.Elements()) != 0 {
		t.Errorf("allowed are %v and %v", got.Allow, got.PrivateCIDRs)
	}
	if got.Confinement != nil || !got.Skills.Equal(types.MapNull(types.StringType)) ||
		got.PostMortem.ValueString() != "1h" {
		t.Errorf("default settings are shown as %v, %v and %v", got.Confinement, got.Skills, got.PostMortem)
	}
}
