package environment_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An LLM route is applied, changed in place, imported and removed, and its key is in no state and no sandbox.
func TestAccEnvironmentLLM(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r := w.Reconciler()
	svc, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	w.Must(err)
	configuration := func(settings string) string {
		return r.Configuration + "variable \"key\" {\n  type      = string\n  ephemeral = true\n}\n" +
			minimal(w, "force_destroy = true\n"+settings)
	}
	const secrets = `
  secrets = {
    model_key = { value_wo = var.key, value_wo_version = 1 }
    token     = { value_wo = "of the sandbox", value_wo_version = 1 }
  }
`
	route := func(more string) string {
		return configuration(secrets + fmt.Sprintf(`
  llm = {
    main = {
      api        = "anthropic"
      credential = "model_key"
      models     = { "claude-test-5.1" = { input_usd_per_million = "3.00", output_usd_per_million = "15.00" } }
      %s
    }
  }
`, more))
	}
	is := config.Variables{"key": config.StringVariable("sk-hunter2")}
	has := func(want sandbox.LLMLimits) resource.TestCheckFunc {
		return func(*terraform.State) error {
			env, err := svc.GetEnvironment(w.Context(), w.Name)
			if err != nil {
				return err
			}
			m := env.LLM["main"].Models["claude-test-5.1"]
			if env.LLM["main"].LeaseLimits != want || m.Input != 3*sandbox.USD || *m.CacheWrite != 6*sandbox.USD {
				return fmt.Errorf("the environment has the routes %+v", env.LLM)
			}
			return nil
		}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_11_0)},
		CheckDestroy:             destroyed(w, w.Name),
		Steps: []resource.TestStep{
			{
				Config:          configuration(secrets + `llm = { main = { api = "openai", credential = "key", models = {} } }`),
				ConfigVariables: is, PlanOnly: true,
				ExpectError: regexp.MustCompile(`(?s)llm\["main"\].credential must be the name of one of.*` +
					`llm\["main"\].models must name 1 to 64 models|(?s)llm\["main"\].models must name.*credential must be`),
			},
			{
				Config: route(""), ConfigVariables: is,
				Check: resource.ComposeTestCheckFunc(stateWithout("sk-hunter2"), has(sandbox.LLMLimits{}),
					sandboxHas(w, svc, "token=of the sandbox")),
			},
			{
				Config: route(`lease_limits = { usd = "1.50", requests = 100 }`), ConfigVariables: is,
				ConfigPlanChecks: inPlace(), Check: has(sandbox.LLMLimits{USD: 3 * sandbox.USD / 2, Requests: 100}),
			},
			{
				ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: w.Name, ConfigVariables: is,
				// The ledger does not have these attributes.
				ImportStateVerifyIgnore: []string{
					"secrets.model_key.value_wo_version", "secrets.token.value_wo_version", "force_destroy",
				},
			},
			{
				Config: configuration(secrets), ConfigVariables: is, ConfigPlanChecks: inPlace(),
				Check: sandboxHas(w, svc, "model_key=sk-hunter2\ntoken=of the sandbox"),
			},
		},
	})
}
