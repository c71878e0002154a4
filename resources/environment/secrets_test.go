package environment_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// stateWithout checks that no secret is in the state.
func stateWithout(values ...string) resource.TestCheckFunc {
	return func(s *terraform.State) error {
		state, err := json.Marshal(s)
		if err != nil {
			return err
		}
		for _, v := range values {
			if strings.Contains(string(state), v) {
				return fmt.Errorf("the state holds the secret %s: %s", v, state)
			}
		}
		return nil
	}
}

// sandboxHas checks the content of /run/secrets in the agent's sandbox, as "name=value" for each file.
func sandboxHas(w *providertest.World, svc service.Service, want string) resource.TestCheckFunc {
	return func(*terraform.State) error {
		lease, err := svc.Acquire(w.Context(), sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.Name})
		if err != nil {
			return err
		}
		result, err := svc.Exec(w.Context(), sandbox.LeaseRef{ID: lease.Lease.ID}, sandbox.ExecRequest{
			Command: []string{"sh", "-c", "cd /run/secrets && for f in *; do echo $f=$(cat $f); done"},
		})
		if err != nil {
			return err
		}
		if got := strings.TrimSpace(string(result.Stdout)); got != want {
			return fmt.Errorf("the sandbox has %q, want %q (%s)", got, want, result.Stderr)
		}
		return nil
	}
}

// A secret is sent only when its version changes, reaches living sandboxes, and is in no state.
func TestAccEnvironmentSecrets(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r := w.Reconciler()
	svc, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	w.Must(err)
	configuration := func(secrets string) string {
		return r.Configuration + "variable \"token\" {\n  type      = string\n  ephemeral = true\n}\n" +
			minimal(w, "force_destroy = true\n"+secrets)
	}
	is := func(value string) config.Variables {
		return config.Variables{"token": config.StringVariable(value)}
	}
	two := func(version int) string {
		return configuration(fmt.Sprintf(`
  secrets = {
    kept  = { value_wo = "kept-${var.token}", value_wo_version = 7 }
    token = { value_wo = var.token, value_wo_version = %d }
  }
`, version))
	}
	at := func(name, attribute string, check knownvalue.Check) statecheck.StateCheck {
		return statecheck.ExpectKnownValue(address, tfjsonpath.New("secrets").AtMapKey(name).AtMapKey(attribute), check)
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_11_0)},
		CheckDestroy:             destroyed(w, w.Name),
		Steps: []resource.TestStep{
			{
				Config: two(1), ConfigVariables: is("hunter2"),
				ConfigStateChecks: []statecheck.StateCheck{
					at("token", "value_wo", knownvalue.Null()), at("token", "value_wo_version", knownvalue.Int64Exact(1)),
				},
				Check: resource.ComposeTestCheckFunc(stateWithout("hunter2"),
					sandboxHas(w, svc, "kept=kept-hunter2\ntoken=hunter2")),
			},
			{Config: two(1), ConfigVariables: is("hunter3"), PlanOnly: true},
			{
				Config: two(2), ConfigVariables: is("hunter3"), ConfigPlanChecks: inPlace(),
				Check: resource.ComposeTestCheckFunc(stateWithout("hunter2", "hunter3"),
					sandboxHas(w, svc, "kept=kept-hunter2\ntoken=hunter3")),
			},
			{
				ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: w.Name,
				ConfigVariables: is("hunter3"),
				// The ledger does not have these attributes.
				ImportStateVerifyIgnore: []string{
					"secrets.kept.value_wo_version", "secrets.token.value_wo_version", "force_destroy",
				},
			},
			{
				Config:           configuration(`secrets = { token = { value_wo = var.token, value_wo_version = 2 } }`),
				ConfigVariables:  is("hunter4"),
				ConfigPlanChecks: inPlace(),
				Check:            sandboxHas(w, svc, "token=hunter3"),
			},
			{
				Config: configuration(""), ConfigVariables: is("hunter4"), ConfigPlanChecks: inPlace(),
				Check: sandboxHas(w, svc, "*="),
			},
		},
	})
}

// An apply of another change does nothing to what ignore_changes ignores.
func TestAccIgnoredSecretsAndInstancesStay(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r := w.Reconciler()
	svc, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	w.Must(err)
	configuration := func(label, instance string, secrets ...string) string {
		return r.Configuration + minimal(w, fmt.Sprintf(`
  force_destroy = true
  labels        = { x = %q }
  secrets       = { %s }
  %s
  lifecycle { ignore_changes = [secrets, instance] }
`, label, strings.Join(secrets, ", "), instance))
	}
	one := `a = { value_wo = "first", value_wo_version = 1 }`
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_11_0)},
		CheckDestroy:             destroyed(w, w.Name),
		Steps: []resource.TestStep{
			{Config: configuration("1", "", one), Check: sandboxHas(w, svc, "a=first")},
			{
				Config: configuration("2", "", `a = { value_wo = "second", value_wo_version = 2 }`,
					`b = { value_wo = "other", value_wo_version = 1 }`),
				ConfigPlanChecks: inPlace(), Check: sandboxHas(w, svc, "a=first"),
			},
			{
				Config:           configuration("3", `instance = "OTHER"`, one),
				ConfigPlanChecks: inPlace(), Check: sandboxHas(w, svc, "a=first"),
			},
		},
	})
}
