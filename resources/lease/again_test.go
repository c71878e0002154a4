package lease_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// inEpoch is a configuration whose environment is in an epoch.
func inEpoch(config string, epoch int) string {
	return strings.Replace(config, "  type  = \"rpg\"\n", fmt.Sprintf("  type  = \"rpg\"\n  epoch = %d\n", epoch), 1)
}

// A lease that is to be leased again waits, with its end in the state, while its environment has ended. The plan that
// reopens the environment leases it again.
func TestAccLeaseWaitsForItsEnvironment(t *testing.T) {
	t.Parallel()
	providertest.OverBothServices(t, func(t *testing.T, w *providertest.World, provider string) {
		config := provider + leased(w, `on_expiry = "recreate"`)
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             gone(w),
			Steps: []resource.TestStep{
				{Config: config},
				{
					PreConfig: func() { w.Condition(w.Service(), "game.finished", w.Name, "") },
					Config:    config,
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectEmptyPlan(), planned("ended_by", text("condition")),
					}},
					ConfigStateChecks: []statecheck.StateCheck{
						value("generation", knownvalue.Int64Exact(1)), value("ended_by", text("condition")),
					},
				},
				{
					Config:           inEpoch(config, 1),
					ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
					ConfigStateChecks: []statecheck.StateCheck{
						value("generation", knownvalue.Int64Exact(2)), value("status", text("active")),
						value("ended_by", knownvalue.Null()), value("end_reason", knownvalue.Null()),
					},
				},
				{Config: inEpoch(config, 1), PlanOnly: true},
			},
		})
	})
}

// A lease that is kept comes back with every new epoch of its environment, where its lifecycle says so.
func TestAccKeptLeaseComesBackWithANewEpoch(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	config := w.Embedded() +
		leased(w, "lifecycle {\n    replace_triggered_by = [sandbox_environment.test.epoch]\n  }")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             gone(w),
		Steps: []resource.TestStep{
			{Config: config},
			{
				PreConfig: func() { w.Condition(w.Service(), "game.finished", w.Name, "") },
				Config:    config,
				ConfigPlanChecks: resource.ConfigPlanChecks{
					PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
				},
			},
			{
				Config:           inEpoch(config, 1),
				ConfigPlanChecks: action(plancheck.ResourceActionReplace),
				ConfigStateChecks: []statecheck.StateCheck{
					value("generation", knownvalue.Int64Exact(2)), value("status", text("active")),
				},
			},
		},
	})
}
