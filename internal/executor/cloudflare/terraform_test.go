package cloudflare_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// TestTerraformBringsAGameToCloudflare applies, plans and destroys with the real Terraform, without a reconciler.
func TestTerraformBringsAGameToCloudflare(t *testing.T) {
	t.Parallel()
	a := cloudflaretest.StartAccount(t)
	program, err := providertest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	configuration := func(more string) string {
		return fmt.Sprintf(`
provider "sandbox" {
  cloudflare = {
    account_id    = %q
    api_base_url  = %q
    max_instances = 7
  }
}

resource "sandbox_environment" "game" {
  name          = "terraform-catan"
  type          = "catan"
  backend       = "cloudflare"
  image         = %q
  instance_type = "lite"
  %s

  expected_usage = {
    leases        = 8
    hours_per_day = 4
  }
}

resource "sandbox_lease" "ann" {
  agent_did      = "did:plc:ann"
  environment_id = sandbox_environment.game.name
}

output "status" {
  value = "${sandbox_lease.ann.status} ${sandbox_environment.game.sleep_mode} ${sandbox_environment.game.estimated_monthly_cost_usd} ${sandbox_environment.game.estimated_monthly_platform_cost_usd}"
}
`, a.ID, a.URL, cloudflaretest.ImageID(t, dockertest.Busybox(t)), more)
	}
	c := providertest.NewCLI(t, program, configuration(`network = { allow = ["good.test:8443"] }`))
	c.Env = append(c.Env, "CLOUDFLARE_API_TOKEN="+string(a.Token), "SANDBOX_RECONCILER_URL=")
	// Remove the container if the test did not destroy it.
	t.Cleanup(func() { dockertest.RemoveNamed(t, "workerd-sandbox-[a-z0-9-]*-terraform-catan-") })
	if out := c.Fail("plan", "-no-color"); !strings.Contains(strings.Join(strings.Fields(out), " "),
		"must be 443 (HTTPS) or 80 (HTTP) on Cloudflare, not 8443") {
		t.Errorf("a port that cannot be had is planned:\n%s", out)
	}
	c.Write("main.tf", configuration(`network = { private_cidrs = ["10.0.0.0/8"] }`))
	if out := c.Fail("plan", "-no-color"); !strings.Contains(out, "must not be set on Cloudflare") ||
		!strings.Contains(out, "private") {
		t.Errorf("a private range is planned:\n%s", out)
	}
	c.Write("main.tf", configuration(""))
	out := c.Run("apply", "-auto-approve", "-no-color")
	if !strings.Contains(out, `status = "active stop `) || strings.Contains(out, `stop 0.00 `) ||
		!strings.Contains(out, ` 0.53"`) {
		t.Errorf("it applied\n%s", out)
	}
	if p := c.Plan(); len(p.Changes) > 0 {
		t.Errorf("the next plan has %v", p.Changes)
	}
	c.Write("main.tf", strings.Replace(configuration(""), `"lite"`, `"basic"`, 1))
	p := c.Plan()
	replaced := slices.IndexFunc(p.Diagnostics, func(d providertest.Diagnostic) bool {
		return d.Summary == "Cloudflare Replaces Sandboxes Of Environment terraform-catan"
	})
	if replaced < 0 || !strings.Contains(p.Diagnostics[replaced].Detail, "did:plc:ann") || len(p.Diagnostics) != 1 {
		t.Errorf("of a size that replaces a sandbox the plan says %+v", p.Diagnostics)
	}
	c.Write("main.tf", configuration(""))
	was := a.ImageOf(t)
	image := a.ChangeApplication(t, "basic", 3)
	a.ChangeScript(t, "\n// by somebody else\n")
	p = c.Plan()
	if p.Changes["sandbox_environment.game"] != "update" || len(p.Changes) != 1 {
		t.Errorf("the deployment was changed outside of Terraform, and the plan has %v", p.Changes)
	}
	i := slices.IndexFunc(p.Diagnostics, func(d providertest.Diagnostic) bool {
		return d.Summary == "Environment terraform-catan Changed Outside Of Terraform"
	})
	if i < 0 {
		t.Fatalf("the plan says %+v", p.Diagnostics)
	}
	for _, difference := range []string{
		"max_instances: expected 7, observed 3", "resources: expected lite, observed basic",
		"image: expected " + was + ", observed " + image, "script: expected sha256:",
	} {
		if detail := p.Diagnostics[i].Detail; !strings.Contains(detail, difference) {
			t.Errorf("the plan says nothing of %q:\n%s", difference, detail)
		}
	}
	c.Run("apply", "-auto-approve")
	if p := c.Plan(); len(p.Changes) > 0 || len(p.Diagnostics) > 0 {
		t.Errorf("once it is made good, the next plan has %v and says %+v", p.Changes, p.Diagnostics)
	}
	state := c.Read("terraform.tfstate")
	if strings.Contains(state, string(a.Token)) {
		t.Error("the state holds the API token")
	}
	c.Run("destroy", "-auto-approve")
	if left := a.API.Holding(); len(left) > 0 {
		t.Errorf("the account still has %v", left)
	}
}

// TestTerraformKeepsThePolicyOfAnEnvironment: an unknown policy is refused. Another policy is a line of the plan, but
// no change.
func TestTerraformKeepsThePolicyOfAnEnvironment(t *testing.T) {
	t.Parallel()
	a := cloudflaretest.StartAccount(t)
	program, err := providertest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	configuration := func(policy string) string {
		return fmt.Sprintf(`
provider "sandbox" {
  cloudflare = {
    account_id        = %q
    api_base_url      = %q
    scheduling_policy = %q
  }
}

resource "sandbox_environment" "game" {
  name          = "terraform-rpg"
  type          = "rpg"
  backend       = "cloudflare"
  image         = %q
  instance_type = "lite"
}
`, a.ID, a.URL, policy, cloudflaretest.ImageID(t, dockertest.Busybox(t)))
	}
	c := providertest.NewCLI(t, program, configuration("container"))
	c.Env = append(c.Env, "CLOUDFLARE_API_TOKEN="+string(a.Token), "SANDBOX_RECONCILER_URL=")
	// Remove the containers if the test did not destroy them.
	t.Cleanup(func() { dockertest.RemoveNamed(t, "workerd-sandbox-[a-z0-9-]*-terraform-rpg-") })
	if out := c.Fail("plan", "-no-color"); !strings.Contains(out, `"durable_object"`) {
		t.Errorf("a policy that does not exist is planned:\n%s", out)
	}
	c.Write("main.tf", configuration("durable_object"))
	c.Run("apply", "-auto-approve", "-no-color")
	if p := c.Plan(); len(p.Changes) > 0 || len(p.Diagnostics) > 0 {
		t.Errorf("the next plan has %v and says %+v", p.Changes, p.Diagnostics)
	}
	c.Write("main.tf", configuration("default"))
	p := c.Plan()
	kept := slices.ContainsFunc(p.Diagnostics, func(d providertest.Diagnostic) bool {
		return d.Summary == "Environment terraform-rpg Keeps Its Scheduling Policy"
	})
	if len(p.Changes) > 0 || !kept {
		t.Errorf("with another policy the plan has %v and says %+v", p.Changes, p.Diagnostics)
	}
	c.Run("destroy", "-auto-approve")
	if left := a.API.Holding(); len(left) > 0 {
		t.Errorf("the account still has %v", left)
	}
}
