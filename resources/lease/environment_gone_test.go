package lease_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// put creates the environment of the test, as another state does.
func put(w *providertest.World, svc service.Environments) {
	_, err := svc.PutEnvironment(context.Background(), sandbox.PutEnvironment{ID: w.Name,
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeRPG, Backend: sandbox.Docker, Image: w.Image, Network: sandbox.NetworkNone,
		}})
	w.Must(err)
}

// destroyEnvironment destroys the environment of the test and ends its leases, as another state does.
func destroyEnvironment(w *providertest.World, svc service.Environments) {
	w.Must(svc.DeleteEnvironment(context.Background(), sandbox.DeleteEnvironment{ID: w.Name, Force: true}))
}

// While its environment does not exist, a lease with on_expiry = recreate waits. A plan after another state has created
// the environment again leases it again.
func TestAccLeaseWaitsForTheEnvironmentOfAnotherState(t *testing.T) {
	t.Parallel()
	for name, environment := range map[string]string{
		"named": "%q",
		"read":  "data.sandbox_environment.test.name\n}\ndata \"sandbox_environment\" \"test\" {\n  name = %q",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
				svc := w.Service()
				put(w, svc)
				t.Cleanup(func() { destroyEnvironment(w, svc) })
				config := provider + fmt.Sprintf("resource \"sandbox_lease\" \"test\" {\n  agent_did = %q\n"+
					"  on_expiry = \"recreate\"\n  environment_id = "+environment+"\n}\n", agent, w.Name)
				resource.Test(t, resource.TestCase{
					ProtoV6ProviderFactories: w.Providers(),
					CheckDestroy:             gone(w),
					Steps: []resource.TestStep{
						{Config: config},
						{
							PreConfig: func() { destroyEnvironment(w, svc) },
							Config:    config,
							ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
								plancheck.ExpectEmptyPlan(), planned("ended_by", text("environment")),
							}},
						},
						{Config: config, PlanOnly: true},
						{
							PreConfig:        func() { put(w, svc) },
							Config:           config,
							ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
							ConfigStateChecks: []statecheck.StateCheck{
								value("generation", knownvalue.Int64Exact(2)), value("status", text("active")),
							},
						},
					},
				})
			})
		})
	}
}

// The apply that creates the environment again also leases the lease again.
func TestAccLeaseReturnsWithItsEnvironment(t *testing.T) {
	t.Parallel()
	for name, refers := range map[string]string{"id": "id", "name": "name"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			config := w.Embedded() + environment(w) + fmt.Sprintf("resource \"sandbox_lease\" \"test\" {\n  agent_did = %q\n"+
				"  on_expiry = \"recreate\"\n  environment_id = sandbox_environment.test.%s\n}\n", agent, refers)
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             gone(w),
				Steps: []resource.TestStep{
					{Config: config},
					{
						PreConfig: func() { destroyEnvironment(w, w.Service()) },
						Config:    config,
						ConfigStateChecks: []statecheck.StateCheck{
							value("generation", knownvalue.Int64Exact(2)), value("status", text("active")),
						},
					},
					{Config: config, PlanOnly: true},
				},
			})
		})
	}
}

// A lease is not planned in an environment that the plan knows to be destroyed.
func TestAccLeaseOfADestroyedEnvironmentIsRefusedAtPlan(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	put(w, w.Service())
	destroyEnvironment(w, w.Service())
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{{
			Config: w.Embedded() + fmt.Sprintf("data \"sandbox_environment\" \"test\" {\n  name = %q\n}\n"+
				"resource \"sandbox_lease\" \"test\" {\n  agent_did = %q\n"+
				"  environment_id = data.sandbox_environment.test.name\n}\n", w.Name, agent),
			PlanOnly:    true,
			ExpectError: regexp.MustCompile(`Environment Was Destroyed`),
		}},
	})
}
