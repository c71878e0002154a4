package environment_test

import (
	"encoding/pem"
	"fmt"
	"maps"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The authorities are checked at plan: each certificate can be read, and there are credentials for them. The error names
// the attribute.
func TestAccEnvironmentAuthoritiesAreRead(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	step := func(credentials, authorities, problem string) resource.TestStep {
		return resource.TestStep{
			Config: w.Embedded() + fmt.Sprintf(`
resource "sandbox_environment" "test" {
  name    = %q
  image   = %q
  secrets = { git = { value_wo = "x", value_wo_version = 1 } }
  network = {
    allow       = ["github.com"]
    credentials = %s
    authorities = %q
  }
}
`, w.Name, w.Image, credentials, authorities), PlanOnly: true,
			ExpectError: regexp.MustCompile(`network\.authorities\s+` + strings.ReplaceAll(problem, " ", `\s+`)),
		}
	}
	const some = `{ "github.com" = { secret = "git" } }`
	unread := func(inside string) resource.TestStep {
		return step(some, "-----BEGIN CERTIFICATE-----\n"+inside+"\n-----END CERTIFICATE-----\n",
			"must be certificates in PEM, and number 1 cannot be read")
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	valid := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_11_0)},
		Steps: []resource.TestStep{
			unread("!"), unread("aGVsbG8="),
			step("{}", valid, "must not be set without network.credentials"),
			step("null", valid, "must not be set without network.credentials"),
		},
	})
}

// A host's credential is applied, changed in place, imported and removed, and is in no state and no sandbox.
func TestAccEnvironmentCredentials(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r := w.Reconciler()
	svc, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	w.Must(err)
	configuration := func(network string) string {
		return r.Configuration + "variable \"token\" {\n  type      = string\n  ephemeral = true\n}\n" + fmt.Sprintf(`
resource "sandbox_environment" "test" {
  name          = %q
  image         = %q
  force_destroy = true
  secrets = {
    git   = { value_wo = var.token, value_wo_version = 1 }
    other = { value_wo = "of the sandbox", value_wo_version = 1 }
  }
  network = {
    allow = ["github.com", "*.npm.test:8443"]
    %s
  }
}
`, w.Name, w.Image, network)
	}
	has := func(want map[string]sandbox.EgressCredential) resource.TestCheckFunc {
		return func(*terraform.State) error {
			env, err := svc.GetEnvironment(w.Context(), w.Name)
			if err == nil && !maps.Equal(env.EgressRules().Credentials, want) {
				err = fmt.Errorf("the environment has the credentials %+v", env.EgressRules().Credentials)
			}
			return err
		}
	}
	is := config.Variables{"token": config.StringVariable("sk-hunter2")}
	const basic = `{ secret = "git", scheme = "basic", username = "x-access-token" }`
	var steps []resource.TestStep
	for _, refused := range []string{ // the order of a plan's errors is Terraform's
		`network.credentials\["github.com"\].secret must be the name of`,
		`network.credentials\["github.com"\].header must be a header such as`,
		`network.credentials\["evil.test"\] must be a host`,
		`network.credentials\["evil.test"\].username must be`,
		`network.authorities must be certificates`,
	} {
		steps = append(steps, resource.TestStep{
			Config: configuration(`credentials = {
      "github.com" = { secret = "none", header = "Host" }
      "evil.test"  = { secret = "git", username = "x" }
    }
    authorities = "none"`), ConfigVariables: is, PlanOnly: true,
			ExpectError: regexp.MustCompile(refused),
		})
	}
	steps = append(steps,
		resource.TestStep{
			Config:          configuration(`credentials = { "github.com" = ` + basic + ` }`),
			ConfigVariables: is,
			Check: resource.ComposeTestCheckFunc(stateWithout("sk-hunter2"), sandboxHas(w, svc, "other=of the sandbox"),
				has(map[string]sandbox.EgressCredential{
					"github.com": {Secret: "git", Scheme: sandbox.CredentialBasic, Username: "x-access-token"}})),
		},
		resource.TestStep{
			ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: w.Name, ConfigVariables: is,
			// The ledger does not have these attributes.
			ImportStateVerifyIgnore: []string{
				"secrets.git.value_wo_version", "secrets.other.value_wo_version", "force_destroy",
			},
		},
		resource.TestStep{
			Config:          configuration(`credentials = { "registry.npm.test" = { secret = "git", header = "Private-Token" } }`),
			ConfigVariables: is, ConfigPlanChecks: inPlace(),
			Check: has(map[string]sandbox.EgressCredential{"registry.npm.test": {Secret: "git", Header: "Private-Token"}}),
		},
		resource.TestStep{
			Config: configuration(""), ConfigVariables: is, ConfigPlanChecks: inPlace(), Check: has(nil),
		},
	)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_11_0)},
		CheckDestroy:             destroyed(w, w.Name),
		Steps:                    steps,
	})
}

// Which secrets are credentials, and whether the network is restricted, may be unknown while Terraform validates.
func TestAccEnvironmentCredentialsFromVariables(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r := w.Reconciler()
	const network = "mode = var.mode\n    allow = [\"github.com\"]\n    credentials = { \"github.com\" = { secret = \"api_key\" } }"
	configuration := func(secrets string) string {
		return r.Configuration + strings.Replace(minimal(w, `
  secrets = `+secrets+`
  llm = {
    main = {
      api        = "openai"
      credential = var.key
      models     = { "test" = { input_usd_per_million = "1", output_usd_per_million = "1" } }
    }
  }
  companions = { db = { image = "`+w.Image+`", secrets = [var.db_secret] } }
`), `mode = "none"`, network, 1) + `
variable "secrets" { type = map(string) }
variable "key" { type = string }
variable "db_secret" { type = string }
variable "mode" { type = string }
`
	}
	variables := config.Variables{
		"secrets": config.MapVariable(map[string]config.Variable{
			"api_key": config.StringVariable("a"), "db_password": config.StringVariable("b"),
		}),
		"key": config.StringVariable("api_key"), "db_secret": config.StringVariable("db_password"),
		"mode": config.StringVariable("restricted"),
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_11_0)},
		CheckDestroy:             destroyed(w, w.Name),
		Steps: []resource.TestStep{
			{
				Config:          configuration("{ for name, value in var.secrets : name => { value_wo = value, value_wo_version = 1 } }"),
				ConfigVariables: variables,
			},
			{
				Config: configuration(`{
    api_key     = { value_wo = "a", value_wo_version = 1 }
    db_password = { value_wo = "b", value_wo_version = 1 }
  }`),
				ConfigVariables: variables, PlanOnly: true,
			},
		},
	})
}
