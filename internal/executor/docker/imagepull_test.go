package docker_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// If an environment allows it, the engine pulls its image and those of its companions from a private registry, with the
// reconciler's logins. Otherwise the engine pulls nothing.
func TestMissingImagesArePulled(t *testing.T) {
	t.Parallel()
	shelf := registrytest.Start(t, registrytest.Options{Auth: true})
	player, database := shelve(t, shelf, "player"), shelve(t, shelf, "database")
	logins := filepath.Join(t.TempDir(), "config.json")
	login := func(password string) {
		auth := base64.StdEncoding.EncodeToString([]byte(registrytest.Username + ":" + password))
		must(t, os.WriteFile(logins, fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, shelf.Host, auth), 0o600))
	}
	login(registrytest.Password)
	found, err := docker.LoginsIn(logins)
	must(t, err)
	x, err := docker.New(docker.Config{Logins: found})
	must(t, err)
	w := newWorldOf(t, x, player, func(s *sandbox.EnvironmentSpec) { s.Image = dockertest.Busybox(t) })

	wanted := w.environment()
	wanted.Companions = sandbox.Companions{"db": {Image: database, Command: []string{"/bin/busybox", "sleep", "600"}}}
	wanted = wanted.WithDefaults()
	notFound := func(what string, err error, says string) {
		t.Helper()
		if sandbox.CodeOf(err) != sandbox.NotFound || sandbox.ReasonOf(err) != sandbox.ReasonImageNotFound ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	notFound("never", w.x.Provision(t.Context(), w.ref, wanted), `image_pull = "missing"`)
	notFound("never, at plan", w.x.Check(t.Context(), w.ref, wanted), "no image "+player)

	wanted.ImagePull = sandbox.PullMissing
	must(t, w.x.Check(t.Context(), w.ref, wanted))
	login("of yesterday")
	if err := w.x.Provision(t.Context(), w.ref, wanted); err == nil || !strings.Contains(err.Error(), player) {
		t.Errorf("with a wrong password: %v", err)
	}
	login(registrytest.Password) // it takes effect without a restart
	must(t, w.x.Provision(t.Context(), w.ref, wanted))
	must(t, w.x.Provision(t.Context(), w.ref, wanted))
	h := w.spawn(t)
	if out := w.exec(t, h, "/bin/busybox", "echo", "pulled"); out != "pulled\n" {
		t.Errorf("got %q", out)
	}
	for _, image := range []string{player, database} {
		_, err := w.api.ImageInspect(t.Context(), image)
		must(t, err)
	}

	wanted.Image = shelf.Host + "/games/unknown:1"
	notFound("unknown", w.x.Provision(t.Context(), w.ref, wanted), "check the name, and the login")
}

// shelve puts an image into a registry, with a name that the engine does not have.
func shelve(t *testing.T, shelf *registrytest.Registry, repository string) string {
	t.Helper()
	api, ref := dockertest.Engine(t), shelf.Host+"/games/"+repository+":1"
	must(t, api.ImageTag(t.Context(), dockertest.Busybox(t), ref))
	remove := func() error {
		_, err := api.ImageRemove(context.WithoutCancel(t.Context()), ref, dockerapi.ImageRemoveOptions{})
		return err
	}
	t.Cleanup(func() {
		if err := remove(); err != nil && !strings.Contains(err.Error(), "No such image") {
			t.Error(err)
		}
	})
	auth, err := registry.New(map[string]registry.Credentials{
		shelf.Host: {Username: registrytest.Username, Password: registrytest.Password},
	}).EngineAuth(t.Context(), ref)
	must(t, err)
	answer, err := api.ImagePush(t.Context(), ref, dockerapi.ImagePushOptions{RegistryAuth: auth})
	must(t, err)
	_, err = dockerapi.FollowTransfer(t.Context(), answer)
	must(t, err)
	must(t, remove())
	return ref
}
