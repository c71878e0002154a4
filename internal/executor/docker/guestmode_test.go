package docker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// TestGuestsOfEarlierReleasesAreHidden: earlier releases let the code of a sandbox read the guest, and so trace it.
func TestGuestsOfEarlierReleasesAreHidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawn(t)
	c, err := dockertest.Engine(t).ContainerInspect(t.Context(), name(h))
	must(t, err)
	for _, m := range c.Mounts {
		if m.Destination == guest.Dir {
			must(t, os.Chmod(filepath.Join(m.Source, filepath.Base(guest.Path)), 0o755)) //nolint:gosec // as it was
		}
	}
	if got := w.exec(t, h, "stat", "-c", "%a", guest.Path); got != "755\n" {
		t.Fatalf("before, the mode is %q", got)
	}
	must(t, w.x.Provision(t.Context(), w.ref, w.environment()))
	if got := w.exec(t, h, "stat", "-c", "%a", guest.Path); got != "711\n" {
		t.Errorf("after the environment was put, the mode is %q", got)
	}
}
