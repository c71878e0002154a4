package providertest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
)

// blamed is the resource in Terraform's text of an error.
var blamed = regexp.MustCompile(`in resource "(\w+)" "(\w+)"`)

// PlanErrors plans a configuration with many resources, and returns the errors of each by its address. Terraform plans
// no resource unless all are valid, so then it finds only what is invalid.
func (w *World) PlanErrors(t *testing.T, config string) map[string]string {
	t.Helper()
	errors := map[string]string{}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		ErrorCheck: func(err error) error {
			for _, e := range strings.Split(err.Error(), "\nError: ")[1:] {
				if m := blamed.FindStringSubmatch(e); m != nil {
					errors[m[1]+"."+m[2]] += e
				}
			}
			return nil
		},
		Steps: []resource.TestStep{{PlanOnly: true, Config: config}},
	})
	return errors
}
