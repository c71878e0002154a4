package sandbox_test

import (
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestImagePull(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		backend sandbox.Backend
		pull    sandbox.ImagePull
		problem string
	}{
		"default":               {sandbox.Docker, "", ""},
		"missing":               {sandbox.Docker, sandbox.PullMissing, ""},
		"unknown":               {sandbox.Docker, "always", `image_pull: must be never or missing, not "always"`},
		"default on Cloudflare": {sandbox.Cloudflare, "", ""},
		"missing on Cloudflare": {sandbox.Cloudflare, sandbox.PullMissing, "image_pull: must not be missing on Cloudflare"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := sandbox.EnvironmentSpec{Image: "player", Backend: c.backend, ImagePull: c.pull}.WithDefaults().Validate()
			switch {
			case c.problem == "" && err != nil:
				t.Error(err)
			case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
				t.Errorf("got %v, want %q", err, c.problem)
			}
		})
	}
}
