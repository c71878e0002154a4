package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Without a reconciler, each run of Terraform first removes the sandboxes of ended leases, including earlier
// generations. So no sandbox outlives its lease past the next run.
func TestAccWithoutAReconcilerARunRemovesWhatHasExpired(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	var before []string
	keep, again := w.Embedded()+leased(w, "ttl = \"1h\""), w.Embedded()+leased(w, "ttl = \"1h\"\n  on_expiry = \"recreate\"")
	expire := func() {
		if before = w.Containers(w.Name); len(before) == 0 {
			t.Error("the lease has no sandbox, so the test sees nothing")
		}
		ttl := sandbox.Duration(time.Second)
		_, err := w.Service().Renew(w.Context(), sandbox.Renew{
			LeaseRef: sandbox.LeaseRef{ID: sandbox.LeaseID(agent, w.Name)}, Settings: &sandbox.LeaseSettings{TTL: &ttl}})
		if err != nil && sandbox.CodeOf(err) != sandbox.LeaseEnded {
			t.Error(err)
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // leases use the machine's clock
	}
	removed := func() {
		for _, c := range w.Containers(w.Name) {
			if slices.Contains(before, c) {
				t.Errorf("the sandbox of a lease that has expired is left: %s", c)
			}
		}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             gone(w),
		Steps: []resource.TestStep{
			{Config: keep},
			{PreConfig: expire, Config: keep, PlanOnly: true},
			{
				PreConfig: removed, Config: again,
				ConfigStateChecks: []statecheck.StateCheck{value("generation", knownvalue.Int64Exact(2))},
			},
			{
				PreConfig: expire, Config: again,
				ConfigStateChecks: []statecheck.StateCheck{value("generation", knownvalue.Int64Exact(3))},
			},
			{PreConfig: removed, Config: again, PlanOnly: true},
		},
	})
}
