package lease_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/compare"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	address = "sandbox_lease.test"
	agent   = "did:plc:alice"
)

func environment(w *providertest.World) string {
	return fmt.Sprintf(`
resource "sandbox_environment" "test" {
  name  = %q
  type  = "rpg"
  image = %q
  network = {
    mode = "none"
  }
  resources = {
    memory_mb = 512
    cpus      = 0.5
  }
}
`, w.Name, w.Image)
}

func leased(w *providertest.World, more string) string {
	return environment(w) + fmt.Sprintf(`
resource "sandbox_lease" "test" {
  agent_did      = %q
  environment_id = sandbox_environment.test.name
  %s
}
`, agent, more)
}

// A replacement cannot start before the lease that it replaces ends. The error says so, and the old lease stays active.
func TestAccLeaseCreateBeforeDestroy(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		config := func(life, more string) string {
			return provider + leased(w, fmt.Sprintf("max_lifetime = %q\n%s", life, more))
		}
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             gone(w),
			Steps: []resource.TestStep{
				{Config: config("1h", "")},
				{
					Config:      config("2h", "lifecycle {\n    create_before_destroy = true\n  }"),
					ExpectError: regexp.MustCompile(`(?s)is\s+being\s+replaced,\s+remove\s+create_before_destroy`),
				},
				{Config: config("1h", ""), PlanOnly: true},
				{
					Config:           config("2h", ""),
					ConfigPlanChecks: action(plancheck.ResourceActionReplace),
					ConfigStateChecks: []statecheck.StateCheck{
						value("generation", knownvalue.Int64Exact(2)), value("max_lifetime", text("2h")),
					},
				},
			},
		})
	})
}

func leaseID(w *providertest.World) string { return sandbox.LeaseID(agent, w.Name) }

func value(attribute string, check knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(address, tfjsonpath.New(attribute), check)
}

func planned(attribute string, check knownvalue.Check) plancheck.PlanCheck {
	return plancheck.ExpectKnownValue(address, tfjsonpath.New(attribute), check)
}

func action(a plancheck.ResourceActionType) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, a)}}
}

func text(s string) knownvalue.Check { return knownvalue.StringExact(s) }

func gone(w *providertest.World) func(*terraform.State) error {
	return func(*terraform.State) error {
		if left := w.Containers(w.Name); len(left) > 0 {
			return fmt.Errorf("containers %v are left", left)
		}
		return nil
	}
}

func TestAccLease(t *testing.T) {
	t.Parallel()
	providertest.OverBothServices(t, func(t *testing.T, w *providertest.World, provider string) {
		owner := statecheck.CompareValue(compare.ValuesSame())
		sandboxID := statecheck.CompareValue(compare.ValuesSame())
		settings := `
  ttl               = "1h"
  sleep_after       = "0s"
  expiry_conditions = ["agent.death"]
  on_expiry         = "recreate"
  labels            = { seat = "north" }
`
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             gone(w),
			Steps: []resource.TestStep{
				{
					Config:           provider + leased(w, ""),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{planned("status", text("active"))}},
					ConfigStateChecks: []statecheck.StateCheck{
						owner.AddStateValue(address, tfjsonpath.New("owner")),
						sandboxID.AddStateValue(address, tfjsonpath.New("sandbox_id")), value("id", text(leaseID(w))),
						value("owner", knownvalue.StringRegexp(regexp.MustCompile(`^terraform:[0-9a-f-]{36}$`))),
						value("status", text("active")), value("generation", knownvalue.Int64Exact(1)), value("on_expiry", text("keep")),
						value("image", text(w.Image)), value("memory_mb", knownvalue.Int64Exact(512)),
						value("cpus", knownvalue.Float64Exact(0.5)), value("pids_limit", knownvalue.Int64Exact(256)),
						value("leased_at", knownvalue.NotNull()), value("ended_at", knownvalue.Null()),
						value("ttl", knownvalue.Null()), value("expiry_conditions", knownvalue.Null()),
					},
				},
				{ // in place: the same sandbox keeps running
					Config:           provider + leased(w, settings),
					ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
					ConfigStateChecks: []statecheck.StateCheck{
						owner.AddStateValue(address, tfjsonpath.New("owner")),
						sandboxID.AddStateValue(address, tfjsonpath.New("sandbox_id")),
						value("ttl", text("1h")), value("sleep_after", text("0s")), value("status", text("active")),
						value("labels", knownvalue.MapExact(map[string]knownvalue.Check{"seat": text("north")})),
					},
				},
				{Config: provider + leased(w, strings.Replace(settings, `"1h"`, `"60m0s"`, 1)), PlanOnly: true},
				{
					ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: leaseID(w),
					ImportStateVerifyIgnore: []string{"on_expiry"},
				},
				{Config: provider + leased(w, ""), ConfigPlanChecks: action(plancheck.ResourceActionUpdate)},
				{ // settings that are fixed at the start of a lease
					Config: provider + leased(w, `max_lifetime = "2h"`),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectResourceAction(address, plancheck.ResourceActionReplace), becauseOf("max_lifetime"),
					}},
					ConfigStateChecks: []statecheck.StateCheck{
						value("generation", knownvalue.Int64Exact(2)), value("max_lifetime", text("2h")),
					},
				},
				{
					Config:           provider + strings.Replace(leased(w, ""), agent, "did:plc:bob", 1),
					ConfigPlanChecks: action(plancheck.ResourceActionReplace),
					ConfigStateChecks: []statecheck.StateCheck{
						value("generation", knownvalue.Int64Exact(1)), value("agent_did", text("did:plc:bob")),
					},
				},
			},
		})
	})
}

func TestAccLeaseEnded(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             gone(w),
			Steps: []resource.TestStep{
				{Config: provider + leased(w, "")},
				{ // keep: it is not drift
					PreConfig: func() { w.Condition(w.Service(), "agent.death", w.Name, agent) },
					Config:    provider + leased(w, ""),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectEmptyPlan(), planned("ended_by", text("condition")),
					}},
					ConfigStateChecks: []statecheck.StateCheck{
						value("status", knownvalue.StringRegexp(regexp.MustCompile("^(expired|destroyed)$"))),
						value("ended_by", text("condition")), value("ended_at", knownvalue.NotNull()),
						value("end_reason", knownvalue.StringRegexp(regexp.MustCompile("agent.death"))),
					},
				},
				{ // settings are for the next generation, even those that are fixed at the start of a lease
					Config:            provider + leased(w, "ttl = \"1h\"\n  max_lifetime = \"2h\""),
					ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
					ConfigStateChecks: []statecheck.StateCheck{value("ttl", text("1h")), value("ended_by", text("condition"))},
				},
				{
					Config: provider + leased(w, "ttl = \"1h\"\n  on_expiry = \"recreate\""),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate),
						planned("status", text("active")), planned("ended_by", knownvalue.Null()),
					}},
					ConfigStateChecks: []statecheck.StateCheck{
						value("status", text("active")), value("generation", knownvalue.Int64Exact(2)), value("ttl", text("1h")),
						value("ended_by", knownvalue.Null()),
					},
				},
				{ // the whole environment ends; then everything can still be destroyed
					PreConfig: func() { w.Condition(w.Service(), "game.finished", w.Name, "") },
					Config:    provider + leased(w, `ttl = "1h"`),
				},
			},
		})
	})
}

func TestAccLeaseRemovedByHand(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             gone(w),
			Steps: []resource.TestStep{
				{Config: provider + leased(w, "")},
				{
					PreConfig:        func() { w.RemoveContainers(w.Name) },
					Config:           provider + leased(w, ""),
					ConfigPlanChecks: action(plancheck.ResourceActionCreate),
					ConfigStateChecks: []statecheck.StateCheck{
						value("status", text("active")), value("generation", knownvalue.Int64Exact(2)),
					},
				},
				{ // destroy succeeds although nothing is left
					PreConfig: func() { w.RemoveContainers(w.Name) },
					Config:    provider + leased(w, ""),
					Destroy:   true,
				},
			},
		})
	})
}

func TestAccLeaseChangedByHand(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			Steps: []resource.TestStep{
				{Config: provider + leased(w, "")},
				{
					PreConfig: func() {
						_, err := w.Docker.ContainerUpdate(t.Context(), w.Containers(w.Name)[0], dockerapi.UpdateConfig{
							Resources: dockerapi.Resources{Memory: 96 << 20, MemorySwap: 96 << 20},
						})
						w.Must(err)
					},
					Config: provider + leased(w, ""),
					ConfigStateChecks: []statecheck.StateCheck{
						value("memory_mb", knownvalue.Int64Exact(96)), value("status", text("active")),
					},
				},
			},
		})
	})
}

func TestAccLeaseOfAnotherOwner(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             gone(w),
			Steps: []resource.TestStep{
				{Config: provider + environment(w)},
				{
					PreConfig: func() {
						_, err := w.Service().Acquire(t.Context(),
							sandbox.Acquire{AgentDID: agent, EnvironmentID: w.Name, Owner: "orchestrator"})
						w.Must(err)
					},
					Config:      provider + leased(w, ""),
					ExpectError: regexp.MustCompile(`(?s)held by orchestrator.*terraform import sandbox_lease\.<name> '` + leaseID(w)),
				},
				{ // adopted, with its current owner
					Config: provider + leased(w, "") + fmt.Sprintf("import {\n  to = sandbox_lease.test\n  id = %q\n}\n", leaseID(w)),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectResourceAction(address, plancheck.ResourceActionNoop),
					}},
					ConfigStateChecks: []statecheck.StateCheck{
						value("owner", text("orchestrator")), value("generation", knownvalue.Int64Exact(1)),
					},
				},
				{ // released elsewhere and leased by another owner: dropped, never destroyed
					PreConfig: func() {
						s := w.Service()
						_, err := s.Release(t.Context(), sandbox.LeaseRef{ID: leaseID(w)})
						w.Must(err)
						_, err = s.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: w.Name, Owner: "thief"})
						w.Must(err)
					},
					Config:      provider + leased(w, ""),
					ExpectError: regexp.MustCompile(`held by thief`),
				},
				{
					PreConfig: func() {
						if len(w.Containers(w.Name)) != 1 {
							t.Errorf("the other owner's sandbox is gone")
						}
						_, err := w.Service().Release(t.Context(), sandbox.LeaseRef{ID: leaseID(w), Owner: "thief"})
						w.Must(err)
					},
					Config: provider + leased(w, ""),
				},
			},
		})
	})
}

// A lease whose sandbox does not start leaves nothing behind, and is leased again.
func TestAccLeaseThatDoesNotStart(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		ref := w.Name + ":latest"
		tag := func() { w.Must(w.Docker.ImageTag(context.Background(), w.Image, ref)) }
		untag := func() {
			_, err := w.Docker.ImageRemove(context.Background(), ref, dockerapi.ImageRemoveOptions{})
			w.Must(err)
		}
		tag()
		t.Cleanup(untag)
		onRef := func(s string) string { return provider + strings.Replace(s, w.Image, ref, 1) }
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             gone(w),
			Steps: []resource.TestStep{
				{Config: onRef(environment(w))},
				{
					PreConfig: untag, Config: onRef(leased(w, "")),
					ExpectError: regexp.MustCompile(`(?s)Acquiring Lease Failed.*` + ref),
				},
				{
					PreConfig: func() {
						if left := w.Containers(w.Name); len(left) > 0 {
							t.Errorf("containers %v are left of the failed lease", left)
						}
						tag()
					},
					Config:           onRef(leased(w, "")),
					ConfigPlanChecks: action(plancheck.ResourceActionCreate),
					ConfigStateChecks: []statecheck.StateCheck{
						value("status", text("active")), value("generation", knownvalue.Int64Exact(2)),
					},
				},
			},
		})
	})
}
