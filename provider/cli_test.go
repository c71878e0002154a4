package provider_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// program is the provider, which the first test that needs it builds.
var program func() (string, error)

func TestMain(m *testing.M) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	if !set && os.Getenv("SANDBOX_TEST_LONG") == "" {
		if err := flag.Set("rapid.checks", "50"); err != nil { // each case syncs a real ledger to disk
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "terraform-provider-sandbox-*")
	if err != nil {
		panic(err)
	}
	program = sync.OnceValues(func() (string, error) { return providertest.Build(dir) })
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// terraform returns a CLI in a directory with this configuration.
func terraform(t *testing.T, configuration string) *providertest.CLI {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return providertest.NewCLI(t, path, configuration)
}

func environment(w *providertest.World) string {
	return fmt.Sprintf(`
resource "sandbox_environment" "game" {
  name  = %q
  type  = "rpg"
  image = %q
  network = {
    mode = "none"
  }
}
`, w.Name, w.Image)
}

func lease(agent, more string) string {
	return fmt.Sprintf(`
resource "sandbox_lease" %q {
  agent_did      = "did:plc:%s"
  environment_id = sandbox_environment.game.name
  %s
}
`, agent, agent, more)
}

// A plan reports leases that ended, vanished or were changed: each once, by name. Later plans repeat a report only
// while something remains to be done about it.
func TestAccPlanReportsWhatHappened(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, configuration string) {
		tf := terraform(t, configuration+environment(w)+lease("dead", "")+lease("removed", "")+lease("changed", "")+
			lease("again", `on_expiry = "recreate"`))
		tf.Run("apply", "-auto-approve", "-input=false")
		if p := tf.Plan(); len(p.Changes) != 0 || len(p.Diagnostics) != 0 {
			t.Fatalf("a plan after an apply is not empty: %+v", p)
		}
		happen(t, w)
		tellsAll(t, w, tf)
		tf.Run("apply", "-auto-approve", "-input=false")
		p := tf.Plan()
		if len(p.Changes) != 0 || len(p.Diagnostics) != 1 {
			t.Errorf("after the next apply only the drift that is left must be told, and nothing planned: %+v", p)
		}
		p.Warning(t, "Lease did:plc:changed::"+w.Name+" Changed Outside Of Terraform")
		tf.Run("destroy", "-auto-approve", "-input=false")
	})
}

// happen ends two leases, removes the sandbox of a third and changes that of a fourth.
func happen(t *testing.T, w *providertest.World) {
	t.Helper()
	service := w.Service()
	w.Condition(service, "agent.death", w.Name, "did:plc:dead")
	w.Condition(service, "agent.death", w.Name, "did:plc:again")
	id := func(agent string) string {
		l, err := service.GetLease(t.Context(), sandbox.LeaseID("did:plc:"+agent, w.Name))
		w.Must(err)
		return w.Container(l.SandboxID)
	}
	w.Must(w.Docker.ContainerRemove(t.Context(), id("removed"), dockerapi.ContainerRemoveOptions{Force: true}))
	_, err := w.Docker.ContainerUpdate(t.Context(), id("changed"), dockerapi.UpdateConfig{
		Resources: dockerapi.Resources{Memory: 96 << 20, MemorySwap: 96 << 20},
	})
	w.Must(err)
}

func tellsAll(t *testing.T, w *providertest.World, tf *providertest.CLI) {
	t.Helper()
	p := tf.Plan()
	if len(p.Diagnostics) != 3 {
		t.Errorf("want three warnings: %+v", p.Diagnostics)
	}
	for summary, says := range map[string]string{
		"2 Leases Of Environment " + w.Name + " Ended":                       "(2 by condition)",
		"Lease did:plc:removed::" + w.Name + " Vanished":                     "the next apply leases it again",
		"Lease did:plc:changed::" + w.Name + " Changed Outside Of Terraform": "memory_mb: expected 512, observed 96",
	} {
		d := p.Warning(t, summary)
		if !strings.Contains(d.Detail, says) {
			t.Errorf("%s: the detail does not say %q:\n%s", summary, says, d.Detail)
		}
	}
	d := p.Warning(t, "2 Leases Of Environment "+w.Name+" Ended")
	for _, says := range []string{"and cost $", "this is not drift", "did:plc:dead", "did:plc:again", "on_expiry is keep",
		"replace_triggered_by"} {
		if !strings.Contains(d.Detail, says) {
			t.Errorf("the end of two does not say %q:\n%s", says, d.Detail)
		}
	}
	want := map[string]string{"sandbox_lease.removed": "create", "sandbox_lease.again": "update"}
	if fmt.Sprint(p.Changes) != fmt.Sprint(want) {
		t.Errorf("planned %v, want %v", p.Changes, want)
	}
	human := tf.Run("plan", "-no-color", "-input=false")
	if !strings.Contains(human, `" -> "active"`) {
		t.Errorf("the plan does not show that the lease becomes active:\n%s", human)
	}
}

func TestAccProviderAlone(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tf := terraform(t, "provider \"sandbox\" {}\n"+environment(w)+lease("alice", ""))
	w.Watch(tf.LedgerURL())
	ledger := strings.TrimPrefix(tf.LedgerURL(), "sqlite://")

	tf.Run("validate")
	tf.Run("plan", "-input=false")
	if _, err := os.Stat(ledger); !os.IsNotExist(err) {
		t.Errorf("a plan of new objects created a ledger: %v", err)
	}
	tf.Run("apply", "-auto-approve", "-input=false")
	info, err := os.Stat(ledger)
	w.Must(err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the ledger has mode %v", info.Mode())
	}
	if _, err := os.Stat(ledger + "-wal"); !os.IsNotExist(err) {
		t.Errorf("the provider did not close the ledger: %v", err)
	}
	if p := tf.Plan(); len(p.Changes) != 0 || len(p.Diagnostics) != 0 {
		t.Errorf("the second plan is not empty: %+v", p)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// A reconciler from the environment variables. Its token reaches neither state nor logs.
func TestAccReconcilerFromTheEnvironment(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r := w.Reconciler()
	tf := terraform(t, "provider \"sandbox\" {}\n"+environment(w)+lease("alice", ""))
	tf.Env = append(tf.Env, "SANDBOX_RECONCILER_URL="+r.URL, "SANDBOX_RECONCILER_TOKEN="+r.Token,
		"TF_LOG=trace", "TF_LOG_PATH="+filepath.Join(tf.Dir, "log"))
	tf.Run("apply", "-auto-approve", "-input=false")
	for _, name := range []string{"log", "terraform.tfstate"} {
		text, err := os.ReadFile(filepath.Join(tf.Dir, name))
		w.Must(err)
		if strings.Contains(string(text), r.Token) {
			t.Errorf("%s holds the token", name)
		}
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
	if _, err := os.Stat(strings.TrimPrefix(tf.LedgerURL(), "sqlite://")); !os.IsNotExist(err) {
		t.Errorf("a ledger was made beside the reconciler's: %v", err)
	}
}

// Terraform plans again before it applies, sees another context_hash than the approved one, and stops by itself. A
// provider cannot know which of the plans it makes, so the message is Terraform's.
func TestAccContextChangedBetweenPlanAndApply(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tf := terraform(t, w.Embedded()+fmt.Sprintf(
		"resource \"sandbox_container_image\" \"i\" {\n  name = %q\n  build = {\n    context = \"player\"\n  }\n}\n", w.Name))
	tf.Write("player/Dockerfile", "FROM scratch\nCOPY . /\n")
	tf.Write("player/rules", w.Name)
	tf.Run("plan", "-out=planned", "-input=false")
	tf.Write("player/rules", w.Name+" changed")
	if out := tf.Fail("apply", "-no-color", "-input=false", "planned"); !strings.Contains(out, ".context_hash: was") {
		t.Errorf("the error does not say what changed:\n%s", out)
	}
	if left := tf.Run("state", "list"); left != "" {
		t.Errorf("the state holds %s", left)
	}
	if _, err := w.Docker.ImageInspect(t.Context(), w.Name+":latest"); err == nil {
		t.Errorf("an unapproved image was built")
	}
}

// A plan refuses a lease that its environment has ended for good, before an apply destroys the one that it replaces. The
// plan that raises the epoch creates it.
func TestAccALeaseInAnEndedEnvironmentIsRefusedAtPlan(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	configuration := w.Embedded() + environment(w) + lease("alice", "")
	tf := terraform(t, configuration)
	tf.Run("apply", "-auto-approve", "-input=false")
	w.Condition(w.Service(), "game.finished", w.Name, "")
	refused := func(args ...string) {
		t.Helper()
		said := strings.Join(strings.Fields(strings.ReplaceAll(tf.Fail(append(args, "-input=false", "-no-color")...), "│", "")), " ")
		for _, says := range []string{
			"Environment Has Ended", "Environment " + w.Name + " ended by game.finished", "Raise the environment's epoch to 1",
		} {
			if !strings.Contains(said, says) {
				t.Errorf("%v does not say %q: %s", args, says, said)
			}
		}
	}
	refused("apply", "-auto-approve", "-replace=sandbox_lease.alice")
	if l, err := w.Service().GetLease(w.Context(), sandbox.LeaseID("did:plc:alice", w.Name)); err != nil || l.Generation != 1 {
		t.Errorf("the lease is in generation %d: %v", l.Generation, err)
	}
	more := configuration + lease("bob", "")
	tf.Write("main.tf", more)
	refused("plan")
	reopened := strings.Replace(more, `type  = "rpg"`, `type  = "rpg"
  epoch = 1`, 1)
	tf.Write("main.tf", reopened)
	tf.Run("apply", "-auto-approve", "-input=false", "-replace=sandbox_lease.alice")
	if p := tf.Plan(); len(p.Changes) != 0 {
		t.Errorf("planned %v", p.Changes)
	}
	w.Condition(w.Service(), "agent.death", w.Name, "did:plc:alice") // ends no other lease
	tf.Run("apply", "-auto-approve", "-input=false", "-replace=sandbox_lease.alice")
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// A plan that was approved before a game ended is still applied. The next plan reports the end.
func TestAccGameEndsBetweenPlanAndApply(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	configuration := w.Embedded() + environment(w) + lease("alice", "")
	tf := terraform(t, configuration)
	tf.Run("apply", "-auto-approve", "-input=false")
	tf.Write("main.tf", strings.Replace(configuration, `type  = "rpg"`, `type  = "rpg"
  ttl   = "1h"`, 1))
	tf.Run("plan", "-out=planned", "-input=false")
	w.Condition(w.Service(), "game.finished", w.Name, "")
	tf.Run("apply", "-input=false", "planned")
	p := tf.Plan()
	d := p.Warning(t, "Environment "+w.Name+" Ended")
	for _, says := range []string{
		"1 lease ended since", "did:plc:alice", "raise its epoch to 1. Its leases with on_expiry = \"recreate\" follow. " +
			"Kept ones follow if their lifecycle has replace_triggered_by = [sandbox_environment.<name>.epoch], or with -replace.",
	} {
		if !strings.Contains(d.Detail, says) {
			t.Errorf("the warning does not say %q: %s", says, d.Detail)
		}
	}
	if len(p.Diagnostics) != 1 {
		t.Errorf("want one warning, of the environment and its lease: %+v", p.Diagnostics)
	}
	if len(p.Changes) != 0 {
		t.Errorf("planned %v", p.Changes)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// The context of an image may be the directory of the configuration. The files that Terraform writes there are no part
// of it.
func TestAccTheContextIsTheConfiguration(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tf := terraform(t, w.Embedded()+fmt.Sprintf(`
resource "sandbox_container_image" "player" {
  name = %[1]q
  build = {
    context = path.module
  }
}
resource "sandbox_environment" "game" {
  name  = %[1]q
  image = sandbox_container_image.player.reference
}
`, w.Name))
	tf.Write("Dockerfile", "FROM scratch\nLABEL test="+w.Name+"\nCOPY . /\n")
	saved := filepath.Join(t.TempDir(), "plan")
	tf.Run("plan", "-out="+saved, "-input=false")
	tf.Run("apply", "-input=false", saved)
	tf.Run("apply", "-refresh-only", "-auto-approve", "-input=false") // writes a backup of the state
	if p := tf.Plan(); len(p.Changes) != 0 {
		t.Errorf("after an apply the plan has changes: %+v", p)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}
