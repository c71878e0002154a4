package environment_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// memoryPrices charge $0.001 per GiB-hour.
const memoryPrices = `{
  "name": "own", "source": "test", "as_of": "2026-08-21",
  "memory_gib_second_usd": "0.000000278", "cpu_second_usd": "0", "disk_gb_second_usd": "0"
}`

// TestAccEnvironmentKeepsTheFormerDefaultSize: the default size became smaller. An environment whose configuration
// names no size plans nothing, keeps its size through other changes, and is estimated at that size. A size that the
// configuration no longer names becomes the default.
func TestAccEnvironmentKeepsTheFormerDefaultSize(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	former := sandbox.FormerDefaultResources
	config := func(more string) string { return priced(w, memoryPrices) + minimal(w, "expected_usage = {}\n"+more) }
	stores := func(change func(r *sandbox.Resources)) func() { // as an earlier build stored it
		return func() {
			env, err := w.Service().GetEnvironment(t.Context(), w.Name)
			w.Must(err)
			change(&env.Resources)
			_, err = w.Service().PutEnvironment(t.Context(),
				sandbox.PutEnvironment{ID: env.ID, Owner: env.Owner, EnvironmentSpec: env.EnvironmentSpec})
			w.Must(err)
		}
	}
	has := func(want sandbox.Resources) resource.TestCheckFunc {
		return func(*terraform.State) error {
			env, err := w.Service().GetEnvironment(t.Context(), w.Name)
			if err == nil && env.Resources != want {
				t.Errorf("the environment has the size %+v, want %+v", env.Resources, want)
			}
			return err
		}
	}
	large, small := text("2.88"), text("0.36") // 720 hours of 4 GiB, and of 512 MiB
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{
				Config: config(""), Check: has(sandbox.DefaultResources),
				ConfigStateChecks: []statecheck.StateCheck{value("estimated_monthly_cost_usd", small)},
			},
			{ // the state gets the estimate that an earlier build planned
				PreConfig: stores(func(r *sandbox.Resources) { *r = former }), Config: config(""), Check: has(former),
				ConfigStateChecks: []statecheck.StateCheck{value("estimated_monthly_cost_usd", large)},
			},
			{Config: config(""), PlanOnly: true},
			{
				Config: config("ttl = \"1h\""), Check: has(former),
				ConfigStateChecks: []statecheck.StateCheck{
					value("resources", knownvalue.Null()), value("estimated_monthly_cost_usd", large),
				},
			},
			{Config: config("resources = {\n memory_mb = 4096\n cpus = 2\n}"), Check: has(former)},
			{
				Config: config(""), Check: has(sandbox.DefaultResources),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate),
				}},
				ConfigStateChecks: []statecheck.StateCheck{value("estimated_monthly_cost_usd", small)},
			},
			{Config: config("resources = {\n memory_mb = 1024\n}")},
			{ // a size that is named in part
				PreConfig: stores(func(r *sandbox.Resources) { r.CPUMillis = former.CPUMillis }),
				Config:    config("resources = {\n memory_mb = 1024\n}"), PlanOnly: true,
			},
		},
	})
}
