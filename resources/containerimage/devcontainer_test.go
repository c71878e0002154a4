package containerimage_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// putFeature pushes a feature that installs a program with its name.
func putFeature(t *testing.T, s *shelf, ref, version string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for file, text := range map[string]string{
		"devcontainer-feature.json": `{"id": "greet", "options": {"greeting": {"type": "string", "default": "hello"}},
			"containerEnv": {"PATH": "${PATH}:/opt/greet"}, "postCreateCommand": "greet >>/workspace/log"}`,
		"install.sh": "#!/bin/sh\nset -e\nmkdir -p /opt/greet\nprintf '#!/bin/sh\\necho %s " + version +
			"\\n' \"$GREETING\" >/opt/greet/greet\nchmod 755 /opt/greet/greet\n",
	} {
		if err := w.WriteHeader(&tar.Header{Name: file, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(text)) // a buffer never fails
	}
	_ = w.Close()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	s.w.Must(err)
	var feature v1.Image
	feature, err = mutate.AppendLayers(empty.Image, layer)
	s.w.Must(err)
	parsed, err := name.ParseReference(ref)
	s.w.Must(err)
	s.w.Must(remote.Write(parsed, feature, remote.WithAuthFromKeychain(s.client)))
}

// A devcontainer.json has a Dockerfile, a feature from a registry and one from the project. They make the image, and
// its commands run in each sandbox. The plan warns once of settings without effect.
func TestAccDevcontainer(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{})
	feature := s.Host + "/features/greet:1"
	putFeature(t, s, feature, "one")
	base := w.Name + "-base"
	w.Must(w.Docker.ImageTag(t.Context(), w.Image, base))
	t.Cleanup(func() { _, _ = w.Docker.ImageRemove(context.Background(), base, dockerapi.ImageRemoveOptions{}) })
	dir := t.TempDir()
	for _, sub := range []string{".devcontainer/local", "src"} {
		w.Must(os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	write(t, dir, "src/rules.txt", "six sides")
	write(t, dir, "Dockerfile", "FROM "+base+"\nARG WHO\nRUN echo \"$WHO\" >/who\nCOPY src/rules.txt /rules.txt\n")
	write(t, dir, ".dockerignore", "*\n!src\n")
	write(t, dir, ".devcontainer/local/devcontainer-feature.json", `{"id": "local", "installsAfter": ["`+s.Host+`/features/greet"]}`)
	write(t, dir, ".devcontainer/local/install.sh", "#!/bin/sh\n/opt/greet/greet >/installed; echo for $_REMOTE_USER >>/installed\n")
	write(t, dir, ".devcontainer/devcontainer.json", `{
		"build": {"dockerfile": "../Dockerfile", "context": "..", "args": {"WHO": "the file"}}, // this one
		"features": {"`+feature+`": {"greeting": "good day"}, "./local": {}},
		"remoteUser": "dev", "remoteEnv": {"SEASON": "3"}, "privileged": true,
		"postCreateCommand": "cat /rules.txt >>/workspace/log"
	}`)
	config := func(more string) string {
		return w.Embedded() + fmt.Sprintf(`
resource "sandbox_container_image" "test" {
  name = %q
  build = {
    context      = %q
    devcontainer = ".devcontainer/devcontainer.json"
    %s
  }
}

resource "sandbox_environment" "test" {
  name       = %q
  type       = "coding"
  image      = sandbox_container_image.test.reference
  network    = { mode = "none" }
  post_start = sandbox_container_image.test.post_start
}

resource "sandbox_lease" "test" {
  agent_did      = "did:plc:alice"
  environment_id = sandbox_environment.test.name
}
`, w.Name, dir, more, w.Name)
	}
	command := func(line string) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{"command": knownvalue.ListExact([]knownvalue.Check{
			knownvalue.StringExact("/bin/sh"), knownvalue.StringExact("-c"), knownvalue.StringExact(line),
		})})
	}
	prints := func(want string) func(*terraform.State) error {
		return func(*terraform.State) error {
			svc := w.Service()
			res, err := svc.Exec(context.Background(), sandbox.LeaseRef{ID: sandbox.LeaseID("did:plc:alice", w.Name)},
				sandbox.ExecRequest{Command: []string{"sh", "-c", "cat /who /installed log; greet; echo $SEASON"}})
			if err != nil {
				return err
			}
			if string(res.Stdout) != want {
				return fmt.Errorf("inside is %q %s, want %q", res.Stdout, res.Stderr, want)
			}
			return nil
		}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             removed(w, w.Name+":latest"),
		Steps: []resource.TestStep{
			{
				Config: config(""),
				ConfigStateChecks: []statecheck.StateCheck{value("post_start", knownvalue.ListExact([]knownvalue.Check{
					command("greet >>/workspace/log"), command("cat /rules.txt >>/workspace/log"),
				}))},
				Check: prints("the file\ngood day one\nfor dev\ngood day one\nsix sidesgood day one\n3\n"),
			},
			{Config: config(""), PlanOnly: true},
			{ // the feature's tag moves
				PreConfig:        func() { putFeature(t, s, feature, "two") },
				Config:           config(""),
				ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			},
			{
				PreConfig:        func() { w.RemoveContainers(w.Name) }, // the next generation has the new image
				Config:           config("builder = \"classic\"\n args = { WHO = \"the configuration\" }"),
				ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			},
			{
				PreConfig: func() { w.RemoveContainers(w.Name) },
				Config:    config("builder = \"classic\"\n args = { WHO = \"the configuration\" }"),
				Check:     prints("the configuration\ngood day two\nfor dev\ngood day two\nsix sidesgood day two\n3\n"),
			},
			{
				PreConfig: func() {
					write(t, dir, ".devcontainer/devcontainer.json", `{"image": "`+base+`", "features": {"go": {}}}`)
				},
				Config:      config(""),
				ExpectError: regexp.MustCompile(`names no registry`),
			},
		},
	})
}
