package image_test

import (
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Both builders pull a base image with the credentials of its registry.
func TestABaseImageThatNeedsAPassword(t *testing.T) {
	byEach(t, func(t *testing.T, kind string) {
		r := registrytest.Start(t, registrytest.Options{Auth: true})
		login := registry.New(map[string]registry.Credentials{
			r.Host: {Username: registrytest.Username, Password: registrytest.Password},
		})
		base := r.Host + "/base:v1"
		pushBase(t, login, base)
		cli := engine(t)
		b := builder(t, cli)
		spec, _ := unique(t)
		spec.Builder, spec.Inline = kind, "FROM "+base+"\nCOPY id.txt /\n"

		for what, registries := range map[string]*registry.Client{
			"no credentials": nil,
			"wrong ones": registry.New(map[string]registry.Credentials{
				r.Host: {Username: registrytest.Username, Password: "opensesame"},
			}),
		} {
			spec.Registries = registries
			if _, err := b.Build(t.Context(), spec, mustHash(t, spec), nil); sandbox.CodeOf(err) != sandbox.Failed {
				t.Errorf("with %s: %v", what, err)
			}
		}
		spec.Registries = login
		build(t, b, spec)
		if kind == image.Classic { // the classic builder keeps what it pulled
			must(t, b.Delete(t.Context(), base))
		}
	})
}

// pushBase pushes a small image for the engine's platform that no other test has.
func pushBase(t *testing.T, c *registry.Client, ref string) {
	t.Helper()
	img, err := random.Image(64, 1)
	must(t, err)
	config, err := img.ConfigFile()
	must(t, err)
	config.OS, config.Architecture = "linux", runtime.GOARCH
	img, err = mutate.ConfigFile(img, config)
	must(t, err)
	parsed, err := name.ParseReference(ref)
	must(t, err)
	must(t, remote.Write(parsed, img, remote.WithAuthFromKeychain(c), remote.WithContext(t.Context())))
}
