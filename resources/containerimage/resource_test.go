package containerimage_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/compare"
	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

const address = "sandbox_container_image.test"

// player writes a build context and returns its directory.
func player(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	// The first label keeps tests from sharing cached steps, which the end of one test would remove.
	write(t, dir, "Dockerfile",
		"FROM scratch\nLABEL test="+name+"\nARG GREETING=hello\nLABEL greeting=$GREETING\nCOPY . /\n")
	write(t, dir, ".dockerignore", "*.log\n")
	write(t, dir, "rules.txt", name)
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func built(w *providertest.World, dir, build, more string) string {
	return w.Embedded() + fmt.Sprintf(`
resource "sandbox_container_image" "test" {
  name = %q
  build = {
    context = %q
    %s
  }
  %s
}
`, w.Name, dir, build, more)
}

// adopted returns the configuration of an imported image.
func adopted(w *providertest.World, more string) string {
	return w.Embedded() +
		fmt.Sprintf("resource \"sandbox_container_image\" \"test\" {\n  name = %q\n  %s\n}\n", w.Name, more)
}

func value(attribute string, check knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(address, tfjsonpath.New(attribute), check)
}

func action(a plancheck.ResourceActionType) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, a)}}
}

func tags(names ...string) knownvalue.Check {
	var checks []knownvalue.Check
	for _, n := range names {
		checks = append(checks, knownvalue.StringExact(n))
	}
	return knownvalue.SetExact(checks)
}

// onEngine returns the id of a reference on the engine, "" if there is none.
func onEngine(w *providertest.World, ref string) string {
	found, err := w.Docker.ImageInspect(context.Background(), ref)
	if err != nil {
		return ""
	}
	return found.ID
}

func removed(w *providertest.World, refs ...string) func(*terraform.State) error {
	return func(*terraform.State) error {
		for _, ref := range refs {
			if onEngine(w, ref) != "" {
				return fmt.Errorf("image %s is still there", ref)
			}
		}
		return nil
	}
}

func TestAccContainerImage(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	dir := player(t, w.Name)
	digest := knownvalue.StringRegexp(regexp.MustCompile(`^sha256:[0-9a-f]{64}$`))
	differ := statecheck.CompareValue(compare.ValuesDiffer())
	same := statecheck.CompareValue(compare.ValuesSame())
	inline := statecheck.CompareValue(compare.ValuesSame())
	imageID := tfjsonpath.New("image_id")
	unknownID := plancheck.ExpectUnknownValue(address, imageID)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             removed(w, w.Name+":latest", w.Name+":v1", w.Name+":v2"),
		Steps: []resource.TestStep{
			{
				Config: built(w, dir, "", ""),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectKnownValue(address, tfjsonpath.New("context_hash"), digest), unknownID,
				}},
				ConfigStateChecks: []statecheck.StateCheck{
					differ.AddStateValue(address, imageID), value("tags", tags("latest")), value("image_id", digest),
					value("reference", digest), value("context_hash", digest), value("id", knownvalue.StringExact(w.Name)),
					value("instance", knownvalue.NotNull()),
				},
			},
			{ // an ignored file and a new modification time change nothing
				PreConfig: func() {
					write(t, dir, "debug.log", "noise")
					write(t, dir, "rules.txt", w.Name)
				},
				Config: built(w, dir, "", ""), PlanOnly: true,
			},
			{ // a changed file is built in place
				PreConfig: func() { write(t, dir, "rules.txt", w.Name+" 2") },
				Config:    built(w, dir, "", ""),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate), unknownID,
					plancheck.ExpectKnownValue(address, tfjsonpath.New("context_hash"), digest),
				}},
				ConfigStateChecks: []statecheck.StateCheck{
					differ.AddStateValue(address, imageID), same.AddStateValue(address, imageID),
				},
			},
			{ // tags move without a build
				Config:            built(w, dir, "", `tags = ["v1", "v2"]`),
				ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{same.AddStateValue(address, imageID), value("tags", tags("v1", "v2"))},
			},
			{
				ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: w.Name + ":v1",
				ImportStateVerifyIgnore: []string{"build"},
			},
			{ // without a build it stays as it is
				Config:            adopted(w, `tags = ["v1", "v2"]`),
				ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{same.AddStateValue(address, imageID)},
			},
			{ // but it cannot become another image
				Config:      strings.Replace(adopted(w, ""), w.Name, w.Name+"-2", 1),
				ExpectError: regexp.MustCompile(`Missing Build Or Source`),
			},
			{ // an equal build block causes no rebuild
				Config:            built(w, dir+"/.", `dockerfile = "Dockerfile"`, `tags = ["v1", "v2"]`),
				ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{same.AddStateValue(address, imageID)},
			},
			{ // a Dockerfile elsewhere is another build, another builder is not
				Config: built(w, dir,
					`dockerfile_inline = "FROM scratch\nCOPY rules.txt /\nLABEL inline=1\n"`, `tags = ["v1"]`),
				ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{inline.AddStateValue(address, imageID)},
			},
			{
				Config: built(w, dir, `dockerfile_inline = "FROM scratch\nCOPY rules.txt /\nLABEL inline=1\n"
    no_cache = true`, `tags = ["v1"]`),
				ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{inline.AddStateValue(address, imageID)},
			},
			{
				Config:            built(w, dir, `args = { GREETING = "ahoy" }`, `tags = ["v1"]`),
				ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{differ.AddStateValue(address, imageID), value("tags", tags("v1"))},
			},
		},
	})
}

func TestAccContainerImageChangedByHand(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	dir := player(t, w.Name)
	conf := built(w, dir, "", `tags = ["v1", "v2"]`)
	remove := func(refs ...string) {
		for _, ref := range refs {
			_, err := w.Docker.ImageRemove(t.Context(), ref, dockerapi.ImageRemoveOptions{PruneChildren: true})
			w.Must(err)
		}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             removed(w, w.Name+":v1", w.Name+":v2"),
		Steps: []resource.TestStep{
			{Config: conf},
			{ // one tag is gone, and restored
				PreConfig:         func() { remove(w.Name + ":v2") },
				Config:            conf,
				ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{value("tags", tags("v1", "v2"))},
			},
			{ // one tag points elsewhere
				PreConfig:        func() { w.Must(w.Docker.ImageTag(t.Context(), w.Image, w.Name+":v2")) },
				Config:           conf,
				ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			},
			{ // the image is gone
				PreConfig:        func() { remove(w.Name+":v1", w.Name+":v2") },
				Config:           conf,
				ConfigPlanChecks: action(plancheck.ResourceActionCreate),
			},
		},
	})
}

func TestAccContainerImageOnDestroy(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		more  string
		stays bool
		other bool // another name of the image stays
		use   bool // a container uses it
	}{
		"untag":        {more: `on_destroy = "untag"`},
		"untag, named": {more: `on_destroy = "untag"`, other: true},
		"untag in use": {more: `on_destroy = "untag"`, use: true, stays: true},
		"keep":         {more: `on_destroy = "keep"`, stays: true},
		"delete":       {more: `on_destroy = "delete"`},
		"delete named": {more: `on_destroy = "delete"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			ref, other := w.Name+":latest", w.Name+"-other:latest"
			var id string
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				Steps: []resource.TestStep{{
					Config: built(w, player(t, w.Name), "", tt.more),
					Check: func(*terraform.State) error {
						id = onEngine(w, ref)
						if strings.Contains(name, "named") {
							w.Must(w.Docker.ImageTag(t.Context(), id, other))
						}
						if tt.use {
							use(t, w, id)
						}
						return nil
					},
				}},
			})
			if got := onEngine(w, ref) != ""; got != tt.stays {
				t.Errorf("%s is on the engine: %v, want %v", ref, got, tt.stays)
			}
			if got := onEngine(w, other) != ""; got != tt.other {
				t.Errorf("%s is on the engine: %v, want %v", other, got, tt.other)
			}
			if got := onEngine(w, id) != ""; got != (tt.stays || tt.other) {
				t.Errorf("the image is on the engine: %v", got)
			} else if got {
				t.Cleanup(func() {
					_, err := w.Docker.ImageRemove(context.Background(), id,
						dockerapi.ImageRemoveOptions{Force: true, PruneChildren: true})
					w.Must(err)
				})
			}
		})
	}
}

// A superseded image that is kept has its tags: only those that the new image has move.
func TestAccContainerImageThatIsKept(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{})
	dir := player(t, w.Name)
	conf := func(tags string) string {
		return s.named(built(w, dir, "", "push = true\nkeep_tags = 10\non_destroy = \"keep\"\ntags = "+tags+"\n"))
	}
	var ids, digests [2]string
	look := func(i int, tag string) resource.TestCheckFunc {
		return func(*terraform.State) error {
			ids[i], digests[i] = onEngine(w, s.name+":"+tag), s.digest(tag)
			return nil
		}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: conf(`["latest", "v1"]`), Check: look(0, "v1")},
			{
				PreConfig: func() { write(t, dir, "rules.txt", w.Name+" 2") }, Config: conf(`["latest", "v2", "v2.0"]`),
				Check: look(1, "v2"),
			},
			{Config: conf(`["latest", "v2"]`)}, // the same image, without a tag
		},
	})
	for tag, i := range map[string]int{"v1": 0, "v2": 1, "latest": 1} {
		if ids[i] == "" || onEngine(w, s.name+":"+tag) != ids[i] || digests[i] == "" || s.digest(tag) != digests[i] {
			t.Errorf("%s does not point to its image", tag)
		}
	}
	if ids[0] == ids[1] || onEngine(w, s.name+":v2.0") != "" {
		t.Errorf("two images, and not v2.0: %v", ids)
	}
	builder := image.NewBuilder(func() (image.Engine, error) { return w.Docker, nil })
	for _, id := range ids {
		w.Must(builder.Delete(t.Context(), id))
	}
}

// use creates a container from an image, and removes it when the test ends.
func use(t *testing.T, w *providertest.World, id string) {
	t.Helper()
	made, err := w.Docker.ContainerCreate(t.Context(),
		&dockerapi.ContainerConfig{Image: id, Cmd: []string{"/none"}}, nil, nil, nil, "")
	w.Must(err)
	t.Cleanup(func() {
		w.Must(w.Docker.ContainerRemove(context.Background(), made.ID, dockerapi.ContainerRemoveOptions{Force: true}))
	})
}

func TestAccContainerImageUnderItsShortName(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	short := strings.NewReplacer(`"sandbox_container_image" "test" {`,
		"\"container_image\" \"test\" {\n  provider = sandbox").
		Replace(built(w, player(t, w.Name), "", ""))
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             removed(w, w.Name+":latest"),
		Steps:                    []resource.TestStep{{Config: short}, {Config: short, PlanOnly: true}},
	})
}

func TestAccContainerImageUnknownValues(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	dir := player(t, w.Name)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{{
			Config: w.Embedded() + fmt.Sprintf(`
variable "text" { type = string }
resource "terraform_data" "text" { input = var.text }
resource "sandbox_container_image" "test" {
  name = "%s-${terraform_data.text.output}"
  tags = [terraform_data.text.output]
  build = {
    context = "%s/${terraform_data.text.output == "x" ? "." : "none"}"
    args    = { GREETING = terraform_data.text.output }
  }
}
`, w.Name, dir),
			ConfigVariables: config.Variables{"text": config.StringVariable("x")},
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue(address, tfjsonpath.New("context_hash")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{value("tags", tags("x")), value("context_hash", knownvalue.NotNull())},
		}},
	})
}

// A build secret reaches the step that asks for it. Plan and state never have it.
func TestAccContainerImageSecrets(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	// The file keeps the step from being cached for other tests. A label would not.
	dockerfile := fmt.Sprintf(
		`FROM %s\nCOPY rules.txt /%s\nRUN --mount=type=secret,id=token test \"$(cat /run/secrets/token)\" = hunter2\n`,
		w.Image, w.Name)
	conf := func(build string) string {
		return built(w, player(t, w.Name), fmt.Sprintf("dockerfile_inline = \"%s\"\n%s", dockerfile, build), "")
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             removed(w, w.Name+":latest"),
		Steps: []resource.TestStep{
			{
				Config:      conf(`secrets = { token = { value_wo = "wrong" } }`),
				ExpectError: regexp.MustCompile(`(?s)Building Image Failed.*exit\s+code:\s+1`),
			},
			{ // without the earlier step: the classic builder would leave its image
				Config:      strings.Replace(conf(`builder = "classic"`), `COPY rules.txt /`+w.Name+`\n`, "", 1),
				ExpectError: regexp.MustCompile(`(?s)Building Image Failed.*BuildKit`),
			},
			{
				Config: conf(`secrets = { token = { value_wo = "hunter2" } }`),
				ConfigStateChecks: []statecheck.StateCheck{
					value("image_id", knownvalue.NotNull()), statecheck.ExpectKnownValue(address,
						tfjsonpath.New("build").AtMapKey("secrets").AtMapKey("token").AtMapKey("value_wo"), knownvalue.Null()),
				},
			},
			{Config: conf(""), ConfigPlanChecks: action(plancheck.ResourceActionUpdate)},
		},
	})
}

func TestAccContainerImageErrors(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	dir := player(t, w.Name)
	broken := t.TempDir()
	write(t, broken, "Dockerfile", "FROM scratch\nCOPY missing /\n")
	says := func(s string) *regexp.Regexp {
		return regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(s), " ", `\s+`))
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{PlanOnly: true, Config: built(w, filepath.Join(dir, "none"), "", ""), ExpectError: says("Invalid Build Context")},
			{
				PlanOnly:    true,
				Config:      built(w, dir, `dockerfile = "../Dockerfile"`, ""),
				ExpectError: says("is outside of the build context"),
			},
			{
				PlanOnly:    true,
				Config:      built(w, dir, "dockerfile = \"a\"\ndockerfile_inline = \"FROM scratch\"", ""),
				ExpectError: says("dockerfile_inline"),
			},
			{
				PlanOnly:    true,
				Config:      strings.Replace(built(w, dir, "", ""), "build = {", "source = { reference = \"x:1\" }\nbuild = {", 1),
				ExpectError: says("Invalid Attribute Combination"),
			},
			{PlanOnly: true, Config: built(w, dir, "", `tags = []`), ExpectError: says("at least 1")},
			{PlanOnly: true, Config: built(w, dir, "args = { A = null }", ""), ExpectError: says("must not be null")},
			{PlanOnly: true, Config: built(w, dir, `target = ""`, ""), ExpectError: says("build.target must not be empty")},
			{
				PlanOnly:    true,
				Config:      built(w, dir, "builder = \"classic\"\nsecrets = { a = { value_wo = \"x\" } }", ""),
				ExpectError: says("build.builder must not be classic"),
			},
			{PlanOnly: true, Config: built(w, dir, "", `tags = ["a b"]`), ExpectError: says("must be a tag such as latest")},
			{
				PlanOnly:    true,
				Config:      built(w, dir, "", `on_destroy = "burn"`),
				ExpectError: says("on_destroy value must be one of"),
			},
			{
				PlanOnly:    true,
				Config:      strings.Replace(built(w, dir, "", ""), w.Name, w.Name+":1", 1),
				ExpectError: says("without tag and digest"),
			},
			{
				PlanOnly:    true,
				Config:      w.Embedded() + `resource "sandbox_container_image" "test" { name = "x" }`,
				ExpectError: says("build"),
			},
			{Config: built(w, broken, "", ""), ExpectError: says("lines of the build's log")},
		},
	})
}

func TestAccContainerImageEngineAway(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	dir := player(t, w.Name)
	away := strings.Replace(built(w, dir, "", ""), w.Embedded(),
		fmt.Sprintf("provider \"sandbox\" {\n  docker = {\n    host = \"unix://%s/docker.sock\"\n  }\n}\n", t.TempDir()), 1)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: built(w, dir, "", "")},
			{Config: away, ExpectError: regexp.MustCompile(`(?s)Reading Image Failed.*Terraform's\s+state\s+is\s+unchanged`)},
			{Config: built(w, dir, "", ""), PlanOnly: true},
		},
	})
}
