package lease_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// inEpoch returns a configuration whose environment is in an epoch.
func inEpoch(config string, epoch int) string {
	return strings.Replace(config, "  type  = \"rpg\"\n", fmt.Sprintf("  type  = \"rpg\"\n  epoch = %d\n", epoch), 1)
}

// While its environment has ended, a lease with on_expiry = recreate waits, and the state keeps its end. The plan that
// reopens the environment leases it again.
func TestAccLeaseWaitsForItsEnvironment(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		config := provider + leased(w, `on_expiry = "recreate"`)
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             gone(w),
			Steps: []resource.TestStep{
				{Config: config},
				{
					PreConfig: func() { w.Condition(w.Service(), "game.finished", w.Name, "") },
					Config:    config,
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectEmptyPlan(), planned("ended_by", text("condition")),
					}},
					ConfigStateChecks: []statecheck.StateCheck{
						value("generation", knownvalue.Int64Exact(1)), value("ended_by", text("condition")),
					},
				},
				{
					Config:           inEpoch(config, 1),
					ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
					ConfigStateChecks: []statecheck.StateCheck{
						value("generation", knownvalue.Int64Exact(2)), value("status", text("active")),
						value("ended_by", knownvalue.Null()), value("end_reason", knownvalue.Null()),
					},
				},
				{Config: inEpoch(config, 1), PlanOnly: true},
			},
		})
	})
}

// Two conditions ended the environment, and the lease names only the first of them.
func TestAccLeaseWaitsForAnEnvironmentThatEndedTwice(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	config := w.Embedded() + leased(w, "on_expiry = \"recreate\"\n  expiry_conditions = [\"game.finished\"]")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             gone(w),
		Steps: []resource.TestStep{
			{Config: config},
			{
				PreConfig: func() {
					w.Condition(w.Service(), "game.finished", w.Name, "")
					w.Condition(w.Service(), "campaign.ended", w.Name, "")
				},
				Config: config,
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectEmptyPlan(), planned("ended_by", text("condition")),
				}},
			},
		},
	})
}

// A lease returns, and another one is created, by an apply that only then knows that it reopens their environment.
func TestAccLeasesOfAnEpochKnownAfterApply(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	config := w.Embedded() + leased(w, `on_expiry = "recreate"`)
	later := strings.Replace(config, "  type  = \"rpg\"\n", "  type  = \"rpg\"\n  epoch = terraform_data.epoch.output\n", 1) + `
resource "terraform_data" "epoch" {
  input = 1
}

resource "sandbox_lease" "more" {
  environment_id = sandbox_environment.test.id
  agent_did      = "did:plc:bob"
}
`
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             gone(w),
		Steps: []resource.TestStep{
			{Config: config},
			{
				PreConfig: func() { w.Condition(w.Service(), "game.finished", w.Name, "") },
				Config:    later,
				ConfigStateChecks: []statecheck.StateCheck{
					value("generation", knownvalue.Int64Exact(2)), value("status", text("active")),
				},
			},
			{Config: later, PlanOnly: true},
		},
	})
}

// withBudget returns a configuration whose environment has a monthly budget.
func withBudget(config, usd string) string {
	budget := fmt.Sprintf("  type  = \"rpg\"\n  budget = {\n    monthly_usd = %q\n  }\n", usd)
	return strings.Replace(config, "  type  = \"rpg\"\n", budget, 1)
}

// A lease with on_expiry = recreate that its environment's budget ended waits while the budget is spent. A plan that
// raises the budget leases it again, unless the new amount does not cover what is spent.
func TestAccLeaseWaitsForTheBudgetOfItsEnvironment(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	book := w.WriteFile("prices.json", `{
  "name": "own", "source": "test", "as_of": "2026-08-21",
  "memory_gib_second_usd": "0.0000025", "cpu_second_usd": "0.00002", "disk_gb_second_usd": "0.00000007"
}`)
	config := fmt.Sprintf("provider \"sandbox\" {\n  ledger = %q\n  docker = {\n    price_book = %q\n  }\n}\n",
		w.LedgerURL, book) + leased(w, `on_expiry = "recreate"`)
	waits := resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
		plancheck.ExpectResourceAction(address, plancheck.ResourceActionNoop), planned("ended_by", text("budget")),
	}}
	const later = "resource \"terraform_data\" \"usd\" {\n  input = \"0.000000003\"\n}\n"
	again := []statecheck.StateCheck{
		value("generation", knownvalue.Int64Exact(2)), value("status", text("active")), value("ended_by", knownvalue.Null()),
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             gone(w),
		Steps: []resource.TestStep{
			{Config: withBudget(config, "5")},
			{Config: withBudget(config, "0.000000001")},
			{
				PreConfig: func() {
					budgets := w.Service().(interface{ CheckBudgets(context.Context) error })
					w.Must(budgets.CheckBudgets(w.Context()))
				},
				Config:            withBudget(config, "0.000000001"),
				ConfigPlanChecks:  waits,
				ConfigStateChecks: []statecheck.StateCheck{value("ended_by", text("budget"))},
			},
			{Config: withBudget(config, "0.000000002"), ConfigPlanChecks: waits},
			{ // the plan cannot know that this amount is too low
				Config:            withBudget(config+later, "${terraform_data.usd.output}"),
				ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{value("ended_by", text("budget"))},
			},
			{
				Config:            withBudget(config+later, "10"),
				ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: again,
			},
			{Config: withBudget(config+later, "10"), PlanOnly: true},
		},
	})
}

// A kept lease returns with every new epoch of its environment if its lifecycle says so.
func TestAccKeptLeaseComesBackWithANewEpoch(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	config := w.Embedded() +
		leased(w, "lifecycle {\n    replace_triggered_by = [sandbox_environment.test.epoch]\n  }")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             gone(w),
		Steps: []resource.TestStep{
			{Config: config},
			{
				PreConfig: func() { w.Condition(w.Service(), "game.finished", w.Name, "") },
				Config:    config,
				ConfigPlanChecks: resource.ConfigPlanChecks{
					PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
				},
			},
			{
				Config:           inEpoch(config, 1),
				ConfigPlanChecks: action(plancheck.ResourceActionReplace),
				ConfigStateChecks: []statecheck.StateCheck{
					value("generation", knownvalue.Int64Exact(2)), value("status", text("active")),
				},
			},
		},
	})
}

// ends ends the lease between plan and apply.
type ends struct{ w *providertest.World }

func (e ends) CheckPlan(context.Context, plancheck.CheckPlanRequest, *plancheck.CheckPlanResponse) {
	e.w.Condition(e.w.Service(), "agent.death", e.w.Name, agent)
}

// A lease that ends after it was planned is not renewed. The error says so in the words of Terraform, and the next
// apply leases it again.
func TestAccLeaseThatEndsBeforeItsRenewal(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	config := func(ttl string) string {
		return w.Embedded() + leased(w, fmt.Sprintf("on_expiry = \"recreate\"\n  ttl = %q", ttl))
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             gone(w),
		Steps: []resource.TestStep{
			{Config: config("1h")},
			{
				Config:           config("2h"),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{ends{w}}},
				ExpectError: regexp.MustCompile(`(?s)ended\s+by\s+condition:.*after\s+it\s+was\s+planned.*` +
					`Run\s+Terraform\s+again`),
			},
			{Config: config("2h"), ConfigStateChecks: []statecheck.StateCheck{
				value("generation", knownvalue.Int64Exact(2)), value("ttl", text("2h")),
			}},
		},
	})
}
