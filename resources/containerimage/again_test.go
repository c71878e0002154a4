package containerimage_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// With create_before_destroy, an image may be replaced by an equal one. Destroying the earlier one leaves what the
// later one has.
func TestAccContainerImageThatIsReplacedByItself(t *testing.T) {
	t.Parallel()
	for _, onDestroy := range []string{"untag", "delete"} {
		t.Run(onDestroy, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			s := newShelf(t, w, registrytest.Options{})
			dir, first := player(t, w.Name), s.name
			conf := func(name, tags string) string {
				s.name = name
				return s.named(built(w, dir, "", fmt.Sprintf("push = true\non_destroy = %q\ntags = %s\n"+
					"lifecycle {\n create_before_destroy = true\n}\n", onDestroy, tags)))
			}
			replaced := action(plancheck.ResourceActionReplace)
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             removed(w, first+":v1", first+":v2", first+"-2:v1"),
				Steps: []resource.TestStep{
					{Config: conf(first, `["v1", "v2"]`)},
					{Config: conf(first, `["v1"]`), Taint: []string{address}, ConfigPlanChecks: replaced},
					{Config: conf(first, `["v1"]`), PlanOnly: true, PreConfig: func() {
						if onEngine(w, first+":v2") != "" {
							t.Error("the engine has a tag that only the earlier image had")
						}
					}},
					{Config: conf(first+"-2", `["v1"]`), ConfigPlanChecks: replaced},
					{Config: conf(first+"-2", `["v1"]`), PlanOnly: true, PreConfig: func() {
						if onEngine(w, first+":v1") != "" {
							t.Error("the engine has the earlier name")
						}
					}},
				},
			})
		})
	}
}
