package lease_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// becauseOf checks which attribute forces the replacement.
func becauseOf(attribute string) plancheck.PlanCheck { return replacedBecauseOf{attribute} }

type replacedBecauseOf struct{ attribute string }

func (c replacedBecauseOf) CheckPlan(_ context.Context, req plancheck.CheckPlanRequest,
	resp *plancheck.CheckPlanResponse) {
	for _, change := range req.Plan.ResourceChanges {
		if change.Address == address {
			if got := fmt.Sprint(change.Change.ReplacePaths); got != "[["+c.attribute+"]]" {
				resp.Error = fmt.Errorf("replaced because of %s, not of %s", got, c.attribute)
			}
			return
		}
	}
	resp.Error = fmt.Errorf("%s is not in the plan", address)
}

func TestAccLeaseEngineAway(t *testing.T) {
	t.Parallel()
	w, socket := providertest.New(t), filepath.Join(t.TempDir(), "docker.sock")
	away := fmt.Sprintf("provider \"sandbox\" {\n  ledger = %q\n  docker = {\n    host = \"unix://%s\"\n  }\n}\n",
		w.LedgerURL, socket)
	// The host, the cause and what to try, but no question.
	noConnection := strings.ReplaceAll(regexp.QuoteMeta("no connection to the Docker engine at unix://"+socket+" (dial unix "+
		socket+": connect: no such file or directory). Start the engine, choose another (docker.host or docker.context, of a "+
		"reconciler --docker-host or --docker-context), or give this user access to the socket. Nothing is known to have "+
		"changed, and Terraform's state is unchanged."), " ", `\s+`)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: w.Embedded() + leased(w, "")},
			{
				Config:      away + leased(w, ""),
				ExpectError: regexp.MustCompile(`(?s)Reading Lease Failed[^?]*` + noConnection),
			},
			{
				Config:      away + leased(w, ""),
				Destroy:     true,
				ExpectError: regexp.MustCompile(`(?s)Lease Failed[^?]*` + noConnection),
			},
			{Config: w.Embedded() + leased(w, ""), PlanOnly: true},
		},
	})
}

// If the engine goes away during an acquire, the lease is in the state, and the error says so.
func TestAccLeaseOfAnEngineThatGoesAway(t *testing.T) {
	t.Parallel()
	providertest.OverAnEngineThatFails(t,
		func(t *testing.T, w *providertest.World, provider string, engine *dockertest.Proxy) {
			config := provider + leased(w, "")
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             gone(w),
				Steps: []resource.TestStep{
					{Config: provider + environment(w)},
					{
						PreConfig: func() {
							engine.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
								pass(rw, r)
								if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/containers/create") {
									engine.Set(faulttest.Down)
								}
							})
						},
						Config: config,
						ExpectError: regexp.MustCompile(`(?s)Acquiring Lease Failed.*EOF[^.]*\.\s+` + strings.ReplaceAll(
							`The lease may exist\. It is in Terraform's state, and the next apply replaces it\. Run Terraform again`,
							" ", `\s+`) + `[^.]*\.\s*$`),
					},
					{
						PreConfig: func() { engine.Set(nil) }, Config: config,
						ConfigPlanChecks:  action(plancheck.ResourceActionReplace),
						ConfigStateChecks: []statecheck.StateCheck{value("status", text("active"))},
					},
				},
			})
		})
}

// If the engine goes away while a lease is leased again, the lease may exist again, and the error says so.
func TestAccLeaseAgainOnAnEngineThatGoesAway(t *testing.T) {
	t.Parallel()
	providertest.OverAnEngineThatFails(t,
		func(t *testing.T, w *providertest.World, provider string, engine *dockertest.Proxy) {
			config := provider + leased(w, `on_expiry = "recreate"`)
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             gone(w),
				Steps: []resource.TestStep{
					{Config: config},
					{
						PreConfig: func() {
							w.Condition(w.Service(), "agent.death", w.Name, agent)
							engine.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
								pass(rw, r)
								if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/containers/create") {
									engine.Set(faulttest.Down)
								}
							})
						},
						Config: config,
						ExpectError: regexp.MustCompile(`(?s)Leasing Again Failed.*EOF[^.]*\.\s+` + strings.ReplaceAll(
							`The lease may exist again\. Terraform's state has its end, and the next plan finds it\. Run Terraform again`,
							" ", `\s+`) + `[^.]*\.\s*$`),
					},
					{
						PreConfig: func() { engine.Set(nil) }, Config: config,
						ConfigStateChecks: []statecheck.StateCheck{value("generation", knownvalue.Int64Exact(2))},
					},
				},
			})
		})
}

// If the engine goes away while a lease is released, the lease has ended, and the error does not say that nothing has
// changed.
func TestAccLeaseReleasedWhileTheEngineGoesAway(t *testing.T) {
	t.Parallel()
	providertest.OverAnEngineThatFails(t,
		func(t *testing.T, w *providertest.World, provider string, engine *dockertest.Proxy) {
			config := provider + environment(w)
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             gone(w),
				Steps: []resource.TestStep{
					{Config: provider + leased(w, "timeouts {\n delete = \"5s\"\n}")},
					{
						PreConfig: func() {
							engine.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
								if r.Method == http.MethodDelete {
									engine.Set(faulttest.Down)
									faulttest.Down(rw, r, pass)
									return
								}
								pass(rw, r)
							})
						},
						Config: config,
						ExpectError: regexp.MustCompile(`(?s)Releasing Lease Failed.*\.\s+` + strings.ReplaceAll(
							`The lease may have ended\. Terraform's state still has it, and the next destroy makes sure that its sandbox is `+
								`gone\. Run Terraform again`, " ", `\s+`)),
					},
					{PreConfig: func() { engine.Set(nil) }, Config: config},
				},
			})
		})
}

// TestAccLeasePlanOnACloneOfTheEngine lets a machine with the engine's id, but without the sandbox, answer a plan.
func TestAccLeasePlanOnACloneOfTheEngine(t *testing.T) {
	t.Parallel()
	w, p := providertest.New(t), dockertest.NewProxy(t)
	config := fmt.Sprintf("provider \"sandbox\" {\n  ledger = %q\n  docker = {\n    host = %q\n  }\n}\n",
		w.LedgerURL, p.Host()) + leased(w, "")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: config},
			{
				PreConfig: func() {
					p.Set(dockertest.Clone(func(what string) { t.Errorf("the clone is asked for %s", what) }))
				},
				Config:      config,
				PlanOnly:    true,
				ExpectError: regexp.MustCompile(`(?s)Reading Lease Failed.*clone.*Terraform's\s+state\s+is\s+unchanged`),
			},
			{PreConfig: func() { p.Set(nil) }, Config: config, PlanOnly: true}, // it is alive: nothing is planned
		},
	})
}

func TestAccLeaseReconcilerAway(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	first := w.Reconciler()
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: first.Configuration + leased(w, "")},
			{
				PreConfig: first.Stop, Config: first.Configuration + leased(w, ""),
				ExpectError: regexp.MustCompile(`(?s)Reading (Lease|Environment) Failed.*Terraform's\s+state\s+is\s+unchanged`),
			},
			// The provider itself opens the reconciler's ledger, and finds everything.
			{Config: w.Embedded() + leased(w, ""), PlanOnly: true},
		},
	})
}

func TestAccLeaseOnAnotherLedger(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	other := fmt.Sprintf("provider \"sandbox\" {\n  ledger = %q\n}\n", w.NewLedger())
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: w.Embedded() + leased(w, "")},
			{Config: other + leased(w, ""), ExpectError: regexp.MustCompile(`provider\s+reaches\s+ledger`)},
			{Config: other + leased(w, ""), Destroy: true, ExpectError: regexp.MustCompile(`provider\s+reaches\s+ledger`)},
			{Config: w.Embedded() + leased(w, ""), PlanOnly: true},
		},
	})
}

func TestAccLeaseWhileAReconcilerRunsOnTheSameFile(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	w.Reconciler()
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             gone(w),
		Steps: []resource.TestStep{
			{Config: w.Embedded() + leased(w, "")},
			{Config: w.Embedded() + leased(w, `ttl = "1h"`)},
			{
				PreConfig:        func() { w.RemoveContainers(w.Name) },
				Config:           w.Embedded() + leased(w, `ttl = "1h"`),
				ConfigPlanChecks: action(plancheck.ResourceActionCreate),
			},
		},
	})
}

func TestAccLeaseUnknownValues(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{{
			Config: w.Embedded() + environment(w) + `
variable "text" { type = string }
resource "terraform_data" "text" { input = var.text }
resource "sandbox_lease" "test" {
  agent_did         = "did:plc:${terraform_data.text.output}"
  environment_id    = sandbox_environment.test.id
  ttl               = "${length(terraform_data.text.output)}h"
  max_lifetime      = terraform_data.text.output == "carol" ? "3h" : null
  expiry_conditions = [terraform_data.text.output == "carol" ? "agent.death" : "x", "game.finished"]
  on_expiry         = terraform_data.text.output == "carol" ? "recreate" : "keep"
}
`,
			ConfigVariables: config.Variables{"text": config.StringVariable("carol")},
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				planned("status", text("active")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				value("agent_did", text("did:plc:carol")), value("ttl", text("5h")), value("max_lifetime", text("3h")),
			},
		}},
	})
}

func TestAccLeaseErrorsOfThePlan(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tests := []struct{ agent, environment, more, says string }{
		{"alice", "catan-7", "", "agent_did must be a DID such as did:plc:abc, at most 200 characters after the method, without \"::\", not \"alice\""},
		{agent, "Catan 7", "", "environment_id must be 1 to 63 characters"},
		{agent, "catan-7", `ttl = "0s"`, "ttl must be at least 1s"},
		{agent, "catan-7", `max_lifetime = "1 day"`, `"1 day" is not a duration`},
		{agent, "catan-7", `expiry_conditions = ["death"]`, "Every expiry condition must be a dotted name"},
		{agent, "catan-7", `on_expiry = "renew"`, `on_expiry value must be one of`},
		{agent, "catan-7", "timeouts {\n create = \"long\"\n}", `Invalid Attribute Value Time Duration`},
	}
	var steps []resource.TestStep
	for _, tt := range tests {
		says := strings.ReplaceAll(regexp.QuoteMeta(tt.says), " ", `\s+`)
		steps = append(steps, resource.TestStep{
			Config: w.Embedded() +
				fmt.Sprintf("resource \"sandbox_lease\" \"test\" {\n  agent_did = %q\n  environment_id = %q\n  %s\n}\n",
					tt.agent, tt.environment, tt.more),
			PlanOnly: true, ExpectError: regexp.MustCompile(says),
		})
	}
	resource.Test(t, resource.TestCase{ProtoV6ProviderFactories: w.Providers(), Steps: steps})
	if w.LedgerExists() {
		t.Errorf("validating made a ledger")
	}
}
