package provider_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/querycheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	tfstate "github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func identity(id string) map[string]knownvalue.Check {
	return map[string]knownvalue.Check{"id": knownvalue.StringExact(id), "ledger_id": knownvalue.NotNull()}
}

// On CLIs with identities (since 1.12), an import by identity works.
func TestAccIdentity(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	id := sandbox.LeaseID("did:plc:ann", w.Name)
	configuration := w.Embedded() + environment(w) + lease("ann", "")
	resource.Test(t, resource.TestCase{
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_12_0)},
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{
				Config: configuration,
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectIdentity("sandbox_environment.game", identity(w.Name)),
					statecheck.ExpectIdentity("sandbox_lease.ann", identity(id)),
				},
			},
			{
				ResourceName:    "sandbox_environment.game",
				ImportState:     true,
				ImportStateKind: resource.ImportBlockWithResourceIdentity,
			},
			{ResourceName: "sandbox_lease.ann", ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity},
			{ // a vanished lease is dropped, even though its identity is known
				PreConfig: func() { w.RemoveContainers(w.Name) },
				Config:    configuration,
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("sandbox_lease.ann", tfjsonpath.New("generation"), knownvalue.Int64Exact(2)),
				},
			},
		},
	})
}

// terraform query finds the existing objects, and an action that a change triggers ends leases.
func TestAccQueryAndAction(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	id := sandbox.LeaseID("did:plc:ann", w.Name)
	configuration := w.Embedded() + environment(w) + lease("ann", "")
	ended := func() {
		l, err := w.Service().GetLease(t.Context(), id)
		w.Must(err)
		if l.Status != sandbox.LeaseDestroyed || l.EndReason != "agent.death: the season is over" {
			t.Errorf("after the action the lease is %+v", l)
		}
	}
	resource.Test(t, resource.TestCase{
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_14_0)},
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy: func(*tfstate.State) error {
			if left := w.Containers(w.Name); len(left) > 0 {
				return fmt.Errorf("containers %v are left", left)
			}
			return nil
		},
		Steps: []resource.TestStep{
			{Config: configuration},
			{
				Query: true,
				Config: fmt.Sprintf(`
list "sandbox_environment" "all" { provider = sandbox }
list "sandbox_lease" "living" {
  provider = sandbox
  config {
    environment_id = %q
  }
}
`, w.Name),
				QueryResultChecks: []querycheck.QueryResultCheck{
					querycheck.ExpectIdentity("sandbox_environment.all", identity(w.Name)),
					querycheck.ExpectLength("sandbox_environment.all", 1), querycheck.ExpectIdentity("sandbox_lease.living",
						identity(id)), querycheck.ExpectLength("sandbox_lease.living", 1),
				},
			},
			{
				Config: configuration + fmt.Sprintf(`
resource "terraform_data" "season" {
  input = "over"
  lifecycle {
    action_trigger {
      events  = [after_create]
      actions = [action.sandbox_expire.ann]
    }
  }
}
action "sandbox_expire" "ann" {
  config {
    environment_id = %q
    agent_did      = "did:plc:ann"
    condition      = "agent.death"
    reason         = "the season is over"
  }
}
`, w.Name),
				PostApplyFunc: ended,
			},
		},
	})
}

// needQuery skips a test on CLIs without terraform query and actions.
func needQuery(t *testing.T, tf *providertest.CLI) {
	t.Helper()
	if !regexp.MustCompile(`(?m)^Terraform v1\.(1[4-9]|[2-9]\d)\.`).MatchString(tf.Run("version")) {
		t.Skip("terraform query and actions came with Terraform 1.14")
	}
}

// The configuration that terraform query writes plans nothing but imports.
func TestAccAQueryWritesConfiguration(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	second := terraform(t, w.Embedded())
	needQuery(t, second)
	first := terraform(t, w.Embedded()+environment(w)+lease("ann", "labels = { role = \"trader\" }")+lease("bob", ""))
	first.Run("apply", "-auto-approve", "-input=false")
	second.Write("found.tfquery.hcl", `
list "sandbox_environment" "all" { provider = sandbox }
list "sandbox_lease" "all" { provider = sandbox }
`)
	second.Run("query", "-generate-config-out=found.tf")
	p := second.Plan()
	imports := slices.Collect(maps.Values(p.Changes))
	if !slices.Equal(imports, []string{"import", "import", "import"}) || len(p.Diagnostics) != 0 {
		t.Fatalf("with the configuration that the query wrote, the plan is %+v:\n%s", p, second.Read("found.tf"))
	}
	second.Run("apply", "-auto-approve", "-input=false")
	if p := second.Plan(); len(p.Changes) != 0 {
		t.Errorf("after the import the plan is %v", p.Changes)
	}
	first.Run("destroy", "-auto-approve", "-input=false")
}
