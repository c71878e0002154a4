package environment

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Values from the ledger survive the round trip through the state.
func TestFlattenAndExpandAreInverse(t *testing.T) {
	t.Parallel()
	never := sandbox.Duration(0)
	specs := map[string]sandbox.EnvironmentSpec{
		"defaults": {Image: "player"},
		"all": {
			Type: sandbox.TypeRPG, Image: "sha256:1", Network: sandbox.NetworkNone, SleepMode: sandbox.SleepStop,
			Resources: sandbox.Resources{MemoryMB: 100, CPUMillis: 333, PIDs: 77, DiskMB: 2000},
			TTL:       sandbox.Duration(90 * time.Minute), MaxLifetime: sandbox.Duration(time.Hour), SleepAfter: &never,
			ExpiryConditions: []string{"a.b", "c.d"}, Env: map[string]string{"A": "1"}, Labels: map[string]string{"b": "2"},
			HostAccess: sandbox.HostAccess{
				EnvPassthrough: []string{"HOME", "PATH"}, EnvBlocked: []string{"X"},
				Mounts: []sandbox.Mount{{Source: "/maps", Target: "/maps", Writable: true}, {Source: "/rules", Target: "/rules"}},
				Copies: []sandbox.Copy{{Source: "/maps", Target: "/workspace/maps"}},
			},
			Archives: []sandbox.Archive{
				{URL: "https://bucket.example.com/a.tar", SHA256: strings.Repeat("a", 64), Target: "/workspace"},
				{
					URL: "https://bucket.example.com/b.tar", SHA256: strings.Repeat("b", 64), Target: "/workspace/b", Credential: "a",
					Header: "X-Key",
				},
			},
			BuiltinTools: []string{"git", "uv"}, Secrets: []string{"a", "b.txt"},
			PostMortem: &never,
			Snapshot: &sandbox.SnapshotSpec{
				Scope:            sandbox.ScopeAgent,
				CheckpointEvery:  &never,
				OnPersistFailure: sandbox.PersistDiscard,
				RetryFor:         sandbox.Duration(time.Hour),
				SizeLimitMB:      3,
			},
			InitialData: map[string]string{"a": "1"}, Skills: map[string]string{"b": "2"},
			Confinement: sandbox.Confinement{
				User:           "0:7",
				AllowRoot:      true,
				Runtime:        "runsc",
				SeccompProfile: "{}",
				TmpMB:          1,
				RunMB:          2,
				OpenFiles:      99,
				DiskLimit:      sandbox.DiskEnforced,
			},
			PostStart: []sandbox.PostStart{
				{Command: []string{"a", ""}, Env: map[string]string{"A": "1"}, User: "7", Timeout: sandbox.Duration(time.Minute)},
				{Command: []string{"b"}},
			},
			Processes: []sandbox.ProcessSpec{
				{
					Name:    "a",
					Command: []string{"a"},
					Env:     map[string]string{"A": "1"},
					Cwd:     "/data",
					User:    "7",
					Restart: sandbox.RestartAlways,
				},
				{Name: "b", Command: []string{"b"}, Restart: sandbox.RestartNo},
			},
			WarmPool: &sandbox.WarmPool{Size: 3, TTL: sandbox.Duration(time.Hour), Paused: true},
			Budget:   &sandbox.Budget{Monthly: 1234567890},
		},
		"an egress": {Image: "player", Network: sandbox.NetworkRestricted, Egress: &sandbox.Egress{
			Allow:        []sandbox.EgressRule{{Host: "*.example.com"}, {Host: "model.internal", Ports: []int{8080, 8443}}},
			PrivateCIDRs: []string{"10.20.0.0/16"},
		}},
		"an egress that lets out nothing": {
			Image:   "player",
			Network: sandbox.NetworkRestricted,
			Egress:  &sandbox.Egress{Allow: []sandbox.EgressRule{}},
		},
		"a named size": {Image: "player", Resources: sandbox.InstanceTypes[1].Resources},
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := spec.WithDefaults()
			m := empty()
			if diags := flatten(t.Context(), sandbox.Environment{ID: "catan-7", Owner: "o", EnvironmentSpec: spec, Epoch: 3},
				"ledger", &m); diags.HasError() {
				t.Fatal(diags)
			}
			got, diags := expand(t.Context(), m)
			if diags.HasError() {
				t.Fatal(diags)
			}
			if diff := cmp.Diff(want, got.WithDefaults()); diff != "" {
				t.Error(diff)
			}
			if m.Epoch.ValueInt64() != 3 || m.LedgerID.ValueString() != "ledger" || m.Owner.ValueString() != "o" {
				t.Errorf("got %+v", m)
			}
		})
	}
}

func empty() Model {
	return Model{
		ExpiryConditions: types.SetNull(types.StringType),
		Env:              types.MapNull(types.StringType),
		Labels:           types.MapNull(types.StringType),
	}
}

// The state keeps the form in which the configuration gives a size while the size stays the same.
func TestSizeKeepsItsForm(t *testing.T) {
	t.Parallel()
	basic, _ := sandbox.ResourcesOf("basic")
	figures := func(r sandbox.Resources) *Size {
		return &Size{
			types.Int64Value(r.MemoryMB), types.Float64Value(float64(r.CPUMillis) / 1000), types.Int64Value(r.PIDs),
			types.Int64Value(r.DiskMB),
		}
	}
	tests := map[string]struct {
		before   Model
		now      sandbox.Resources
		name     string // the instance type afterwards
		hasBlock bool
	}{
		"by name":                 {Model{InstanceType: types.StringValue("basic")}, basic, "basic", false},
		"by figures":              {Model{Resources: figures(basic)}, basic, "", true},
		"by default":              {Model{}, sandbox.DefaultResources, "", false},
		"changed to a named size": {Model{Resources: figures(sandbox.DefaultResources)}, basic, "basic", false},
		"changed to the default":  {Model{InstanceType: types.StringValue("basic")}, sandbox.DefaultResources, "", false},
		"changed to another size": {Model{InstanceType: types.StringValue("basic")},
			sandbox.Resources{MemoryMB: 99, CPUMillis: 50, PIDs: 32, DiskMB: 1024}, "", true},
		"changed from the default": {Model{}, basic, "basic", false},
		"former default by figures": {Model{Resources: figures(sandbox.FormerDefaultResources)},
			sandbox.FormerDefaultResources, "", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := tt.before
			m.flattenResources(sandbox.EnvironmentSpec{Resources: tt.now})
			if m.InstanceType.ValueString() != tt.name || (m.Resources != nil) != tt.hasBlock {
				t.Errorf("got instance_type %s, resources %+v", m.InstanceType, m.Resources)
			}
			if got := (sandbox.EnvironmentSpec{Resources: expandResources(m)}).WithDefaults().Resources; got != tt.now {
				t.Errorf("the state means %+v, not %+v", got, tt.now)
			}
		})
	}
}

// The state keeps the form in which the configuration names hosts while the hosts stay the same.
func TestNetworkKeepsItsForm(t *testing.T) {
	t.Parallel()
	set := func(texts ...string) types.Set {
		s, _ := types.SetValueFrom(t.Context(), types.StringType, texts)
		return s
	}
	m := empty()
	m.Network = &Network{
		Mode:         types.StringValue("restricted"),
		Allow:        set("b.example", "a.example:443", "b.example:8080"),
		PrivateCIDRs: types.SetNull(types.StringType),
	}
	spec, diags := expand(t.Context(), m)
	want := []sandbox.EgressRule{{Host: "a.example", Ports: []int{443}}, {Host: "b.example", Ports: []int{80, 443, 8080}}}
	if diags.HasError() || !spec.Egress.Equal(sandbox.Egress{Allow: want}) {
		t.Fatalf("it asks for %+v, %v", spec.Egress, diags)
	}
	before := *m.Network
	if diags := m.flattenNetwork(t.Context(), spec); diags.HasError() || !m.Network.Allow.Equal(before.Allow) {
		t.Errorf("unchanged, it became %s, %v", m.Network.Allow, diags)
	}
	spec.Egress.Allow = spec.Egress.Allow[1:]
	if diags := m.flattenNetwork(t.Context(), spec); diags.HasError() ||
		!m.Network.Allow.Equal(set("b.example:80", "b.example:443", "b.example:8080")) {
		t.Errorf("changed behind its back, it is %s, %v", m.Network.Allow, diags)
	}
}
