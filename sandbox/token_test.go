package sandbox_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Two sets of patterns have the same key only if they are equal.
func TestKeysOfStatesTellSetsOfPatternsApart(t *testing.T) {
	t.Parallel()
	key := func(patterns ...string) string {
		tenant := &sandbox.Tenant{Environments: patterns}
		return (&sandbox.SnapshotSpec{Scope: sandbox.ScopeAgent}).Key("did:plc:ann", "catan-1", tenant.SnapshotNamespace())
	}
	if a, b := key("rpg-*", "catan-*", "rpg-*"), key("catan-*", "rpg-*"); a != b || a != "did:plc:ann@catan-*,rpg-*" {
		t.Errorf("one set has the keys %q and %q", a, b)
	}
	long := strings.Repeat("a", 600)
	keys := []string{
		"did:plc:ann", key("a", "b*"), key("a,b*"), key("a%2Cb*"), key("a"), key("b*"), key("catan-1"), key(long),
		key(long + "b"), key(long, "b"),
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(keys))); len(distinct) != len(keys) {
		t.Errorf("of %d sets, these are the keys: %q", len(keys), distinct)
	}
	for _, k := range keys {
		if len(k) > 1000 {
			t.Errorf("a key has %d bytes", len(k))
		}
	}
	own := (&sandbox.SnapshotSpec{Scope: sandbox.ScopeAgentEnvironment}).Key("did:plc:ann", "catan-1",
		sandbox.SnapshotNamespace{"catan-*"})
	if own != sandbox.LeaseID("did:plc:ann", "catan-1") {
		t.Errorf("in its environment alone it is %q", own)
	}
}

// On Docker a ceiling allows more than the default size, on Cloudflare the default.
func TestACeilingBoundsTheSize(t *testing.T) {
	t.Parallel()
	tenant := &sandbox.Tenant{Name: "b", Environments: []string{"b*"}}
	basic, _ := sandbox.ResourcesOf("basic")
	for backend, most := range map[sandbox.Backend]sandbox.Resources{
		sandbox.Docker: sandbox.FormerDefaultResources, sandbox.Cloudflare: basic,
	} {
		spec := sandbox.EnvironmentSpec{Backend: backend, Image: "i"}.WithDefaults()
		if err := tenant.Check(spec); err != nil {
			t.Errorf("the defaults on %s: %v", backend, err)
		}
		spec.Resources = most
		if err := tenant.Check(spec); err != nil {
			t.Errorf("the largest size on %s: %v", backend, err)
		}
		spec.Resources.MemoryMB++
		if err := tenant.Check(spec); sandbox.ReasonOf(err) != sandbox.ReasonCeilingExceeded {
			t.Errorf("more than the largest size on %s: %v", backend, err)
		}
	}
	if err := (*sandbox.Tenant)(nil).
		Check(sandbox.EnvironmentSpec{Network: sandbox.NetworkFull}.WithDefaults()); err != nil {
		t.Errorf("the operator: %v", err)
	}
}

func TestACeilingCountsInPlainWords(t *testing.T) {
	t.Parallel()
	one := &sandbox.Tenant{Name: "team", Environments: []string{"a-*"}, Ceiling: sandbox.Ceiling{Environments: 1, Leases: 2}}
	for want, err := range map[string]error{
		"already match 1 environment, and": one.CheckEnvironments(1),
		"has 2 leases whose":               one.CheckLeases(2),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want one with %q", err, want)
		}
	}
}
