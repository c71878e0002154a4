package provider_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Existing objects move in through import blocks. Terraform writes their configuration, which then plans nothing. A
// plan that changes what living leases keep names these leases.
func TestAccMovingInAndChangingTheImage(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	service := w.Service()
	_, err := service.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    w.Name,
		Owner: "orchestrator",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: w.Image, Network: sandbox.NetworkNone, Labels: map[string]string{"team": "games"},
			Resources: sandbox.Resources{MemoryMB: 768, CPUMillis: 500}, WarmPool: &sandbox.WarmPool{Size: 1, Paused: true},
		},
	})
	w.Must(err)
	ann, err := service.Acquire(t.Context(),
		sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.Name, Owner: "orchestrator"})
	w.Must(err)

	imports := fmt.Sprintf("%simport {\n  to = sandbox_environment.game\n  id = %q\n}\nimport {\n"+
		"  to = sandbox_lease.ann\n  id = %q\n}\n", w.Embedded(), w.Name, ann.Lease.ID)
	tf := terraform(t, imports)
	tf.Run("plan", "-input=false", "-generate-config-out=generated.tf")
	if p := tf.Plan(); !maps.Equal(p.Changes,
		map[string]string{"sandbox_environment.game": "import", "sandbox_lease.ann": "import"}) || len(p.Diagnostics) != 0 {
		t.Fatalf("with the configuration that Terraform wrote, the plan is %+v:\n%s", p, tf.Read("generated.tf"))
	}
	tf.Run("apply", "-auto-approve", "-input=false")

	newer := w.Name + ":newer"
	w.Must(w.Docker.ImageTag(t.Context(), w.Image, newer))
	t.Cleanup(func() {
		_, err := w.Docker.ImageRemove(context.Background(), newer, dockerapi.ImageRemoveOptions{})
		w.Must(err)
	})
	tf.Write("generated.tf", strings.NewReplacer(fmt.Sprintf("%q", w.Image), fmt.Sprintf("%q", newer), "= 768", "= 640").
		Replace(tf.Read("generated.tf")))
	p := tf.Plan()
	if !maps.Equal(p.Changes, map[string]string{"sandbox_environment.game": "update"}) {
		t.Errorf("changing the image plans %v", p.Changes)
	}
	if said := p.Warning(t, "Leases Of Environment "+w.Name+" Keep What They Began With").Detail; !strings.Contains(said,
		ann.Lease.ID+" (generation 1, on "+w.Image+")") || !strings.Contains(said, "change: image, resources.") {
		t.Errorf("it says %q", said)
	}
	known := tf.Read("generated.tf")
	tf.Write("generated.tf", strings.ReplaceAll(known, fmt.Sprintf("%q", newer), "terraform_data.late.output")+
		fmt.Sprintf("resource \"terraform_data\" \"late\" {\n  input = %q\n}\n", newer))
	if said := tf.Plan().Warning(t, "Leases Of Environment "+w.Name+" Keep What They Began With").Detail; !strings.
		Contains(said, "change: image (known after apply), resources.") {
		t.Errorf("with an unknown image it says %q", said)
	}
	tf.Write("generated.tf", known)
	// The warning belongs to the plan, and an apply plans twice. It prints the warning once, and folds the second into
	// it.
	if said := tf.Run("apply", "-auto-approve", "-input=false",
		"-no-color"); strings.Count(said, "Warning: Leases Of Environment") != 1 {
		t.Errorf("the apply says\n%s", said)
	}
	if p := tf.Plan(); len(p.Diagnostics) != 0 {
		t.Errorf("a plan that changes nothing says %+v", p.Diagnostics)
	}
	// The configuration that Terraform wrote has the environment's name as a string, not a reference. So Terraform
	// knows no order and would destroy both concurrently. An environment refuses its destroy while another owner holds
	// a lease.
	_, err = service.Release(t.Context(), sandbox.LeaseRef{ID: ann.Lease.ID})
	w.Must(err)
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// The configuration that Terraform writes for an environment with secrets plans nothing: it has no values, so the
// ledger keeps its own. A new secret needs a value.
func TestAccAnEnvironmentWithSecretsMovesIn(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	const secrets = `
  secrets = {
    KEY = {
      value_wo         = "k-1"
      value_wo_version = 1
    }
  }
  network = {`
	first := terraform(t, w.Embedded()+strings.Replace(environment(w), "\n  network = {", secrets, 1))
	first.Run("apply", "-auto-approve", "-input=false")

	second := terraform(t, w.Embedded()+fmt.Sprintf("import {\n  to = sandbox_environment.game\n  id = %q\n}\n", w.Name))
	second.Run("plan", "-input=false", "-generate-config-out=generated.tf")
	if p := second.Plan(); !maps.Equal(p.Changes, map[string]string{"sandbox_environment.game": "import"}) ||
		len(p.Diagnostics) != 0 {
		t.Fatalf("with the configuration that Terraform wrote, the plan is %+v:\n%s", p, second.Read("generated.tf"))
	}
	second.Run("apply", "-auto-approve", "-input=false")
	if p := second.Plan(); len(p.Changes) != 0 {
		t.Errorf("after the import the plan is %v", p.Changes)
	}
	env, err := w.Service().GetEnvironment(t.Context(), w.Name)
	w.Must(err)
	if len(env.Secrets) != 1 || env.Secrets[0] != "KEY" {
		t.Errorf("the environment has the secrets %v", env.Secrets)
	}
	generated := second.Read("generated.tf")
	second.Write("generated.tf", strings.Replace(generated, "KEY = {", "NEW = {}\n    KEY = {", 1))
	if said := second.Fail("plan", "-input=false", "-no-color"); !strings.Contains(said, "secret NEW yet") {
		t.Errorf("for a new secret without a value, the plan says:\n%s", said)
	}
	second.Write("generated.tf", generated)
	first.Run("state", "rm", "sandbox_environment.game")
	second.Run("destroy", "-auto-approve", "-input=false")
}

// The configuration that Terraform writes for an image has neither a build nor a source, and plans nothing.
func TestAccAnImageMovesIn(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	first := terraform(t, w.Embedded()+fmt.Sprintf(`
resource "sandbox_container_image" "player" {
  name = %q
  tags = ["latest", "v1"]
  build = {
    context           = "."
    dockerfile_inline = "FROM scratch\nCOPY prices.json /\n"
  }
}
`, w.Name))
	first.Write("prices.json", w.Name)
	first.Run("apply", "-auto-approve", "-input=false")

	second := terraform(t,
		w.Embedded()+fmt.Sprintf("import {\n  to = sandbox_container_image.player\n  id = \"%s:latest\"\n}\n", w.Name))
	second.Run("plan", "-input=false", "-generate-config-out=generated.tf")
	if p := second.Plan(); !maps.Equal(p.Changes, map[string]string{"sandbox_container_image.player": "import"}) ||
		len(p.Diagnostics) != 0 {
		t.Fatalf("with the configuration that Terraform wrote, the plan is %+v:\n%s", p, second.Read("generated.tf"))
	}
	second.Run("apply", "-auto-approve", "-input=false")
	if p := second.Plan(); len(p.Changes) != 0 {
		t.Errorf("after the import the plan is %v", p.Changes)
	}
	first.Run("state", "rm", "sandbox_container_image.player")
	second.Run("destroy", "-auto-approve", "-input=false")
	second.Write("main.tf", w.Embedded())
	if said := second.Fail("plan", "-input=false", "-no-color"); !strings.Contains(said, "neither build nor source") {
		t.Errorf("once it is gone, the plan says\n%s", said)
	}
}

// everything is an environment with all settings, a lease with all terms, a pushed image, and one from a registry. The
// environment has no lease, because no sandbox could start with all these settings.
func everything(w *providertest.World, dir, registry string) string {
	return strings.NewReplacer("NAME", w.Name, "IMAGE", w.Image, "DIR", dir, "REGISTRY", registry,
		"AUTHORITY", strings.ReplaceAll(authority(), "\n", `\n`)).Replace(`
resource "sandbox_environment" "all" {
  name            = "NAME-all"
  type            = "rpg"
  image           = "IMAGE"
  image_pull      = "missing"
  epoch           = 0
  labels          = { team = "games" }
  env             = { SEASON = "3" }
  env_passthrough = ["GAME_REGION"]
  env_blocked     = ["HOUSE"]
  builtin_tools   = ["git"]
  initial_state   = { "a.txt" = "a" }
  skills          = { trade = "sell" }
  ttl             = "2h"
  max_lifetime    = "48h"
  sleep_after     = "9m"
  sleep_mode      = "stop"
  keep_disk       = true
  post_mortem     = "10m"
  command_timeout = "1m"
  expiry_conditions = ["game.finished", "task.complete"]
  secrets = {
    KEY = {
      value_wo         = "k-1"
      value_wo_version = 1
    }
    PASSWORD = {
      value_wo         = "p-1"
      value_wo_version = 1
    }
  }
  resources = {
    memory_mb  = 768
    cpus       = 0.75
    pids_limit = 64
    disk_mb    = 2048
  }
  network = {
    mode          = "restricted"
    allow         = ["a.example.com", "*.example.org", "b.example.com:8443"]
    private_cidrs = ["10.0.0.0/8"]
    credentials = {
      "a.example.com" = {
        secret   = "KEY"
        scheme   = "basic"
        username = "ann"
      }
    }
    authorities = "AUTHORITY"
  }
  llm = {
    main = {
      api          = "openai"
      upstream     = "https://model.example.com"
      credential   = "KEY"
      price_source = "the price list"
      prices_as_of = "2026-11-24"
      models = {
        "gpt-5-mini" = {
          input_usd_per_million        = "0.25"
          output_usd_per_million       = "2.00"
          cached_input_usd_per_million = "0.025"
          cache_write_usd_per_million  = "0.5"
          max_input_tokens             = 1000
          max_output_tokens            = 100
        }
      }
      lease_limits   = { usd = "1.50", requests = 10, tokens = 1000 }
      monthly_limits = { usd = "15", requests = 100, tokens = 10000 }
    }
  }
  companions = {
    database = {
      image     = "IMAGE"
      command   = ["sleep", "1000"]
      env       = { A = "b" }
      secrets   = ["PASSWORD"]
      restart   = "on_failure"
      resources = { memory_mb = 64, cpus = 0.25, pids_limit = 32, disk_mb = 1024 }
      health_check = {
        port         = 8080
        path         = "/ready"
        interval     = "2s"
        timeout      = "5s"
        start_period = "90s"
      }
    }
  }
  process = [{
    name     = "server"
    command  = ["serve", ""]
    env      = { A = "b" }
    cwd      = "/data"
    user     = "1000"
    restart  = "always"
    endpoint = { port = 8080, description = "Talks." }
  }]
  post_start = [{
    command = ["true"]
    env     = { A = "b" }
    user    = "1000"
    timeout = "30s"
  }]
  state = {
    scope              = "agent"
    checkpoint_every   = "1m"
    on_persist_failure = "discard"
    retry_for          = "1h"
    size_limit_mb      = 8
  }
  confinement = {
    user            = "1000:1001"
    seccomp_profile = jsonencode({ defaultAction = "SCMP_ACT_ERRNO" })
    tmp_mb          = 64
    run_mb          = 8
    open_files      = 1024
  }
  warm_pool = {
    size     = 2
    max_size = 6
    mode     = "paused"
    ttl      = "90m"
    paused   = true
  }
  budget = { monthly_usd = "25.00" }
  mount = [{
    source   = "DIR"
    target   = "/maps"
    writable = true
  }]
  copy = [{
    source = "DIR"
    target = "/workspace/maps"
  }]
  archive = [{
    url               = "https://git.example.com/app.tar.gz"
    sha256            = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    target            = "/workspace/data"
    credential_secret = "KEY"
    credential_header = "X-Key"
  }]
  workspace = {
    git = {
      url               = "https://git.example.com/team/app.git"
      ref               = "main"
      depth             = 1
      submodules        = true
      credential_secret = "KEY"
      username          = "ann"
    }
    branch      = "agents/{agent}/{generation}"
    push_prefix = "x-"
    on_end      = "discard"
    path        = "/workspace/code"
  }
}

resource "sandbox_environment" "plain" {
  name    = "NAME"
  image   = "IMAGE"
  network = { mode = "none" }
}

resource "sandbox_lease" "all" {
  agent_did         = "did:plc:ann"
  environment_id    = sandbox_environment.plain.name
  ttl               = "2h"
  sleep_after       = "9m"
  max_lifetime      = "48h"
  expiry_conditions = ["game.finished"]
  labels            = { role = "trader" }
  on_expiry         = "keep"
}

resource "sandbox_container_image" "pushed" {
  name = "REGISTRY/NAME"
  tags = ["latest", "v1"]
  push = true
  build = {
    context           = "DIR"
    dockerfile_inline = "FROM scratch\nCOPY . /\n"
  }
}

resource "sandbox_container_image" "pulled" {
  name = "NAME"
  source = {
    reference = sandbox_container_image.pushed.reference
  }
}
`)
}

// Whatever the settings of an object are, the configuration that Terraform writes for it plans nothing.
func TestAccEverythingMovesIn(t *testing.T) {
	t.Parallel()
	w, dir := providertest.New(t), t.TempDir()
	r := w.ReconcilerOf(func(c *reconciler.Config) {
		c.Host = host.Config{Directories: []string{dir}, Variables: []string{"GAME_REGION"},
			LookupEnv: func(name string) (string, bool) { return "west", name == "GAME_REGION" }}
		c.Workspaces = reconciler.Workspaces{Allow: []string{"git.example.com"}, Dir: t.TempDir()}
	})
	registry := registrytest.Start(t, registrytest.Options{}).Host
	pushed := registry + "/" + w.Name
	first := terraform(t, r.Configuration+everything(w, dir, registry))
	first.Run("apply", "-auto-approve", "-input=false")
	if p := first.Plan(); len(p.Changes) != 0 {
		t.Fatalf("the second plan is %v", p.Changes)
	}

	blocks, want := "", map[string]string{}
	for address, id := range map[string]string{
		"sandbox_environment.all": w.Name + "-all", "sandbox_environment.plain": w.Name,
		"sandbox_lease.all":              "did:plc:ann::" + w.Name,
		"sandbox_container_image.pushed": pushed + ":latest", "sandbox_container_image.pulled": w.Name + ":latest",
	} {
		blocks += fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", address, id)
		want[address] = "import"
	}
	second := terraform(t, r.Configuration+blocks)
	generate(second)
	if p := second.Plan(); !maps.Equal(p.Changes, want) || len(p.Diagnostics) != 0 {
		t.Fatalf("with the configuration that Terraform wrote, the plan is %+v:\n%s", p, second.Read("generated.tf"))
	}
	second.Run("apply", "-auto-approve", "-input=false")
	if p := second.Plan(); len(p.Changes) != 0 {
		t.Errorf("after the import the plan is %v", p.Changes)
	}
	first.Run("destroy", "-auto-approve", "-input=false")
}

// unquoted are keys with dots, as OpenTofu 1.12 writes them.
var unquoted = regexp.MustCompile(`(?m)^(\s*)([\w*-]+(?:\.[\w*-]+)+)(\s*=)`)

// generate has Terraform write the configuration of what is imported. OpenTofu fails on keys with dots, which it does not
// quote, so generate does what the guide says.
func generate(tf *providertest.CLI) {
	plan := []string{"plan", "-input=false", "-generate-config-out=generated.tf"}
	if !strings.HasPrefix(tf.Run("version"), "OpenTofu") {
		tf.Run(plan...)
		return
	}
	tf.Fail(plan...)
	tf.Write("generated.tf", unquoted.ReplaceAllString(tf.Read("generated.tf"), `$1"$2"$3`))
}
