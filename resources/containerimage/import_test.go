package containerimage_test

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	containerregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// The provider did not push an image that the engine only pulled. Its import plans nothing and asks no registry, and
// a destroy removes it from the engine alone.
func TestAccContainerImageThatWasPulledIsImported(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		start     func(*testing.T, *providertest.World) *shelf
		onDestroy string
	}{
		"untag, from a registry that removes tags": {thatRemovesTags, "untag"},
		"delete": {func(t *testing.T, w *providertest.World) *shelf {
			return newShelf(t, w, registrytest.Options{})
		}, "delete"},
		"without a login": {func(t *testing.T, w *providertest.World) *shelf {
			return newShelf(t, w, registrytest.Options{Auth: true})
		}, "untag"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			s := tt.start(t, w)
			s.pull(t, "v1")
			conf := s.named(adopted(w, `tags = ["v1"]`))
			chosen := s.named(adopted(w, fmt.Sprintf("tags = [\"v1\"]\n  on_destroy = %q", tt.onDestroy)))
			onlyOnEngine := []statecheck.StateCheck{
				copies("engine"), value("push", knownvalue.Bool(false)), value("digest", knownvalue.Null()),
				value("reference", aDigest), value("context_hash", knownvalue.Null()),
			}
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy: func(*terraform.State) error {
					if onEngine(w, s.name+":v1") != "" {
						return fmt.Errorf("the engine still has the image")
					}
					if s.digest("v1") == "" {
						return fmt.Errorf("the registry no longer has the tag")
					}
					return nil
				},
				Steps: []resource.TestStep{
					{
						Config: conf, ResourceName: address, ImportState: true, ImportStateId: s.name + ":v1",
						ImportStatePersist: true,
					},
					{
						Config: conf, ConfigStateChecks: onlyOnEngine,
						ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
					},
					{Config: chosen, ConfigStateChecks: onlyOnEngine},
				},
			})
		})
	}
}

// thatRemovesTags returns a shelf in a registry that removes single tags, which Docker's before version 3 does not.
func thatRemovesTags(t *testing.T, w *providertest.World) *shelf {
	t.Helper()
	server := httptest.NewServer(containerregistry.New(containerregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	return &shelf{Registry: &registrytest.Registry{Host: host}, w: w, client: registry.New(nil), name: host + "/" + w.Name}
}

// pull makes the engine pull an image of someone else, which no provider built, under the shelf's name.
func (s *shelf) pull(t *testing.T, tag string) {
	t.Helper()
	ref := s.name + ":" + tag
	img, err := random.Image(100, 1)
	s.w.Must(err)
	s.w.Must(s.client.Push(t.Context(), ref, img))
	auth, err := s.client.EngineAuth(t.Context(), s.name)
	s.w.Must(err)
	_, err = image.NewBuilder(func() (image.Engine, error) { return s.w.Docker, nil }).Pull(t.Context(), ref, auth)
	s.w.Must(err)
}
