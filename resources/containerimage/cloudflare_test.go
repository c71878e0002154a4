package containerimage_test

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	containerregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// An image is pushed to the registry of the provider's Cloudflare account, refreshed and removed there without any
// password.
func TestAccContainerImageOnCloudflare(t *testing.T) {
	t.Parallel()
	const account = "0123456789abcdef0123456789abcdef"
	w := providertest.New(t)
	api := localapi.New(localapi.Config{Token: "the-token"})
	cloud := httptest.NewServer(api)
	t.Cleanup(cloud.Close)
	from := httptest.NewServer(containerregistry.New(containerregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(from.Close)
	put := func(tag string) string {
		img, err := random.Image(100, 1)
		w.Must(err)
		ref, err := name.ParseReference(strings.TrimPrefix(from.URL, "http://") + "/games/player:" + tag)
		w.Must(err)
		w.Must(remote.Write(ref, img))
		return ref.String()
	}
	first, second := put("v1"), put("v2")
	to := strings.TrimPrefix(cloud.URL, "http://") + "/" + account + "/player"
	conf := func(token, source, more string) string {
		block := fmt.Sprintf("provider \"sandbox\" {\n  cloudflare = {\n    account_id = %q\n    api_token = %q\n"+
			"    api_base_url = %q\n  }\n}\n", account, token, cloud.URL+"/client/v4")
		return block + fmt.Sprintf(`
resource "sandbox_container_image" "test" {
  name       = %q
  push       = true
  on_destroy = "delete"
  source = {
    reference = %q
  }
  %s
}
`, to, source, more)
	}
	kept := func(source, more string) string {
		return strings.Replace(conf("the-token", source, more), `on_destroy = "delete"`, `on_destroy = "keep"`, 1)
	}
	reference := value("reference",
		knownvalue.StringRegexp(regexp.MustCompile("^"+regexp.QuoteMeta(to)+"@sha256:[0-9a-f]{64}$")))
	has := func(n int) func() {
		return func() {
			api.RevokeCredentials() // of earlier steps
			if images := api.Images(); len(images) != n {
				t.Errorf("the account's registry has %v, not %d images", images, n)
			}
		}
	}
	// A reconciler changes nothing for images: the registry is that of the provider's account.
	reconciler := strings.TrimSuffix(w.Reconciler().Configuration, "}\n")
	beside := func(configuration string) string {
		return strings.Replace(configuration, "provider \"sandbox\" {\n", reconciler, 1)
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy: func(*terraform.State) error {
			if left := api.Images(); len(left) > 0 {
				return fmt.Errorf("the account's registry still has %v", left)
			}
			return nil
		},
		Steps: []resource.TestStep{
			{Config: conf("another-token", first, ""), ExpectError: regexp.MustCompile(`CLOUDFLARE_API_TOKEN`)},
			{Config: conf("the-token", first, ""), ConfigStateChecks: []statecheck.StateCheck{reference, copies("registry")}},
			{PreConfig: has(1), Config: conf("the-token", first, ""), PlanOnly: true},
			{PreConfig: has(1), Config: beside(conf("the-token", first, "")), PlanOnly: true},
			{
				Config:           beside(conf("the-token", first, `tags = ["latest", "v1"]`)),
				ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			},
			{PreConfig: has(2), Config: conf("the-token", second, ""), ConfigPlanChecks: action(plancheck.ResourceActionUpdate)},
			{PreConfig: has(1), Config: conf("the-token", second, ""), PlanOnly: true},
			{Config: kept(second, `tags = ["latest", "v2"]`)},
			{PreConfig: has(2), Config: kept(first, `tags = ["latest", "v3"]`)},
			{
				PreConfig: func() {
					if images := api.Images(); !slices.Contains(images, account+"/player:v2") {
						t.Errorf("the account's registry has %v, without the tag of an image that is kept", images)
					}
				},
				Config: conf("the-token", second, `tags = ["latest", "v2"]`), // removes v3
			},
		},
	})
}
