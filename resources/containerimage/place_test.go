package containerimage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// An image moves in place between the engine and the registry, and leaves no tag on the engine. What was pushed stays.
// The plan need not know the source or push.
func TestAccContainerImageMovesInPlace(t *testing.T) {
	t.Parallel()
	const (
		pulled = "source = { reference = %q }"
		late   = "resource \"terraform_data\" \"late\" {}\n"
		// The first is null at apply, the second is not.
		neither = "source = terraform_data.late.id == \"\" ? { reference = \"none\" } : null"
		lateRef = "source = terraform_data.late.id == \"\" ? null : { reference = %q }"
	)
	for name, tt := range map[string]struct {
		from, to string
		places   []string
	}{
		"to the registry":              {pulled, "push = true\n" + pulled, []string{"registry"}},
		"to the engine":                {"push = true\n" + pulled, pulled, []string{"engine"}},
		"to the registry, known late":  {pulled, "push = true\n" + lateRef, []string{"registry"}},
		"by a push that is known late": {pulled, "push = terraform_data.late.id != \"\"\n" + pulled, []string{"registry"}},
		"without a source after all":   {pulled, "push = true\n" + neither, []string{"engine", "registry"}},
		"off the registry after all":   {"push = true\n" + pulled, "push = true\n" + neither, []string{"engine", "registry"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			from, to := newShelf(t, w, registrytest.Options{}), newShelf(t, w, registrytest.Options{})
			from.put(t, "v1", "")
			conf := func(more string) string {
				if !strings.HasSuffix(more, neither) {
					more = fmt.Sprintf(more, from.name+":v1")
				}
				return w.Embedded() + late + fmt.Sprintf("resource \"sandbox_container_image\" \"test\" {\n  name = %q\n  %s\n}\n",
					to.name, more)
			}
			engineHas := func() bool {
				_, err := w.Docker.ImageInspect(t.Context(), to.name+":latest")
				return err == nil
			}
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				Steps: []resource.TestStep{
					{Config: w.Embedded() + fmt.Sprintf("resource \"sandbox_container_image\" \"test\" {\n  name = %q\n  %s\n}\n",
						to.name, fmt.Sprintf(tt.from, from.name+":v1"))},
					{
						Config: conf(tt.to), ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
						ConfigStateChecks: []statecheck.StateCheck{copies(tt.places...), value("reference", knownvalue.NotNull())},
					},
					{
						PreConfig: func() {
							if has, want := engineHas(), tt.places[0] == "engine"; has != want {
								t.Errorf("the engine has the tag: %t", has)
							}
							if to.digest("latest") == "" && (tt.places[0] == "registry" || len(tt.places) == 2) {
								t.Error("the registry does not have the tag")
							}
						},
						Config: conf(tt.to), PlanOnly: true,
					},
				},
			})
		})
	}
}
