package environment_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// asks checks that the ledger has exactly these settings, on top of a minimal environment.
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

func span(d time.Duration) *sandbox.Duration {
	s := sandbox.Duration(d)
	return &s
}

func inPlace() resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{
		PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate)},
	}
}

// Every setting reaches the ledger, changes in place, and is found by an import. It disappears when the configuration
// omits it.
func TestAccEnvironmentSettings(t *testing.T) {
	t.Parallel()
	providertest.OverServices(t, host.Config{Variables: []string{"PATH", "HOME"}},
		func(t *testing.T, w *providertest.World, provider string) {
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             destroyed(w, w.Name),
				Steps: []resource.TestStep{
					{
						Config: provider + minimal(w, `
  secrets         = { token = { value_wo = "hunter2", value_wo_version = 1 } }
  env             = { SEASON = "3" }
  env_passthrough = ["PATH", "HOME"]
  env_blocked     = ["HOUSE_RULES"]
  builtin_tools   = ["git", "certificates"]
  warm_pool = {
    size     = 2
    max_size = 6
    mode     = "running"
    ttl      = "90m"
    paused   = true
  }
  budget = {
    monthly_usd = "25.00"
  }
  post_mortem   = "10m"
  command_timeout = "5m"
  initial_state = { "memory/intro.md" = "You wake up." }
  skills        = { trading = "Sell high." }
  state = {
    scope            = "agent"
    checkpoint_every = "0s"
    size_limit_mb    = 8
  }
  confinement = {
    user            = "1001"
    tmp_mb          = 64
    seccomp_profile = jsonencode({ defaultAction = "SCMP_ACT_ERRNO" })
  }
  post_start = [{
    command = ["sh", "-c", "echo $A"]
    env     = { A = "1" }
  }, {
    command = ["true"]
    user    = "1002:1002"
    timeout = "90s"
  }]
  process = [{
    name    = "server"
    command = ["serve", ""]
    env     = { PORT = "80" }
    cwd     = "/data"
    restart = "always"
  }]
`),
						Check: asks(w, func(s *sandbox.EnvironmentSpec) {
							s.Secrets = []string{"token"}
							s.Env = map[string]string{"SEASON": "3"}
							s.EnvPassthrough, s.EnvBlocked = []string{"HOME", "PATH"}, []string{"HOUSE_RULES"}
							s.BuiltinTools = []string{"certificates", "git"}
							s.WarmPool = &sandbox.WarmPool{
								Size:    2,
								MaxSize: 6,
								Mode:    sandbox.PoolRunning,
								TTL:     sandbox.Duration(90 * time.Minute),
								Paused:  true,
							}
							s.Budget = &sandbox.Budget{Monthly: 25e9}
							s.PostMortem = span(10 * time.Minute)
							s.CommandTimeout = sandbox.Duration(5 * time.Minute)
							s.InitialData = map[string]string{"memory/intro.md": "You wake up."}
							s.Skills = map[string]string{"trading": "Sell high."}
							s.Snapshot = &sandbox.SnapshotSpec{Scope: sandbox.ScopeAgent, CheckpointEvery: span(0), SizeLimitMB: 8}
							s.Confinement = sandbox.Confinement{
								User:           "1001:1001",
								TmpMB:          64,
								SeccompProfile: `{"defaultAction":"SCMP_ACT_ERRNO"}`,
							}
							s.PostStart = []sandbox.PostStart{
								{Command: []string{"sh", "-c", "echo $A"}, Env: map[string]string{"A": "1"}},
								{Command: []string{"true"}, User: "1002:1002", Timeout: sandbox.Duration(90 * time.Second)},
							}
							s.Processes = []sandbox.ProcessSpec{{
								Name:    "server",
								Command: []string{"serve", ""},
								Env:     map[string]string{"PORT": "80"},
								Cwd:     "/data",
								Restart: sandbox.RestartAlways,
							}}
						}),
					},
					{
						Config: provider + minimal(w, `
  env_passthrough = ["HOME"]
  env_blocked     = []
  warm_pool = {
    size = 0
  }
  budget = {
    monthly_usd = "0.50"
  }
  post_mortem = "0s"
  skills      = { trading = "Buy low." }
  state = {
    on_persist_failure = "discard"
  }
  confinement = {
    allow_root = true
    user       = "0:0"
  }
  post_start = [{
    command = ["true"]
  }]
  process = [{
    name    = "server"
    command = ["serve"]
  }]
`),
						ConfigPlanChecks: inPlace(),
						Check: asks(w, func(s *sandbox.EnvironmentSpec) {
							s.EnvPassthrough = []string{"HOME"}
							s.WarmPool = &sandbox.WarmPool{Mode: sandbox.PoolPaused, TTL: sandbox.DefaultPoolTTL}
							s.Budget = &sandbox.Budget{Monthly: 5e8}
							s.PostMortem = span(0)
							s.Skills = map[string]string{"trading": "Buy low."}
							s.Snapshot = &sandbox.SnapshotSpec{OnPersistFailure: sandbox.PersistDiscard}
							s.Confinement = sandbox.Confinement{User: "0:0", AllowRoot: true}
							s.PostStart = []sandbox.PostStart{{Command: []string{"true"}}}
							s.Processes = []sandbox.ProcessSpec{{Name: "server", Command: []string{"serve"}, Restart: sandbox.RestartNo}}
						}),
					},
					{
						ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: w.Name,
						ImportStateVerifyIgnore: []string{"env_blocked"}, // the ledger stores empty as none
					},
					{
						Config: provider + minimal(w, ""), ConfigPlanChecks: inPlace(),
						Check: asks(w, func(*sandbox.EnvironmentSpec) {}),
					},
				},
			})
		})
}

// The reconciler's operator decides what a sandbox gets of the host. What is not allowed is refused before anything is
// created.
func TestAccEnvironmentWithPathsOfTheHost(t *testing.T) {
	t.Parallel()
	providertest.OverServices(t, host.Config{}, func(t *testing.T, w *providertest.World, provider string) {
		dir := w.TempDir()
		refused := func(block string) resource.TestStep {
			return resource.TestStep{
				Config:      provider + minimal(w, block),
				PlanOnly:    true,
				ExpectError: regexp.MustCompile(`(?s)source\s+"` + dir + `"\s+lies\s+in\s+no\s+directory.*--mount-allow`),
			}
		}
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			CheckDestroy:             destroyed(w, w.Name),
			Steps: []resource.TestStep{
				refused(fmt.Sprintf("mount = [{\n source = %q\n target = \"/maps\"\n}]", dir)),
				refused(fmt.Sprintf("copy = [{\n source = %q\n target = \"/workspace/maps\"\n}]", dir)),
			},
		})
	})
}

func TestAccEnvironmentWithAllowedPathsOfTheHost(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	dir := w.TempDir()
	provider := w.ReconcilerWith(host.Config{Directories: []string{dir}}).Configuration
	blocks := fmt.Sprintf(`
  mount = [{
    source   = %[1]q
    target   = "/maps"
    writable = true
  }, {
    source = %[1]q
    target = "/rules"
  }]
  copy = [{
    source = %[1]q
    target = "/workspace/maps"
  }]
`, dir)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             destroyed(w, w.Name),
		Steps: []resource.TestStep{
			{Config: provider + minimal(w, "")},
			{
				Config: provider + minimal(w, blocks), ConfigPlanChecks: inPlace(),
				Check: asks(w, func(s *sandbox.EnvironmentSpec) {
					s.Mounts = []sandbox.Mount{{Source: dir, Target: "/maps", Writable: true}, {Source: dir, Target: "/rules"}}
					s.Copies = []sandbox.Copy{{Source: dir, Target: "/workspace/maps"}}
				}),
			},
			{ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: w.Name},
			{Config: provider + minimal(w, ""), ConfigPlanChecks: inPlace(), Check: asks(w, func(*sandbox.EnvironmentSpec) {})},
		},
	})
}
