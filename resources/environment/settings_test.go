package environment_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// asks checks that the ledger has exactly these settings, beside those of a minimal environment.
func asks(w *providertest.World, change func(s *sandbox.EnvironmentSpec)) resource.TestCheckFunc {
	return func(*terraform.State) error {
		want := sandbox.EnvironmentSpec{Image: w.Image, Network: sandbox.NetworkNone}
		change(&want)
		env, err := w.Service().GetEnvironment(w.Context(), w.Name)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want.WithDefaults(), env.EnvironmentSpec, cmpopts.EquateEmpty()); diff != "" {
			return fmt.Errorf("the ledger has other settings (-want +got):\n%s", diff)
		}
		return nil
	}
}

func inPlace() resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate)}}
}

// Every setting reaches the ledger, changes in place, is found by an import, and goes when the
// configuration says nothing of it any more.
func TestAccEnvironmentSettings(t *testing.T) {
	t.Parallel()
	overServices(t, host.Config{Variables: []string{"PATH", "HOME"}}, func(t *testing.T, w *providertest.World, provider string) {
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             destroyed(w, w.Name),
			Steps: []resource.TestStep{
				{
					Config: provider + minimal(w, `
  env             = { SEASON = "3" }
  env_passthrough = ["PATH", "HOME"]
  env_blocked     = ["HOUSE_RULES"]
  warm_pool {
    size   = 2
    ttl    = "90m"
    paused = true
  }
  budget {
    monthly_usd = "25.00"
  }
`),
					Check: asks(w, func(s *sandbox.EnvironmentSpec) {
						s.Env = map[string]string{"SEASON": "3"}
						s.EnvPassthrough, s.EnvBlocked = []string{"HOME", "PATH"}, []string{"HOUSE_RULES"}
						s.WarmPool = &sandbox.WarmPool{Size: 2, TTL: sandbox.Duration(90 * time.Minute), Paused: true}
						s.Budget = &sandbox.Budget{Monthly: 25e9}
					}),
				},
				{
					Config: provider + minimal(w, `
  env_passthrough = ["HOME"]
  env_blocked     = []
  warm_pool {
    size = 0
  }
  budget {
    monthly_usd = "0.50"
  }
`),
					ConfigPlanChecks: inPlace(),
					Check: asks(w, func(s *sandbox.EnvironmentSpec) {
						s.EnvPassthrough = []string{"HOME"}
						s.WarmPool = &sandbox.WarmPool{TTL: sandbox.DefaultPoolTTL}
						s.Budget = &sandbox.Budget{Monthly: 5e8}
					}),
				},
				{
					ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: w.Name,
					ImportStateVerifyIgnore: []string{"env_blocked"}, // an empty set, which the ledger does not tell from none
				},
				{
					Config: provider + minimal(w, ""), ConfigPlanChecks: inPlace(),
					Check: asks(w, func(*sandbox.EnvironmentSpec) {}),
				},
			},
		})
	})
}
