package environment_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const address = "sandbox_environment.test"

func minimal(w *providertest.World, more string) string {
	return fmt.Sprintf(`
resource "sandbox_environment" "test" {
  name  = %q
  image = %q
  network = {
    mode = "none"
  }
  %s
}
`, w.Name, w.Image, more)
}

// labelled is minimal under another label.
func labelled(w *providertest.World, label, more string) string {
	return strings.Replace(minimal(w, more), `"test"`, strconv.Quote(label), 1)
}

// planErrors plans an environment with each of the settings, all in one plan, and returns the errors of each.
func planErrors(t *testing.T, w *providertest.World, provider string, settings []string) []string {
	t.Helper()
	config, label := provider, func(i int) string { return fmt.Sprint("t", i) }
	for i, setting := range settings {
		config += labelled(w, label(i), setting)
	}
	found, errors := w.PlanErrors(t, config), make([]string, len(settings))
	for i := range settings {
		errors[i] = found["sandbox_environment."+label(i)]
	}
	return errors
}

func value(attribute string, check knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(address, tfjsonpath.New(attribute), check)
}

func text(s string) knownvalue.Check { return knownvalue.StringExact(s) }

func TestAccEnvironment(t *testing.T) {
	t.Parallel()
	providertest.OverBothServices(t, func(t *testing.T, w *providertest.World, provider string) {
		full := `
  type              = "rpg"
  instance_type     = "lite"
  ttl               = "90m"
  max_lifetime      = "48h0m"
  sleep_after       = "0s"
  sleep_mode        = "stop"
  expiry_conditions = ["agent.death", "season.over"]
  env               = { SEASON = "3" }
  labels            = { team = "games" }
  force_destroy     = true
`
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             destroyed(w, w.Name, w.Name+"-2"),
			Steps: []resource.TestStep{
				{
					Config: provider + minimal(w, ""),
					ConfigStateChecks: []statecheck.StateCheck{
						value("id", text(w.Name)), value("type", text("custom")), value("backend", text("docker")),
						value("status", text("open")), value("ttl", text("24h")), value("max_lifetime", text("240h")),
						value("sleep_after", text("5m")), value("sleep_mode", text("pause")),
						value("expiry_conditions", knownvalue.SetExact([]knownvalue.Check{text("game.finished")})),
						value("owner", knownvalue.StringRegexp(regexp.MustCompile(`^terraform:[0-9a-f-]{36}$`))),
						value("ledger_id", knownvalue.NotNull()), value("instance", knownvalue.NotNull()),
						value("resources", knownvalue.Null()), value("ended_by", knownvalue.Null()),
						value("epoch", knownvalue.Int64Exact(0)), value("estimated_monthly_cost_usd", knownvalue.Null()),
					},
				},
				{ // every attribute that changes in place
					Config: provider + minimal(w, full),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate),
					}},
					ConfigStateChecks: []statecheck.StateCheck{
						value("ttl", text("90m")), value("max_lifetime", text("48h0m")), value("instance_type", text("lite")),
						value("expiry_conditions", knownvalue.SetExact([]knownvalue.Check{text("agent.death"), text("season.over")})),
						value("env", knownvalue.MapExact(map[string]knownvalue.Check{"SEASON": text("3")})),
					},
				},
				{ // another spelling of the same durations, another order of conditions
					Config:   provider + minimal(w, regexp.MustCompile(`"90m"`).ReplaceAllString(full, `"1h30m0s"`)),
					PlanOnly: true,
				},
				{
					Config: provider + minimal(w, `
  type = "rpg"
  resources = {
    memory_mb = 768
    cpus      = 0.75
  }
`),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate),
					}},
					ConfigStateChecks: []statecheck.StateCheck{
						value("resources", knownvalue.ObjectExact(map[string]knownvalue.Check{
							"memory_mb": knownvalue.Int64Exact(768), "cpus": knownvalue.Float64Exact(0.75),
							"pids_limit": knownvalue.Int64Exact(256), "disk_mb": knownvalue.Int64Exact(10240),
						})),
						value("expiry_conditions",
							knownvalue.SetExact([]knownvalue.Check{text("agent.death"), text("game.finished"), text("campaign.ended")})),
						value("env", knownvalue.Null()),
					},
				},
				{
					ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: w.Name,
				},
				{
					Config: provider + regexp.MustCompile(w.Name).ReplaceAllString(minimal(w, ""), w.Name+"-2"),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectResourceAction(address, plancheck.ResourceActionReplace),
					}},
					ConfigStateChecks: []statecheck.StateCheck{value("id", text(w.Name+"-2"))},
				},
			},
		})
	})
}

// A timeout that is too short creates nothing, and the next apply starts again. A timeout for the destroy also applies.
func TestAccEnvironmentTimeouts(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		within := func(operation string) string {
			return provider + minimal(w, "timeouts {\n    "+operation+" = \"1ns\"\n  }")
		}
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             destroyed(w, w.Name),
			Steps: []resource.TestStep{
				{Config: within("create"), ExpectError: regexp.MustCompile(`(?s)Creating Environment Failed.*deadline exceeded`)},
				{Config: provider + minimal(w, "")},
				{
					Config:      strings.Replace(within("update"), "network = {", "ttl = \"1h\"\n  network = {", 1),
					ExpectError: regexp.MustCompile(`(?s)Updating Environment Failed.*deadline exceeded`),
				},
				{Config: within("delete")},
				{
					Config:      within("delete"),
					Destroy:     true,
					ExpectError: regexp.MustCompile(`(?s)Destroying Environment Failed.*deadline exceeded`),
				},
				{Config: provider + minimal(w, "ttl = \"1h\"")},
			},
		})
	})
}

func destroyed(w *providertest.World, names ...string) func(*terraform.State) error {
	return func(*terraform.State) error {
		service := w.Service()
		for _, name := range names {
			env, err := service.GetEnvironment(w.Context(), name)
			if sandbox.CodeOf(err) != sandbox.NotFound && env.Status != sandbox.EnvironmentDestroyed {
				return fmt.Errorf("environment %s is %s (%w)", name, env.Status, err)
			}
		}
		return nil
	}
}

func TestAccEnvironmentThatLetsOut(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		block := func(content string) string {
			return provider + strings.Replace(minimal(w, ""), `mode = "none"`, content, 1)
		}
		hosts := func(names ...string) statecheck.StateCheck {
			var list []knownvalue.Check
			for _, n := range names {
				list = append(list, text(n))
			}
			return statecheck.ExpectKnownValue(address, tfjsonpath.New("network").AtMapKey("allow"), knownvalue.SetExact(list))
		}
		resource.Test(t, resource.TestCase{ProtoV6ProviderFactories: w.Providers(), Steps: []resource.TestStep{
			{
				Config:            provider + regexp.MustCompile(`(?s)network = \{.*?\}`).ReplaceAllString(minimal(w, ""), ""),
				ConfigStateChecks: []statecheck.StateCheck{value("network", knownvalue.Null())},
			},
			{Config: block(""), ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(address, tfjsonpath.New("network").AtMapKey("mode"), text("restricted")),
			}},
			{
				Config: block("allow = [\"github.com\", \"model.internal:8080\"]\n" +
					"    private_cidrs = [\"10.20.0.0/16\"]"),
				ConfigStateChecks: []statecheck.StateCheck{hosts("github.com", "model.internal:8080")},
			},
			{Config: block("allow = []"), ConfigStateChecks: []statecheck.StateCheck{hosts()}},
			{Config: block(`mode = "none"`)},
			{Config: block(`mode = "full"`), ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(address, tfjsonpath.New("network").AtMapKey("mode"), text("full")),
			}},
		}})
	})
}
