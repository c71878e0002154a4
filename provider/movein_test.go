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
// nothing. And a plan that changes an environment's image says which leases stay behind.
func TestAccMovingInAndChangingTheImage(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	service := w.Service()
	_, err := service.PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: w.Name, Owner: "orchestrator", EnvironmentSpec: sandbox.EnvironmentSpec{
		Type: sandbox.TypeCatan, Image: w.Image, Network: sandbox.NetworkNone, Labels: map[string]string{"team": "games"},
		Resources: sandbox.Resources{MemoryMB: 768, CPUMillis: 500}, WarmPool: &sandbox.WarmPool{Size: 1, Paused: true},
	}})
	w.Must(err)
	ann, err := service.Acquire(t.Context(), sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.Name, Owner: "orchestrator"})
	w.Must(err)

	imports := fmt.Sprintf("%simport {\n  to = sandbox_environment.game\n  id = %q\n}\nimport {\n  to = sandbox_lease.ann\n  id = %q\n}\n", w.Embedded(), w.Name, ann.Lease.ID)
	tf := terraform(t, imports)
	tf.Run("plan", "-input=false", "-generate-config-out=generated.tf")
	if p := tf.Plan(); !maps.Equal(p.Changes, map[string]string{"sandbox_environment.game": "import", "sandbox_lease.ann": "import"}) || len(p.Diagnostics) != 0 {
		t.Fatalf("with the configuration that Terraform wrote, the plan is %+v:\n%s", p, tf.Read("generated.tf"))
	}
	tf.Run("apply", "-auto-approve", "-input=false")

	newer := w.Name + ":newer"
	w.Must(w.Docker.ImageTag(t.Context(), w.Image, newer))
	t.Cleanup(func() {
		_, err := w.Docker.ImageRemove(context.Background(), newer, dockerapi.ImageRemoveOptions{})
		w.Must(err)
	})
	tf.Write("generated.tf", strings.Replace(tf.Read("generated.tf"), fmt.Sprintf("%q", w.Image), fmt.Sprintf("%q", newer), 1))
	p := tf.Plan()
	if !maps.Equal(p.Changes, map[string]string{"sandbox_environment.game": "update"}) {
		t.Errorf("changing the image plans %v", p.Changes)
	}
	if said := p.Warning(t, "Leases Of Environment "+w.Name+" Keep Their Image").Detail; !strings.Contains(said, ann.Lease.ID+" (generation 1, on "+w.Image+")") || !strings.Contains(said, "becomes "+newer) {
		t.Errorf("it says %q", said)
	}
	// The warning is of the plan, and an apply plans twice: it says so once, and folds the other into it.
	if said := tf.Run("apply", "-auto-approve", "-input=false", "-no-color"); strings.Count(said, "Warning: Leases Of Environment") != 1 {
		t.Errorf("the apply says\n%s", said)
	}
	if p := tf.Plan(); len(p.Diagnostics) != 0 {
		t.Errorf("a plan that changes no image says %+v", p.Diagnostics)
	}
	// What Terraform wrote names the environment by a word and not by reference, so that it knows no order
	// and would destroy both at once; an environment with a lease of another owner refuses that.
	_, err = service.Release(t.Context(), sandbox.LeaseRef{ID: ann.Lease.ID})
	w.Must(err)
	tf.Run("destroy", "-auto-approve", "-input=false")
}
