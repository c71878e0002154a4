package containerimage_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/compare"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// A moved block leads from either name of the resource to the other, and nothing is built again.
func TestAccContainerImageIsMovedBetweenItsNames(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	long := built(w, player(t, w.Name), "", "")
	short := strings.Replace(long, `"sandbox_container_image" "test" {`,
		"\"container_image\" \"test\" {\n  provider = sandbox", 1)
	const shortAddress = "container_image.test"
	moved := func(from, to string) string {
		return "moved {\n  from = " + from + "\n  to   = " + to + "\n}\n"
	}
	nothing := resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}
	same, id := statecheck.CompareValue(compare.ValuesSame()), tfjsonpath.New("image_id")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             removed(w, w.Name+":latest"),
		Steps: []resource.TestStep{
			{Config: short, ConfigStateChecks: []statecheck.StateCheck{same.AddStateValue(shortAddress, id)}},
			{
				Config: long + moved(shortAddress, address), ConfigPlanChecks: nothing,
				ConfigStateChecks: []statecheck.StateCheck{same.AddStateValue(address, id)},
			},
			{
				Config: short + moved(address, shortAddress), ConfigPlanChecks: nothing,
				ConfigStateChecks: []statecheck.StateCheck{same.AddStateValue(shortAddress, id)},
			},
		},
	})
}
