package environment_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func planned(attribute string, check knownvalue.Check) plancheck.PlanCheck {
	return plancheck.ExpectKnownValue(address, tfjsonpath.New(attribute), check)
}

// Cloudflare's prices, as the price book of a Docker engine.
const prices = `{
  "name": "as-cloudflare", "source": "test", "as_of": "2026-08-21",
  "memory_gib_second_usd": "0.0000025", "cpu_second_usd": "0.00002", "disk_gb_second_usd": "0.00000007",
  "plan_month_usd": "5",
  "included": {"memory_gib_seconds": 90000, "cpu_seconds": 22500, "disk_gb_seconds": 720000}
}`

// ownEngine is the price book of an engine without costs.
const ownEngine = `{
  "name": "own", "source": "test", "as_of": "2026-08-21",
  "memory_gib_second_usd": "0", "cpu_second_usd": "0", "disk_gb_second_usd": "0"
}`

// priced returns the configuration of a provider with an embedded ledger and these prices.
func priced(w *providertest.World, prices string) string {
	return fmt.Sprintf("provider \"sandbox\" {\n  ledger = %q\n  docker = {\n    price_book = %q\n  }\n}\n",
		w.LedgerURL, w.WriteFile("prices.json", prices))
}

func TestAccEnvironmentCostIsKnownAtPlan(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	provider := priced(w, prices)
	usage := `
  instance_type = "basic"
  expected_usage = {
    leases            = 8
    hours_per_day     = 4
    cpu_share_percent = %s
  }
`
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{
				Config:      provider + minimal(w, fmt.Sprintf(usage, "10")+`max_monthly_cost_usd = "15.60"`),
				ExpectError: regexp.MustCompile(`(?s)Estimated Cost Above The Cap.*expected\s+to\s+cost\s+\$15\.61`),
			},
			{
				Config: provider + minimal(w, fmt.Sprintf(usage, "10")+`max_monthly_cost_usd = "15.61"`),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					planned("estimated_monthly_cost_usd", text("15.61")),
					planned("estimated_monthly_cost_per_lease_usd", text("1.95")),
					planned("estimated_monthly_platform_cost_usd", knownvalue.Null()),
				}},
				ConfigStateChecks: []statecheck.StateCheck{value("estimated_monthly_cost_usd", text("15.61"))},
			},
			{ // twice the CPU costs more, in place
				Config: provider + minimal(w, fmt.Sprintf(usage, "20")),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate),
					planned("estimated_monthly_cost_usd", text("17.34")),
				}},
			},
			{ // without a price book it is free
				Config: w.Embedded() + minimal(w, fmt.Sprintf(usage, "20")),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					planned("estimated_monthly_cost_usd", text("0.00")),
				}},
			},
		},
	})
}

func TestAccEnvironmentUnknownValues(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	body := func(image string) string {
		return fmt.Sprintf(`
variable "text" { type = string }
resource "terraform_data" "text" { input = var.text }
resource "terraform_data" "count" { input = 2 }
resource "sandbox_environment" "test" {
  name              = "%s-${terraform_data.text.output}"
  image             = %s
  type              = terraform_data.text.output == "x" ? "rpg" : "catan"
  ttl               = "${terraform_data.count.output}h"
  expiry_conditions = null
  env               = { GREETING = terraform_data.text.output }
  env_passthrough   = [terraform_data.text.output == "x" ? "HOME" : "PATH"]
  warm_pool = {
    size = terraform_data.count.output
    ttl  = "${terraform_data.count.output}h"
  }
  budget = {
    monthly_usd = "${terraform_data.count.output}.00"
  }
  secrets       = { token = { value_wo = terraform_data.text.output, value_wo_version = terraform_data.count.output } }
  initial_state = { "a.txt" = terraform_data.text.output }
  state = {
    scope         = terraform_data.text.output == "x" ? "agent" : "agent_environment"
    size_limit_mb = terraform_data.count.output
  }
  confinement = {
    user       = "${terraform_data.count.output - 2}:0"
    allow_root = terraform_data.text.output == "x"
  }
  post_start = [{
    command = [terraform_data.text.output]
    timeout = "${terraform_data.count.output}s"
  }]
  process = [for i in range(terraform_data.count.output) : {
    name    = "p${i}"
    command = split(",", terraform_data.text.output)
  }]
  network = {
    mode = terraform_data.text.output == "x" ? "none" : "full"
  }
  resources = terraform_data.count.output == 2 ? { memory_mb = 256 * terraform_data.count.output } : null
  expected_usage = {
    leases = terraform_data.count.output
  }
  max_monthly_cost_usd = "${terraform_data.count.output}00"
}
`, w.Name, image)
	}
	unknown := func(attribute string) plancheck.PlanCheck {
		return plancheck.ExpectUnknownValue(address, tfjsonpath.New(attribute))
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{{
			Config:          priced(w, ownEngine) + body(fmt.Sprintf("%q", w.Image)),
			ConfigVariables: config.Variables{"text": config.StringVariable("x")},
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				unknown("name"), unknown("expiry_conditions"), unknown("estimated_monthly_cost_usd"),
				unknown("estimated_monthly_cost_per_lease_usd"),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				value("name", text(w.Name+"-x")), value("ttl", text("2h")), value("estimated_monthly_cost_usd", text("0.00")),
				value("expiry_conditions", knownvalue.SetSizeExact(3)),
			},
		}},
	})
}

// Whole objects may come from a variable, and be unknown until the apply.
func TestAccEnvironmentFromVariables(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	variables := config.Variables{
		"network": config.ObjectVariable(map[string]config.Variable{"mode": config.StringVariable("none")}),
		"process": config.ListVariable(config.ObjectVariable(map[string]config.Variable{
			"name": config.StringVariable("game"), "command": config.ListVariable(config.StringVariable("serve")),
		})),
	}
	body := `
variable "network" { type = object({ mode = string }) }
variable "process" { type = list(object({ name = string, command = list(string) })) }
resource "terraform_data" "network" { input = var.network }
resource "terraform_data" "process" { input = var.process }
resource "sandbox_environment" "test" {
  name    = "` + w.Name + `"
  image   = "` + w.Image + `"
  network = %s
  process = %s
}
`
	later := fmt.Sprintf(body, "terraform_data.network.output", "terraform_data.process.output")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{
				Config:          w.Embedded() + later,
				ConfigVariables: variables,
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectUnknownValue(address, tfjsonpath.New("network")),
				}},
			},
			{
				Config:          w.Embedded() + fmt.Sprintf(body, "var.network", "var.process"),
				ConfigVariables: variables,
				PlanOnly:        true,
			},
		},
	})
}

// The secrets are unknown while Terraform validates, and the size of a companion until the apply.
func TestAccEnvironmentCompanionsFromVariables(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_11_0)},
		Steps: []resource.TestStep{{
			Config: priced(w, prices) + minimal(w, `
  secrets    = { for name, value in var.secrets : name => { value_wo = value, value_wo_version = 1 } }
  companions = {
    db = {
      image     = "`+w.Image+`"
      secrets   = ["password"]
      resources = { memory_mb = terraform_data.memory.output }
    }
  }
  expected_usage = {
    leases = 2
  }
`) + `
variable "secrets" { type = map(string) }
resource "terraform_data" "memory" { input = 128 }
`,
			ConfigVariables: config.Variables{
				"secrets": config.MapVariable(map[string]config.Variable{"password": config.StringVariable("x")}),
			},
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue(address, tfjsonpath.New("estimated_monthly_cost_usd")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{value("estimated_monthly_cost_usd", knownvalue.NotNull())},
		}},
	})
}

func TestAccEnvironmentErrorsOfThePlan(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tests := []struct{ more, says string }{
		{`type = "chess"`, `type must be rpg, catan, coding or custom, not "chess"`},
		{`backend = "kubernetes"`, `backend must be docker or cloudflare, not "kubernetes"`},
		{`ttl = "soon"`, `"soon" is not a duration`},
		{`ttl = "1ms"`, `ttl must be at least 1s`},
		{`max_lifetime = "9000h"`, `max_lifetime must be between 1s and 8760h`},
		{`sleep_after = "-1s"`, `sleep_after must be 0s`},
		{`sleep_mode = "nap"`, `sleep_mode must be pause or stop`},
		{`expiry_conditions = ["finished"]`, `Every expiry condition must be a dotted name`},
		{`expiry_conditions = []`, `at least 1 element`},
		{`expiry_conditions = [for i in range(33) : "game.n${i}"]`, `expiry_conditions must be at most 32 conditions`},
		{`env = { AGENT_DID = "x" }`, `The environment variable AGENT_DID is set by the system`},
		{`env_passthrough = ["DATABASE_URL"]`, `env_passthrough "DATABASE_URL" is blocked in every sandbox`},
		{"env = { HOUSE = \"x\" }\nenv_blocked = [\"house\"]", `The environment variable HOUSE is blocked by env_blocked`},
		{`builtin_tools = ["git", "apt"]`, `builtin_tools "apt" is none of the tools: bash, certificates, claude`},
		{`builtin_tools = [null]`, `builtin_tools must not have null as an element`},
		{`env = { SANDBOX_VERSION = "x" }`, `The environment variable SANDBOX_VERSION is set by the system`},
		{"archive = [{\n url = \"https://a.example.com/a.tar\"\n sha256 = \"x\"\n target = \"/workspace\"\n}]",
			`archive[0].sha256 must be 64 hexadecimal digits`},
		{"archive = [{\n url = \"https://a.example.com/a.tar\"\n sha256 = \"" + strings.Repeat("a", 64) +
			"\"\n target = \"/workspace\"\n}]", `without a reconciler, no archive is fetched`},
		{`env_blocked = ["A=B"]`, `env_blocked "A=B" is not a valid name`},
		{"warm_pool = {}", `attribute "size" is required`},
		{"warm_pool = {\n size = 101\n}", `warm_pool.size must be between 0 and 100, not 101`},
		{"warm_pool = {\n size = 1\n ttl = \"1s\"\n}", `warm_pool.ttl must be between 1m and 8760h`},
		{"warm_pool = { size = 3, max_size = 2 }", `warm_pool.max_size must be between warm_pool.size (3) and 100, not 2`},
		{"warm_pool = {\n size = 1\n mode = \"awake\"\n}", `warm_pool.mode must be paused or running, not "awake"`},
		{"budget = {}", `attribute "monthly_usd" is required`},
		{"budget = {\n monthly_usd = \"0\"\n}", `budget.monthly_usd must be more than 0`},
		{"budget = {\n monthly_usd = \"much\"\n}", `must be an amount of US dollars`},
		{`secrets = { "a/b" = { value_wo = "x", value_wo_version = 1 } }`, `secrets "a/b" is not a valid name`},
		{`secrets = { a = { value_wo = "", value_wo_version = 1 } }`,
			`The value of secret a must be 1 to 65536 bytes long, not 0`},
		{`secrets = { a = { value_wo_version = 1 } }`, `value_wo`},
		{"mount = [{\n source = \"maps\"\n target = \"/maps\"\n}]", `mount[0].source must be an absolute path`},
		{"mount = [{\n source = \"/maps\"\n target = \"/etc/maps\"\n}]", `mount[0].target must not be in /etc`},
		{"copy = [{\n source = \"/maps\"\n target = \"/maps\"\n}]",
			`copy[0].target must be an absolute path under /workspace or /data`},
		{"state = {\n scope = \"game\"\n}", `state.scope must be agent_environment or agent`},
		{"state = {\n size_limit_mb = 99999\n}", `state.size_limit_mb must be between 1 and 10240`},
		{`initial_state = { "/a" = "" }`, `initial_state["/a"] the name must be a clean path`},
		{`skills = { "A" = "" }`, `skills["A"] the name must be 1 to 63 characters`},
		{"confinement = {\n user = \"root\"\n}", `confinement.user must be a numeric uid or uid:gid`},
		{"confinement = {\n user = \"0\"\n}", `or set allow_root`},
		{"confinement = {\n open_files = 1\n}", `confinement.open_files must be between 64 and 1048576`},
		{`confinement = { seccomp_profile = "unconfined" }`, `confinement.seccomp_profile must be the JSON text of a profile`},
		{"confinement = {\n disk_limit = \"some\"\n}", `confinement.disk_limit must be billed or enforced`},
		{"post_start = [{\n command = []\n}]", `post_start[0].command must name a program`},
		{"post_start = [{\n command = [\"a\"]\n timeout = \"2h\"\n}]", `post_start[0].timeout must be between 1s and`},
		{"post_start = [{\n command = [\"a\"]\n env = { AGENT_DID = \"x\" }\n}]",
			`post_start[0].env["AGENT_DID"] is set by the system`},
		{"process = [{\n name = \"A\"\n command = [\"a\"]\n}]", `process[0].name must be 1 to 63 characters`},
		{`process = [{ name = "a", command = ["a"], restart = "maybe" }]`, `process[0].restart must be no or always`},
		{`backend = "cloudflare"
sleep_mode = "stop"
companions = { a = { image = "a" } }`, `companions must not be set on Cloudflare`},
		{`backend = "cloudflare"
keep_disk = true`, `keep_disk must not be set with the size basic on Cloudflare`},
		{`backend = "cloudflare"
instance_type = "lite"
keep_disk = true`, `scheduling policy default, which has no snapshots`},
		{`backend = "cloudflare"`, `the provider has no Cloudflare account. Set account_id and api_token`},
		{`companions = { "A" = { image = "a" } }`, `companions["A"] its name must be 1 to 30 characters`},
		{`companions = { a = { image = "" } }`, `image must be set`},
		{`companions = { a = { image = "a", secrets = ["b"] } }`, `must be one of the environment's secrets, not "b"`},
		{`companions = { a = { image = "a", restart = "always" } }`, `restart must be never or on_failure`},
		{`companions = { a = { image = "a", resources = { cpus = 0 } } }`, `cpus must be between 0.05 and 16 cores, not 0`},
		{`companions = { a = { image = "a", resources = { memory_mb = 1 } } }`, `between 64 and 32768`},
		{`companions = { a = { image = "a", health_check = { path = "/" } } }`, `must start with / and requires a port`},
		{`companions = { a = { image = "a", health_check = { start_period = "0s" } } }`, `start_period must be between 1s and`},
		{`companions = { for i in range(5) : "c${i}" => { image = "a" } }`, `companions must be at most 4, not 5`},
		{`post_mortem = "721h"`, `post_mortem must be between 0s`},
		{`instance_type = "huge"`, `"lite" "basic" "standard-1"`},
		{"instance_type = \"lite\"\nresources = {}", `instance_type`},
		{"resources = {\n memory_mb = 1\n}", `memory_mb must be between 64 and 32768, not 1`},
		{"resources = {\n cpus = 0.01\n}", `cpus must be between 0.05 and 16 cores, not 0.01`},
		{`max_monthly_cost_usd = "much"`, `must be an amount of US dollars`},
		{`max_monthly_cost_usd = "1"`, `expected_usage`},
		{"expected_usage = {\n hours_per_day = 25\n}", `expected_usage.hours_per_day must be between 0 and 24, not 25`},
		{`epoch = -1`, `at least 0`},
		// Configured values are checked, even where the domain reads them as omitted.
		{`env = { TOKEN = null }`, `env["TOKEN"] must not be null`},
		{`labels = { A = null }`, `labels["A"] must not be null`},
		{`initial_state = { "a" = null }`, `initial_state["a"] must not be null`},
		{`skills = { a = null }`, `skills["a"] must not be null`},
		{`env_blocked = ["A", null]`, `env_blocked must not have null as an element`},
		{`expiry_conditions = ["game.finished", null]`, `expiry_conditions must not have null as an element`},
		{`expiry_conditions = [""]`, `Every expiry condition must be a dotted name`},
		{`secrets = { a = null }`, `secrets["a"] must not be null`},
		{`mount = [null]`, `mount[0] must not be null`},
		{"process = [{\n name = \"a\"\n command = [\"a\", null]\n}]", `process[0].command[1] must not be null`},
		{"process = [{\n name = \"a\"\n command = [\"a\"]\n cwd = \"\"\n}]", `process[0].cwd must not be empty`},
		{"process = [{\n name = \"a\"\n command = [\"a\"]\n restart = \"\"\n}]", `process[0].restart must not be empty`},
		{"post_start = [{\n command = [\"a\"]\n timeout = \"0s\"\n}]", `post_start[0].timeout must be between 1s and`},
		{`type = ""`, `type must be rpg, catan, coding or custom, not ""`},
		{`backend = ""`, `backend must be docker or cloudflare, not ""`},
		{`ttl = "0s"`, `ttl must be at least 1s`},
		{`max_lifetime = "0s"`, `max_lifetime must be between 1s and 8760h`},
		{`sleep_mode = ""`, `sleep_mode must be pause or stop, not ""`},
		{`instance = ""`, `instance must not be empty`},
		{`resources = { memory_mb = 0 }`, `memory_mb must be between 64 and 32768, not 0`},
		{`resources = { cpus = 0 }`, `cpus must be between 0.05 and 16 cores, not 0`},
		{`resources = { pids_limit = 0 }`, `pids_limit must be between 32 and 4096, not 0`},
		{`resources = { disk_mb = 0 }`, `disk_mb must be between 1024 and 102400, not 0`},
		{`confinement = { tmp_mb = 0 }`, `confinement.tmp_mb must be between 1 and 32768, not 0`},
		{`confinement = { runtime = "" }`, `confinement.runtime must not be empty`},
		{`state = { size_limit_mb = 0 }`, `state.size_limit_mb must be between 1 and 10240, not 0`},
		{`state = { retry_for = "0s" }`, `state.retry_for must be between 1s and`},
		{`state = { scope = "" }`, `state.scope must be agent_environment or agent, not ""`},
		{`warm_pool = { size = 1, mode = "" }`, `warm_pool.mode must be paused or running, not ""`},
		{`warm_pool = { size = 1, ttl = "0s" }`, `warm_pool.ttl must be between 1m and 8760h`},
		{`warm_pool = { size = 1, max_size = 0 }`, `warm_pool.max_size value must be at least 1`},
		{`mount = [{ source = "/maps", target = "/maps" }]`, `mount[0].source "/maps" lies in no directory`},
		{`workspace = { git = { url = "https://git.example.com/app" } }`,
			`workspace.git.url "https://git.example.com/app" is on no host that is allowed`},
		{`workspace = { git = { url = "file:///srv/app" } }`,
			`workspace.git.url "file:///srv/app" is in no directory that is allowed`},
		{`copy = [{ source = "/maps", target = "/workspace" }]`, `copy[0].source "/maps" lies in no directory`},
		{"timeouts {\n create = \"0s\"\n}", `timeouts.create must be more than 0s`},
	}
	steps := []resource.TestStep{
		{
			Config:      w.Embedded() + strings.Replace(minimal(w, ""), "\"none\"", "\"bridge\"", 1),
			ExpectError: regexp.MustCompile(`The network mode must be none,\s+restricted or full`),
		},
		{
			Config:      w.Embedded() + strings.Replace(minimal(w, ""), "mode = \"none\"", "allow = [\"*.com\"]", 1),
			ExpectError: regexp.MustCompile(`Every allowed host must have at least two labels`),
		},
		{
			Config:      w.Embedded() + strings.Replace(minimal(w, ""), "mode = \"none\"", "allow = [\"https://github.com/\"]", 1),
			ExpectError: regexp.MustCompile(`Every allowed host must be a host, not a URL: write\s+"github.com", without\s+https://`),
		},
		{
			Config:      w.Embedded() + strings.Replace(minimal(w, ""), "mode = \"none\"", "allow = [\"a.com\", \"A.com\"]", 1),
			ExpectError: regexp.MustCompile(`Every allowed host must have one spelling: "a.com" is the host "A.com" again\.`),
		},
		{
			Config:      w.Embedded() + strings.Replace(minimal(w, ""), "mode = \"none\"", "allow = [\"a.com:99999\"]", 1),
			ExpectError: regexp.MustCompile(`The port of every allowed host must be between 1 and 65535,\s+not 99999`),
		},
		{
			Config: w.Embedded() +
				strings.Replace(minimal(w, ""), "mode = \"none\"", "private_cidrs = [\"8.8.8.0/24\"]", 1),
			ExpectError: regexp.MustCompile(`Every private range must be within`),
		},
		{
			Config:      w.Embedded() + strings.Replace(minimal(w, ""), "mode = \"none\"", "mode = \"none\"\nallow = []", 1),
			ExpectError: regexp.MustCompile(`network.allow requires network.mode "restricted", not "none"`),
		},
		{
			Config: w.Embedded() +
				strings.Replace(minimal(w, ""), "mode = \"none\"", "mode = \"none\"\nprivate_cidrs = [\"10.0.0.0/8\"]", 1),
			ExpectError: regexp.MustCompile(`network.private_cidrs requires network.mode "restricted", not "none"`),
		},
		{
			Config: w.Embedded() + strings.Replace(minimal(w, `llm = { main = { api = "openai", credential = "key", `+
				`price_source = "list", prices_as_of = "2026-11-24", models = {} } }`), "\"none\"", "\"full\"", 1),
			ExpectError: regexp.MustCompile(`llm requires network.mode "restricted" or "none"`),
		},
		{
			Config: w.Embedded() + strings.Replace(minimal(w, ""), "mode = \"none\"",
				"private_cidrs = [for i in range(65) : \"10.0.${i}.0/24\"]", 1),
			ExpectError: regexp.MustCompile(`network.private_cidrs must have at most 64 ranges, not 65`),
		},
		{
			Config:      w.Embedded() + strings.Replace(minimal(w, ""), w.Name, "Catan 7", 1),
			ExpectError: regexp.MustCompile(`name must be 1 to 63 characters`),
		},
	}
	settings := make([]string, len(tests))
	for i, tt := range tests {
		settings[i] = tt.more
	}
	found, seen := planErrors(t, w, w.Embedded(), settings), 0
	for i, tt := range tests {
		says := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(tt.says), " ", `\s+`))
		if says.MatchString(found[i]) {
			seen++
			continue
		}
		steps = append(steps, resource.TestStep{PlanOnly: true, Config: w.Embedded() + minimal(w, tt.more), ExpectError: says})
	}
	t.Logf("one plan has the errors of %d environments out of %d", seen, len(tests))
	resource.Test(t, resource.TestCase{ProtoV6ProviderFactories: w.Providers(), Steps: steps})
	if w.LedgerExists() {
		t.Errorf("validating made a ledger")
	}
}

func TestAccEnvironmentEndedIsReopenedByEpoch(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			Steps: []resource.TestStep{
				{Config: provider + minimal(w, "")},
				{ // ended is not drift
					PreConfig: func() { w.Condition(w.Service(), "game.finished", w.Name, "") },
					Config:    provider + minimal(w, ""),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectEmptyPlan(), planned("status", text("ended")),
					}},
					ConfigStateChecks: []statecheck.StateCheck{
						value("status", text("ended")), value("ended_by", text("game.finished")), value("ended_at", knownvalue.NotNull()),
					},
				},
				{
					Config: provider + minimal(w, "epoch = 1"),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate), planned("status", text("open")),
					}},
					ConfigStateChecks: []statecheck.StateCheck{value("status", text("open")), value("ended_by", knownvalue.Null())},
				},
				{ // the epoch is unknown at plan
					PreConfig: func() { w.Condition(w.Service(), "game.finished", w.Name, "") },
					Config: provider + minimal(w, "epoch = terraform_data.round.output") +
						"resource \"terraform_data\" \"round\" { input = 2 }\n",
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectUnknownValue(address, tfjsonpath.New("status")),
					}},
					ConfigStateChecks: []statecheck.StateCheck{value("status", text("open")), value("ended_by", knownvalue.Null())},
				},
				{
					Config:      provider + minimal(w, "epoch = 0"),
					ExpectError: regexp.MustCompile(`Environment Epoch Goes Down`),
				},
			},
		})
	})
}

func TestAccEnvironmentVanished(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: w.Embedded() + minimal(w, "")},
			{
				PreConfig: func() {
					w.Must(w.Service().DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: w.Name}))
				},
				Config: w.Embedded() + minimal(w, ""),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(address, plancheck.ResourceActionCreate),
				}},
			},
		},
	})
}

func TestAccEnvironmentOfAnotherOwner(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		spec := sandbox.EnvironmentSpec{Image: w.Image, Network: sandbox.NetworkNone}
		_, err := w.Service().PutEnvironment(t.Context(),
			sandbox.PutEnvironment{ID: w.Name, Owner: "somebody", EnvironmentSpec: spec})
		w.Must(err)
		resource.Test(t, resource.TestCase{
			ProtoV6ProviderFactories: w.Providers(),
			Steps: []resource.TestStep{
				{
					Config:      provider + minimal(w, ""),
					ExpectError: regexp.MustCompile(`(?s)belongs to somebody.*terraform import sandbox_environment\.<name> ` + w.Name),
				},
				{ // adopted, with its current owner
					Config: provider + minimal(w, "") +
						fmt.Sprintf("import {\n  to = sandbox_environment.test\n  id = %q\n}\n", w.Name),
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
						plancheck.ExpectResourceAction(address, plancheck.ResourceActionNoop),
					}},
					ConfigStateChecks: []statecheck.StateCheck{value("owner", text("somebody"))},
				},
			},
		})
	})
}

func TestAccEnvironmentWithLeasesOfOthers(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]string{"an orchestrator": "stranger", "another state": "terraform:another-state"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
				const own = `
resource "sandbox_lease" "own" {
  agent_did      = "did:plc:own"
  environment_id = sandbox_environment.test.name
}
`
				resource.Test(t, resource.TestCase{
					ProtoV6ProviderFactories: w.Providers(),
					Steps: []resource.TestStep{
						{Config: provider + minimal(w, "") + own},
						{
							PreConfig: func() {
								_, err := w.Service().Acquire(t.Context(),
									sandbox.Acquire{AgentDID: "did:plc:stranger", EnvironmentID: w.Name, Owner: owner})
								w.Must(err)
							},
							Config:      provider + minimal(w, "") + own,
							Destroy:     true,
							ExpectError: regexp.MustCompile(`(?s)did:plc:stranger::` + w.Name + `.*force_destroy = true`),
						},
						{Config: provider + minimal(w, "") + own, PlanOnly: true}, // before its lease is destroyed
						{Config: provider + minimal(w, "force_destroy = true") + own},
					},
					CheckDestroy: destroyed(w, w.Name),
				})
			})
		})
	}
}

func TestAccEnvironmentOnAnotherLedger(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	other := fmt.Sprintf("provider \"sandbox\" {\n  ledger = %q\n}\n", "sqlite://"+filepath.Join(t.TempDir(), "other.db"))
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: w.Embedded() + minimal(w, "")},
			{
				Config:      other + minimal(w, ""),
				ExpectError: regexp.MustCompile(`(?s)Reading Environment Failed.*provider\s+reaches\s+ledger`),
			},
			{Config: w.Embedded() + minimal(w, ""), PlanOnly: true},
		},
	})
}
