package environment_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The framework plans again after each step, and fails if that plan is not empty.
func TestAccEnvironmentWithCompanions(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		with := func(companions string) string {
			return provider + minimal(w, strings.ReplaceAll(companions, "IMAGE", w.Image))
		}
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             destroyed(w, w.Name),
			Steps: []resource.TestStep{
				{
					Config: with(`
  companions = {
    db = { image = "IMAGE" }
  }
`),
					Check: asks(w, func(s *sandbox.EnvironmentSpec) {
						s.Companions = sandbox.Companions{"db": sandbox.Companion{Image: w.Image}.WithDefaults()}
					}),
				},
				{
					Config: with(`
  companions = {
    db = {
      image     = "IMAGE"
      command   = ["serve", ""]
      env       = { SEASON = "3" }
      resources = {
        memory_mb = 64
        cpus      = 0.05
      }
      health_check = {
        port     = 5432
        path     = "/ready"
        interval = "2s"
      }
      restart = "on_failure"
    }
    cache = {
      image        = "IMAGE"
      health_check = {
        command      = ["ready"]
        start_period = "1m30s"
      }
    }
  }
`),
					ConfigPlanChecks: inPlace(),
					Check: asks(w, func(s *sandbox.EnvironmentSpec) {
						s.Companions = sandbox.Companions{
							"db": sandbox.Companion{
								Image: w.Image, Command: []string{"serve", ""}, Env: map[string]string{"SEASON": "3"},
								Resources: sandbox.Resources{MemoryMB: 64, CPUMillis: 50}, Restart: sandbox.CompanionOnFailure,
								HealthCheck: sandbox.CompanionHealthCheck{Port: 5432, Path: "/ready",
									Interval: sandbox.Duration(2 * time.Second)},
							}.WithDefaults(),
							"cache": sandbox.Companion{Image: w.Image, HealthCheck: sandbox.CompanionHealthCheck{
								Command: []string{"ready"}, StartPeriod: sandbox.Duration(90 * time.Second)}}.WithDefaults(),
						}
					}),
				},
				{ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: w.Name},
				{
					Config: provider + minimal(w, ""), ConfigPlanChecks: inPlace(),
					Check: asks(w, func(*sandbox.EnvironmentSpec) {}),
				},
			},
		})
	})
}
