package provider_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What is there already moves in by import blocks: Terraform writes its configuration, which plans
// nothing. And a plan that changes what living leases keep says which do.
func TestAccMovingInAndChangingTheImage(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	service := w.Service()
	_, err := service.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    w.Name,
		Owner: "orchestrator",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: w.Image, Network: sandbox.NetworkNone, Labels: map[string]string{"team": "games"},
			Resources: sandbox.Resources{MemoryMB: 768, CPUMillis: 500}, WarmPool: &sandbox.WarmPool{Size: 1, Paused: true},
		},
	})
	w.Must(err)
	ann, err := service.Acquire(t.Context(),
		sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.Name, Owner: "orchestrator"})
	w.Must(err)

	imports := fmt.Sprintf("%simport {\n  to = sandbox_environment.game\n  id = %q\n}\nimport {\n"+
		"  to = sandbox_lease.ann\n  id = %q\n}\n", w.Embedded(), w.Name, ann.Lease.ID)
	tf := terraform(t, imports)
	tf.Run("plan", "-input=false", "-generate-config-out=generated.tf")
	if p := tf.Plan(); !maps.Equal(p.Changes,
		map[string]string{"sandbox_environment.game": "import", "sandbox_lease.ann": "import"}) || len(p.Diagnostics) != 0 {
		t.Fatalf("with the configuration that Terraform wrote, the plan is %+v:\n%s", p, tf.Read("generated.tf"))
	}
	tf.Run("apply", "-auto-approve", "-input=false")

	newer := w.Name + ":newer"
	w.Must(w.Docker.ImageTag(t.Context(), w.Image, newer))
	t.Cleanup(func() {
		_, err := w.Docker.ImageRemove(context.Background(), newer, dockerapi.ImageRemoveOptions{})
		w.Must(err)
	})
	tf.Write("generated.tf", strings.NewReplacer(fmt.Sprintf("%q", w.Image), fmt.Sprintf("%q", newer), "= 768", "= 640").
		Replace(tf.Read("generated.tf")))
	p := tf.Plan()
	if !maps.Equal(p.Changes, map[string]string{"sandbox_environment.game": "update"}) {
		t.Errorf("changing the image plans %v", p.Changes)
	}
	if said := p.Warning(t, "Leases Of Environment "+w.Name+" Keep What They Began With").Detail; !strings.Contains(said,
		ann.Lease.ID+" (generation 1, on "+w.Image+")") || !strings.Contains(said, "change: image, resources.") {
		t.Errorf("it says %q", said)
	}
	// The warning is of the plan, and an apply plans twice: it says so once, and folds the other into it.
	if said := tf.Run("apply", "-auto-approve", "-input=false",
		"-no-color"); strings.Count(said, "Warning: Leases Of Environment") != 1 {
		t.Errorf("the apply says\n%s", said)
	}
	if p := tf.Plan(); len(p.Diagnostics) != 0 {
		t.Errorf("a plan that changes nothing says %+v", p.Diagnostics)
	}
	// What Terraform wrote names the environment by a word and not by reference, so that it knows no order
	// and would destroy both at once; an environment with a lease of another owner refuses that.
	_, err = service.Release(t.Context(), sandbox.LeaseRef{ID: ann.Lease.ID})
	w.Must(err)
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// The configuration that Terraform writes of an environment with secrets plans nothing: it has no values, and keeps
// those of the ledger. A new secret needs one.
func TestAccAnEnvironmentWithSecretsMovesIn(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	const secrets = `
  secrets = {
    KEY = {
      value_wo         = "k-1"
      value_wo_version = 1
    }
  }
  network = {`
	first := terraform(t, w.Embedded()+strings.Replace(environment(w), "\n  network = {", secrets, 1))
	first.Run("apply", "-auto-approve", "-input=false")

	second := terraform(t, w.Embedded()+fmt.Sprintf("import {\n  to = sandbox_environment.game\n  id = %q\n}\n", w.Name))
	second.Run("plan", "-input=false", "-generate-config-out=generated.tf")
	if p := second.Plan(); !maps.Equal(p.Changes, map[string]string{"sandbox_environment.game": "import"}) ||
		len(p.Diagnostics) != 0 {
		t.Fatalf("with the configuration that Terraform wrote, the plan is %+v:\n%s", p, second.Read("generated.tf"))
	}
	second.Run("apply", "-auto-approve", "-input=false")
	if p := second.Plan(); len(p.Changes) != 0 {
		t.Errorf("after the import the plan is %v", p.Changes)
	}
	env, err := w.Service().GetEnvironment(t.Context(), w.Name)
	w.Must(err)
	if len(env.Secrets) != 1 || env.Secrets[0] != "KEY" {
		t.Errorf("the environment has the secrets %v", env.Secrets)
	}
	generated := second.Read("generated.tf")
	second.Write("generated.tf", strings.Replace(generated, "KEY = {", "NEW = {}\n    KEY = {", 1))
	if said := second.Fail("plan", "-input=false", "-no-color"); !strings.Contains(said, "secret NEW yet") {
		t.Errorf("the plan says of a new secret without a value:\n%s", said)
	}
	second.Write("generated.tf", generated)
	first.Run("state", "rm", "sandbox_environment.game")
	second.Run("destroy", "-auto-approve", "-input=false")
}

// The configuration that Terraform writes of an image says neither how it is built nor from where it comes, and plans
// nothing.
func TestAccAnImageMovesIn(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	first := terraform(t, w.Embedded()+fmt.Sprintf(`
resource "sandbox_container_image" "player" {
  name = %q
  tags = ["latest", "v1"]
  build = {
    context           = "."
    dockerfile_inline = "FROM scratch\nCOPY prices.json /\n"
  }
}
`, w.Name))
	first.Write("prices.json", w.Name)
	first.Run("apply", "-auto-approve", "-input=false")

	second := terraform(t,
		w.Embedded()+fmt.Sprintf("import {\n  to = sandbox_container_image.player\n  id = \"%s:latest\"\n}\n", w.Name))
	second.Run("plan", "-input=false", "-generate-config-out=generated.tf")
	if p := second.Plan(); !maps.Equal(p.Changes, map[string]string{"sandbox_container_image.player": "import"}) ||
		len(p.Diagnostics) != 0 {
		t.Fatalf("with the configuration that Terraform wrote, the plan is %+v:\n%s", p, second.Read("generated.tf"))
	}
	second.Run("apply", "-auto-approve", "-input=false")
	if p := second.Plan(); len(p.Changes) != 0 {
		t.Errorf("after the import the plan is %v", p.Changes)
	}
	first.Run("state", "rm", "sandbox_container_image.player")
	second.Run("destroy", "-auto-approve", "-input=false")
	second.Write("main.tf", w.Embedded())
	if said := second.Fail("plan", "-input=false", "-no-color"); !strings.Contains(said, "neither build nor source") {
		t.Errorf("once it is gone, the plan says\n%s", said)
	}
}
