package deploy_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
)

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		names = append(names, f.Name())
	}
	return names
}

// images returns the tags of a deployment in the registry.
func (w *world) images(of string) (all []string) {
	for _, image := range w.api.Images() {
		if strings.Contains(image, of+".") {
			all = append(all, image)
		}
	}
	return all
}

// TestADeploymentHasTwoImagesAtMost: its current image, and the previous one, from which instances start until the
// rollout reaches them.
func TestADeploymentHasTwoImagesAtMost(t *testing.T) {
	t.Parallel()
	w, o := newWorld(t), newOrigin(t)
	d := wanted()
	var all []string
	for _, says := range []string{"first", "second", "third"} {
		d.Image = w.prepare(d.Name, o.putGame(says)).Reference
		w.deploy(d)
		all = append(all, d.Image)
		w.open(d.Image)
	}
	if left := w.images(d.Name); len(left) != 2 {
		t.Errorf("after three images it has %v", left)
	}
	w.open(all[1])
	if _, err := w.registry().Open(t.Context(), all[0], "linux/amd64"); err == nil {
		t.Error("the image before the last one is still there")
	}
}

// TestRemovingADeploymentRemovesItsImagesAndNoOthers: two deployments use the same image, and one of them used another
// before.
func TestRemovingADeploymentRemovesItsImagesAndNoOthers(t *testing.T) {
	t.Parallel()
	w, o := newWorld(t), newOrigin(t)
	shared, d := o.putGame("shared"), wanted()
	w.prepare(d.Name, o.putGame("before"))
	d.Image = w.prepare(d.Name, shared).Reference
	w.deploy(d)
	theirs := w.prepare(otherName, shared).Reference
	w.must(w.deployer.Delete(t.Context(), d.Name))
	if left := w.images(d.Name); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	w.open(theirs)
	if left := w.api.Images(); len(left) != 1 || !slices.Equal(left, w.images(otherName)) {
		t.Errorf("the registry has %v", left)
	}
	w.must(w.deployer.Delete(t.Context(), otherName))
	w.wantNothing()
}

// TestImagesAreRemovedOnceTheRegistryIsBack: a removal that could not reach it is repeated.
func TestImagesAreRemovedOnceTheRegistryIsBack(t *testing.T) {
	t.Parallel()
	w, o := newWorld(t), newOrigin(t)
	w.prepare(wanted().Name, o.putGame("left"))
	w.forget(registryDown)
	if err := w.deployer.Delete(t.Context(), wanted().Name); err == nil {
		t.Error("a failure to remove images is not reported")
	}
	w.forget(nil)
	w.must(w.deployer.Delete(t.Context(), wanted().Name))
	w.wantNothing()
}

func registryDown(_ int, r *http.Request) localapi.Fault {
	if strings.HasPrefix(r.URL.Path, "/v2/") {
		return localapi.Down
	}
	return localapi.None
}
