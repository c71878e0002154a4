package functions_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/functions"
)

// evaluate makes Terraform run one step with a configuration that calls functions.
func evaluate(t *testing.T, step resource.TestStep) {
	t.Helper()
	t.Parallel()
	resource.Test(t, resource.TestCase{
		TerraformVersionChecks: []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_8_0)},
		ProtoV6ProviderFactories: map[string]func() (tfprotov6.ProviderServer, error){
			"sandbox": providerserver.NewProtocol6WithError(provider.New("test")()),
		},
		Steps: []resource.TestStep{step},
	})
}

func text(s string) knownvalue.Check { return knownvalue.StringExact(s) }

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestAccFunctionsReturnWhatTheyPromise(t *testing.T) {
	t.Parallel()
	image := func(registry, repository string, tag, digest knownvalue.Check) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{"registry": text(registry), "repository": text(repository),
			"tag": tag, "digest": digest, "name": text(registry + "/" + repository)})
	}
	for call, want := range map[string]knownvalue.Check{
		`lease_id("did:plc:alice", "catan-7")`: text("did:plc:alice::catan-7"),
		`parse_duration("1h30m")`:              knownvalue.Float64Exact(5400),
		`parse_duration("0.5s")`:               knownvalue.Float64Exact(0.5),
		`parse_duration("0s")`:                 knownvalue.Float64Exact(0),
		`parse_image_reference("busybox")`: image("docker.io", "library/busybox",
			knownvalue.Null(), knownvalue.Null()),
		`parse_image_reference("localhost:5000/acme/player:1.4")`: image("localhost:5000", "acme/player",
			text("1.4"), knownvalue.Null()),
		`parse_image_reference("ghcr.io/acme/player:1.4@` + digest + `")`: image("ghcr.io", "acme/player",
			text("1.4"), text(digest)),
		// The example of the design: eight agents on basic, four hours a day at 10 % of their CPU.
		`estimate_monthly_cost("basic", 4, 10, 8)`: knownvalue.ObjectExact(map[string]knownvalue.Check{
			"total_usd":     text("15.61"),
			"per_lease_usd": text("1.95"),
			"memory_usd":    text("8.42"),
			"cpu_usd":       text("1.28"),
			"disk_usd":      text("0.92"),
			"plan_usd":      text("5.00"),
			"platform_usd":  text("0.53"),
		}),
		`estimate_monthly_cost("lite", 0, 0, 0).total_usd`: text("5.00"),
	} {
		t.Run(call, func(t *testing.T) {
			evaluate(t, resource.TestStep{
				Config:            `output "is" { value = provider::sandbox::` + call + ` }`,
				ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownOutputValue("is", want)},
			})
		})
	}
}

func TestAccFunctionsNameTheArgumentThatIsWrong(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		`lease_id("alice", "catan-7")`:              `agent_did must be a DID`,
		`lease_id("did:plc:alice", "Catan 7")`:      `environment_id must be 1 to 63 characters`,
		`parse_duration("7d")`:                      `"7d" is not a duration`,
		`parse_image_reference("Acme/Player")`:      `"Acme/Player" is not a reference`,
		`estimate_monthly_cost("huge", 4, 10, 8)`:   `instance_type "huge" is none of lite`,
		`estimate_monthly_cost("lite", 25, 10, 8)`:  `hours_per_day must be between 0 and 24`,
		`estimate_monthly_cost("lite", 4, 101, 8)`:  `cpu_share_percent must be between 0 and`,
		`estimate_monthly_cost("lite", 4, 10, -1)`:  `leases must not be negative`,
		`estimate_monthly_cost("lite", 4, 10, 1.5)`: `leases must be a whole number`,
	} {
		t.Run(call, func(t *testing.T) {
			evaluate(t, resource.TestStep{
				Config:      `output "is" { value = provider::sandbox::` + call + ` }`,
				ExpectError: regexp.MustCompile(strings.ReplaceAll(want, " ", `\s+(│\s+)?`)),
			})
		})
	}
}

// Each function has an example in its documentation, which works as printed.
func TestAccExamplesOfFunctions(t *testing.T) {
	t.Parallel()
	for _, f := range functions.All() {
		name := nameOf(t, f())
		t.Run(name, func(t *testing.T) {
			example, err := os.ReadFile(filepath.Join("../../examples/functions", name, "function.tf"))
			if err != nil {
				t.Fatal(err)
			}
			evaluate(t, resource.TestStep{Config: string(example)})
		})
	}
}

func nameOf(t *testing.T, f function.Function) string {
	t.Helper()
	var resp function.MetadataResponse
	f.Metadata(t.Context(), function.MetadataRequest{}, &resp)
	return resp.Name
}
