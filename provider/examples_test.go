package provider_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Every example of a resource is applied as written, and the result is imported as its page says.
func TestAccExamples(t *testing.T) {
	t.Parallel()
	var examples []string
	for _, kind := range []string{"resources/*/resource.tf", "ephemeral-resources/*/ephemeral-resource.tf"} {
		found, err := filepath.Glob("../examples/" + kind)
		if err != nil || len(found) == 0 {
			t.Fatalf("found %v of %s, %v", found, kind, err)
		}
		examples = append(examples, found...)
	}
	for _, example := range examples {
		dir := strings.TrimPrefix(filepath.Dir(example), "../")
		t.Run(strings.TrimPrefix(dir, "examples/"), func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			tf := copyExamples(t)
			w.Watch(tf.LedgerURL())
			tf.Env = append(tf.Env, "TF_VAR_github_token=of-the-example", "TF_VAR_git_token=of-the-example",
				"TF_VAR_model_key=of-the-example", "TF_VAR_database_password=of-the-example")
			tf.Dir = filepath.Join(tf.Dir, dir)
			switch filepath.Base(dir) {
			case "sandbox_container_image":
				withRegistries(t, w, tf)
			case "sandbox_environment": // another test applies what needs a reconciler
				w.Must(os.Remove(filepath.Join(tf.Dir, "resource-mount.tf")))
				w.Must(os.Remove(filepath.Join(tf.Dir, "resource-workspace.tf")))
			}
			blocks := takeImports(t, tf)
			tf.Run("apply", "-auto-approve", "-input=false")
			if p := tf.Plan(); len(p.Changes) > 0 {
				t.Errorf("the second plan is %v", p.Changes)
			}
			if _, err := os.Stat(filepath.Join(tf.Dir, "import.sh")); err == nil {
				imported(t, tf)
			}
			if blocks != "" {
				importedByBlocks(t, tf, blocks)
			}
			tf.Run("destroy", "-auto-approve", "-input=false")
		})
	}
}

// withRegistries replaces the registries in the examples of images with the test's.
func withRegistries(t *testing.T, w *providertest.World, tf *providertest.CLI) {
	t.Helper()
	private, public := registrytest.Start(t, registrytest.Options{Auth: true}), registrytest.Start(t, registrytest.Options{})
	const pushed, source, devcontainer = "resource-registry.tf", "resource-source.tf",
		"project/.devcontainer/devcontainer.json"
	tf.Write(pushed, strings.ReplaceAll(tf.Read(pushed), "registry.example.com", private.Host))
	tf.Write(devcontainer, strings.ReplaceAll(tf.Read(devcontainer), "busybox:1.36", public.Host+"/busybox:1.36"))
	tf.Write(source, strings.ReplaceAll(tf.Read(source), "busybox:1.36", public.Host+"/busybox:1.36"))
	tf.Env = append(tf.Env, "TF_VAR_registry_token="+registrytest.Password)
	base := public.Host + "/busybox:1.36"
	out, err := tf.Script("docker tag " + w.Image + " " + base + "\ndocker push " + base + "\ndocker image rm " + base)
	if err != nil {
		t.Fatalf("push the base image: %v\n%s", err, out)
	}
	t.Cleanup(func() { // on_destroy = "keep" leaves it
		for _, tag := range []string{":latest", ":v2"} {
			_, err := w.Docker.ImageRemove(context.Background(), private.Host+"/games/player"+tag, dockerapi.ImageRemoveOptions{})
			if err != nil {
				t.Errorf("remove what was pushed: %v", err)
			}
		}
	})
}

// The example with host files is applied through a reconciler that allows them.
func TestAccExampleOfHostFiles(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	games := t.TempDir()
	w.Must(os.Mkdir(filepath.Join(games, "rules"), 0o755))
	w.Must(os.Mkdir(filepath.Join(games, "logs"), 0o755))
	w.Must(os.Chown(filepath.Join(games, "logs"), 20000, 20000))
	w.Must(os.WriteFile(filepath.Join(games, "board.json"), []byte("{}"), 0o644))
	r := w.ReconcilerWith(host.Config{Directories: []string{games}})
	example := strings.ReplaceAll(read(t, "../examples/resources/sandbox_environment/resource-mount.tf"), "/srv/games", games)
	tf := terraform(t, r.Configuration+strings.ReplaceAll(example, "sandbox_container_image.player.reference",
		fmt.Sprintf("%q", w.Image)))
	tf.Run("apply", "-auto-approve", "-input=false")
	if p := tf.Plan(); len(p.Changes) > 0 {
		t.Errorf("the second plan is %v", p.Changes)
	}
	service, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	w.Must(err)
	l, err := service.Acquire(t.Context(), sandbox.Acquire{AgentDID: "did:plc:ada", EnvironmentID: "library-1"})
	w.Must(err)
	_, err = service.Exec(t.Context(), sandbox.LeaseRef{ID: l.Lease.ID}, sandbox.ExecRequest{
		Command: []string{"sh", "-c", "echo played > /var/log/agents-sandbox/$ENVIRONMENT_ID.log"},
	})
	w.Must(err)
	if got := read(t, filepath.Join(games, "logs", "library-1.log")); got != "played\n" {
		t.Errorf("the log has %q", got)
	}
	_, err = service.Release(t.Context(), sandbox.LeaseRef{ID: l.Lease.ID})
	w.Must(err)
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// imported removes the object that the script imports from the state, and imports it. Nothing is created again.
func imported(t *testing.T, tf *providertest.CLI) {
	t.Helper()
	script := tf.Read("import.sh")
	command := strings.Split(script[strings.LastIndex(script, "terraform import "):], " ")
	out, err := tf.Script("terraform state rm " + command[2] + "\n" + script)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	for object, change := range tf.Plan().Changes {
		if change != "update" {
			t.Errorf("after\n%sthe plan is to %s %s", script, change, object)
		}
	}
	tf.Run("apply", "-auto-approve", "-input=false")
	if p := tf.Plan(); len(p.Changes) > 0 {
		t.Errorf("after the import and an apply the plan is %v", p.Changes)
	}
}

// importBlocks is the example file of a resource that imports many objects.
const importBlocks = "import-by-string-id.tf"

// takeImports removes the import blocks from an example and returns them, because the objects do not exist yet.
func takeImports(t *testing.T, tf *providertest.CLI) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(tf.Dir, importBlocks)); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	blocks := tf.Read(importBlocks)
	if err := os.Remove(filepath.Join(tf.Dir, importBlocks)); err != nil {
		t.Fatal(err)
	}
	return blocks
}

// importedByBlocks removes all instances of the resource that the blocks import from the state, and imports them with
// one apply.
func importedByBlocks(t *testing.T, tf *providertest.CLI, blocks string) {
	t.Helper()
	resource := regexp.MustCompile(`to = (\S+)\[`).FindStringSubmatch(blocks)[1]
	tf.Run("state", "rm", resource)
	tf.Write(importBlocks, blocks)
	said := tf.Run("apply", "-auto-approve", "-input=false", "-no-color")
	if !strings.Contains(said, "Resources: 2 imported, 0 added, 0 changed, 0 destroyed.") {
		t.Errorf("the apply that imports %s says\n%s", resource, said)
	}
	if p := tf.Plan(); len(p.Changes) > 0 {
		t.Errorf("after the import the plan is %v", p.Changes)
	}
}

// The examples of the provider's configuration are applied: without a reconciler, with one, and with an account.
func TestAccExamplesOfTheProvider(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r := w.Reconciler()
	_, err := w.Service().PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    w.Name,
		Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: w.Image, Network: sandbox.NetworkNone,
		},
	})
	w.Must(err)
	tf := copyExamples(t)
	w.Watch(tf.LedgerURL())
	tf.Dir = filepath.Join(tf.Dir, "examples", "provider")
	tf.Write("provider_reconciler.tf",
		strings.Replace(tf.Read("provider_reconciler.tf"), "https://reconciler.example.com", r.URL, 1))
	tf.Write("use.tf", `
data "sandbox_environments" "own" {}
data "sandbox_environments" "games" {
  provider = sandbox.games
}
data "sandbox_price_book" "games" {
  provider = sandbox.games
}
data "sandbox_price_book" "edge" {
  provider = sandbox.edge
  backend  = "cloudflare"
}
output "all" {
  value = "own ${length(data.sandbox_environments.own.environments)}, games ${data.sandbox_environments.games.environments[0].name}, prices ${data.sandbox_price_book.games.name}, ${data.sandbox_price_book.edge.name}"
}
`)
	dockerConfig := t.TempDir()
	tf.Env = append(tf.Env, "SANDBOX_RECONCILER_TOKEN="+r.Token, "DOCKER_CONFIG="+dockerConfig,
		"CLOUDFLARE_API_TOKEN=of-the-example")
	out, err := tf.Script("docker context create games --docker host=" + w.Docker.DaemonHost())
	if err != nil {
		t.Fatalf("make the context games: %v\n%s", err, out)
	}
	if said := tf.Run("apply", "-auto-approve", "-input=false",
		"-no-color"); !strings.Contains(said, `all = "own 0, games `+w.Name+`, prices `) {
		t.Errorf("the apply prints\n%s", said)
	}
	w.Must(w.Service().DeleteEnvironment(context.Background(), sandbox.DeleteEnvironment{ID: w.Name, Force: true}))
}

// catan creates the examples' game with one player on a ledger. It ends with the test.
func catan(t *testing.T, w *providertest.World, ledgerURL string) service.Service {
	t.Helper()
	service := w.ServiceOn(ledgerURL)
	_, err := service.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    "catan-7",
		Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: w.Image, Network: sandbox.NetworkNone,
		},
	})
	w.Must(err)
	t.Cleanup(func() {
		w.Must(service.DeleteEnvironment(context.Background(), sandbox.DeleteEnvironment{ID: "catan-7", Force: true}))
	})
	_, err = service.Acquire(t.Context(),
		sandbox.Acquire{AgentDID: "did:plc:kira", EnvironmentID: "catan-7", Owner: "test"})
	w.Must(err)
	return service
}

// The examples of newer CLIs, with the provider called as these CLIs call it.
func TestAccExamplesOfNewerCLIsAtTheProtocol(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	service := catan(t, w, w.LedgerURL)
	c := call(t, w.LedgerURL)
	kira := sandbox.LeaseID("did:plc:kira", "catan-7")
	for kind, want := range map[string]string{"sandbox_environment": "catan-7", "sandbox_lease": kira} {
		if ids, _ := c.list(kind, 0,
			settings(t, "list-resources", kind, "list-resource.tfquery.hcl")); !slices.Equal(ids, []string{want}) {
			t.Errorf("the example of %s lists %q", kind, ids)
		}
	}
	if said := c.expire(settings(t, "actions", "sandbox_expire",
		"action.tf")); said != "1 leases ended by game.finished\n" {
		t.Errorf("the action says %q", said)
	}
	l, err := service.GetLease(t.Context(), kira)
	w.Must(err)
	if l.EndReason != "game.finished: the tournament is over" {
		t.Errorf("the lease ended by %q", l.EndReason)
	}
}

// setting is a line of an example's config block.
var setting = regexp.MustCompile(`(?m)^    (\w+) += "(.*)"$`)

func settings(t *testing.T, path ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range setting.FindAllStringSubmatch(read(t, append([]string{"../examples"}, path...)...), -1) {
		all[m[1]] = m[2]
	}
	return all
}

// The same examples on a CLI that supports them: terraform query, and terraform apply -invoke.
func TestAccExamplesOfNewerCLIs(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tf := terraform(t, "provider \"sandbox\" {}\n")
	needQuery(t, tf)
	w.Watch(tf.LedgerURL())
	catan(t, w, tf.LedgerURL())
	for _, example := range []string{
		"list-resources/sandbox_environment/list-resource.tfquery.hcl",
		"list-resources/sandbox_lease/list-resource.tfquery.hcl", "actions/sandbox_expire/action.tf",
	} {
		tf.Write(strings.ReplaceAll(example, "/", "-"), read(t, "../examples", example))
	}
	said := tf.Run("query", "-no-color")
	for _, line := range []string{
		`list\.sandbox_environment\.games   id=catan-7,ledger_id=[a-z2-7]+   catan-7`,
		`list\.sandbox_lease\.living   id=did:plc:kira::catan-7,ledger_id=[a-z2-7]+   did:plc:kira::catan-7`,
	} {
		if !regexp.MustCompile(line).MatchString(said) {
			t.Errorf("the query does not print %q:\n%s", line, said)
		}
	}
	if said := tf.Run("apply", "-invoke=action.sandbox_expire.finished", "-auto-approve", "-input=false",
		"-no-color"); !strings.Contains(said, "1 leases ended by game.finished") {
		t.Errorf("the action prints\n%s", said)
	}
}

// Every example of a data source is applied, all in one configuration. The game and the player of the examples exist.
func TestAccExamplesOfDataSources(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tf := terraform(t, "")
	w.Watch(tf.LedgerURL())
	catan(t, w, tf.LedgerURL())
	examples, err := filepath.Glob("../examples/data-sources/*/data-source.tf")
	if err != nil || len(examples) != len(provider.New("test")().DataSources(t.Context())) {
		t.Fatalf("found %v, %v", examples, err)
	}
	for _, example := range examples {
		// The example of another test builds the image with that name.
		text := strings.ReplaceAll(read(t, example), "examples/rpg-hero:latest", w.Image)
		tf.Write(filepath.Base(filepath.Dir(example))+".tf", text)
	}
	said := tf.Run("apply", "-auto-approve", "-input=false", "-no-color")
	for _, output := range []string{
		"catan_is_open = true", `"did:plc:kira" = "awake"`, "total_usd = \"0.00\"", `"catan-7" = "` + w.Image + `"`,
	} {
		if !strings.Contains(said, output) {
			t.Errorf("the outputs do not say %s:\n%s", output, said)
		}
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// copyExamples copies all examples, and adds the provider's source to each.
func copyExamples(t *testing.T) *providertest.CLI {
	t.Helper()
	tf := terraform(t, "")
	if err := os.CopyFS(filepath.Join(tf.Dir, "examples"), os.DirFS("../examples")); err != nil {
		t.Fatal(err)
	}
	versions, err := os.ReadFile(filepath.Join(tf.Dir, "versions.tf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"resources", "ephemeral-resources", "data-sources"} {
		dirs, err := filepath.Glob(filepath.Join(tf.Dir, "examples", kind, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			rel, err := filepath.Rel(tf.Dir, dir)
			if err != nil {
				t.Fatal(err)
			}
			tf.Write(filepath.Join(rel, "versions.tf"), string(versions))
		}
	}
	return tf
}
