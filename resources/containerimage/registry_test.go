package containerimage_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/compare"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// shelf is one test's repository in a registry.
type shelf struct {
	*registrytest.Registry
	w      *providertest.World
	client *registry.Client
	name   string
}

func newShelf(t *testing.T, w *providertest.World, o registrytest.Options) *shelf {
	t.Helper()
	r := registrytest.Start(t, o)
	given := map[string]registry.Credentials{
		r.Host: {Username: registrytest.Username, Password: registrytest.Password, CA: r.CA},
	}
	return &shelf{r, w, registry.New(given), r.Host + "/" + w.Name}
}

// digest returns the digest of a tag, "" if there is none.
func (s *shelf) digest(tag string) string {
	digest, err := s.client.Digest(context.Background(), s.name+":"+tag, "")
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		s.w.Errorf("look into the registry: %v", err)
	}
	return digest
}

// put pushes an image that prints a text, and removes it from the engine.
func (s *shelf) put(t *testing.T, tag, says string) string {
	t.Helper()
	builder := image.NewBuilder(func() (image.Engine, error) { return s.w.Docker, nil })
	spec := image.Spec{Context: player(t, s.w.Name+says)}
	hash, err := spec.Hash()
	s.w.Must(err)
	id, err := builder.Build(t.Context(), spec, hash, nil)
	s.w.Must(err)
	s.w.Must(builder.Tag(t.Context(), id, s.name, tag))
	auth, err := s.client.EngineAuth(t.Context(), s.name)
	s.w.Must(err)
	digest, err := builder.Push(t.Context(), s.name, tag, auth)
	s.w.Must(err)
	s.w.Must(builder.Delete(t.Context(), id))
	return digest
}

// named returns the configuration of an image with the shelf's name.
func (s *shelf) named(config string) string {
	return strings.Replace(config, fmt.Sprintf("name = %q", s.w.Name), fmt.Sprintf("name = %q", s.name), 1)
}

func (s *shelf) source(reference, block, more string) string {
	return s.w.Embedded() + fmt.Sprintf(`
resource "sandbox_container_image" "test" {
  name = %q
  source = {
    reference = %q
    %s
  }
  %s
}
`, s.w.Name, reference, block, more)
}

var aDigest = knownvalue.StringRegexp(regexp.MustCompile(`^sha256:[0-9a-f]{64}$`))

var positive = knownvalue.Int64Func(func(v int64) error {
	if v <= 0 {
		return fmt.Errorf("got %d, want more than 0", v)
	}
	return nil
})

func copies(places ...string) statecheck.StateCheck { return value("copies", tags(places...)) }

// A pushed image has two copies, and each can restore the other.
func TestAccContainerImagePushed(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{})
	conf := func(more string) string {
		return s.named(built(w, player(t, w.Name), "", "push = true\non_destroy = \"delete\"\n"+more))
	}
	both := conf(`tags = ["v1", "v2"]`)
	removeLocal := func() {
		for _, tag := range []string{"v1", "v2"} {
			_, err := w.Docker.ImageRemove(t.Context(), s.name+":"+tag, dockerapi.ImageRemoveOptions{PruneChildren: true})
			w.Must(err)
		}
	}
	removeRemote := func() { w.Must(s.client.Delete(t.Context(), s.name+"@"+s.digest("v1"))) }
	same := statecheck.CompareValue(compare.ValuesSame())
	update := action(plancheck.ResourceActionUpdate)
	whole := func() []statecheck.StateCheck {
		return []statecheck.StateCheck{
			copies("engine", "registry"), value("tags", tags("v1", "v2")),
			same.AddStateValue(address, tfjsonpath.New("image_id")),
		}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy: func(*terraform.State) error {
			if s.digest("v1") != "" || s.digest("v2") != "" || onEngine(w, s.name+":v1") != "" {
				return fmt.Errorf("something of the image is left")
			}
			return nil
		},
		Steps: []resource.TestStep{
			{Config: conf(`tags = ["v1"]`), ConfigStateChecks: []statecheck.StateCheck{
				value("digest", aDigest),
				value("reference", knownvalue.StringRegexp(regexp.MustCompile("^"+s.name+"@sha256:[0-9a-f]{64}$"))),
				value("size", positive), value("layers", knownvalue.ListSizeExact(1)), copies("engine", "registry"),
				same.AddStateValue(address, tfjsonpath.New("image_id")),
			}},
			{Config: both, ConfigPlanChecks: update, ConfigStateChecks: whole()},
			{ // the engine lost it
				PreConfig: removeLocal, Config: both, ConfigPlanChecks: update, ConfigStateChecks: whole(),
			},
			{ // the registry lost it
				PreConfig: removeRemote, Config: both, ConfigPlanChecks: update, ConfigStateChecks: whole(),
			},
			{ // a tag was moved in the registry
				PreConfig: func() { s.put(t, "v2", "other") }, Config: both, ConfigPlanChecks: update, ConfigStateChecks: whole(),
			},
			{Config: both, PlanOnly: true, PreConfig: func() {
				if s.digest("v2") != s.digest("v1") {
					t.Errorf("the tag that was moved was not given back")
				}
			}},
			{ // both lost it
				PreConfig: func() { removeLocal(); removeRemote() }, Config: both,
				ConfigPlanChecks: action(plancheck.ResourceActionCreate),
			},
			{
				ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateId: s.name + ":v1",
				ImportStateVerifyIgnore: []string{"build", "on_destroy"},
			},
			{ // pushed copies stay
				Config: s.named(built(w, player(t, w.Name), "", `tags = ["v1"]`)), ConfigPlanChecks: update,
				ConfigStateChecks: []statecheck.StateCheck{copies("engine"), value("digest", knownvalue.Null())},
			},
			{
				Config:            both,
				ConfigPlanChecks:  update,
				ConfigStateChecks: []statecheck.StateCheck{copies("engine", "registry"), value("tags", tags("v1", "v2"))},
				PreConfig: func() {
					if s.digest("v2") == "" {
						t.Errorf("turning push off removed what was pushed")
					}
				},
			},
		},
	})
}

// Errors other than the registry's answer that the image does not exist change nothing in the state.
func TestAccContainerImageRegistryDown(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{})
	conf := s.named(built(w, player(t, w.Name), "", `push = true`))
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: conf},
			{
				PreConfig:   s.Stop,
				Config:      conf,
				ExpectError: regexp.MustCompile(`(?s)Reading Image Failed.*Terraform's\s+state\s+is\s+unchanged`),
			},
			{PreConfig: s.Restart, Config: conf, PlanOnly: true},
		},
	})
	if s.digest("latest") == "" {
		t.Errorf("this registry removes no tag, and yet it is gone")
	}
}

// If only the configuration has the password, the plan finds drift.
func TestAccContainerImageRegistryAuth(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{Auth: true, TLS: true})
	dir := player(t, w.Name)
	conf := func(password, more string) string {
		return s.named(built(w, dir, "", fmt.Sprintf(`
  push = true
  registry_auth = [{
    username       = %q
    password_wo    = %q
    ca_certificate = %q
  }]
  %s`, registrytest.Username, password, s.CA, more)))
	}
	right := conf(registrytest.Password, "")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: conf("opensesame", ""), ExpectError: regexp.MustCompile(`(?s)Pushing Image Failed.*registry_auth`)},
			{Config: right, ConfigStateChecks: []statecheck.StateCheck{copies("engine", "registry")}},
			{Config: right, PlanOnly: true},
			{
				PreConfig: func() { w.Must(s.client.Delete(t.Context(), s.name+"@"+s.digest("latest"))) },
				Config:    right, ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{copies("engine", "registry")},
			},
			{
				PreConfig: func() { s.put(t, "latest", "other") },
				Config:    right, ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			},
			{Config: conf("opensesame", ""), ExpectError: regexp.MustCompile(`(?s)Reading Image Failed.*registry_auth`)},
			{Config: conf(registrytest.Password, `on_destroy = "delete"`)},
			{
				Config:      conf(registrytest.Password, `on_destroy = "delete"`),
				Destroy:     true,
				ExpectError: regexp.MustCompile(`docker\s+login`),
			},
			{Config: conf(registrytest.Password, `on_destroy = "keep"`)},
		},
	})
	if s.digest("latest") == "" {
		t.Errorf("the image was to be kept in the registry")
	}
	if id := onEngine(w, s.name+":latest"); id != "" {
		builder := image.NewBuilder(func() (image.Engine, error) { return w.Docker, nil })
		w.Must(builder.Delete(t.Context(), id))
	}
}

// Some registries answer 403 to requests without a password. A refresh and a destroy have none.
func TestAccContainerImageOfARegistryThatForbidsStrangers(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{Auth: true})
	front := forbidding(t, s.Host)
	s.name, s.client = front+"/"+w.Name, registry.New(map[string]registry.Credentials{
		front: {Username: registrytest.Username, Password: registrytest.Password}})
	dir := player(t, w.Name)
	conf := func(onDestroy string) string {
		return s.named(built(w, dir, "", fmt.Sprintf(`
  push = true
  registry_auth = [{
    username    = %q
    password_wo = %q
  }]
  on_destroy = %q`, registrytest.Username, registrytest.Password, onDestroy)))
	}
	login := regexp.MustCompile(`docker\s+login`)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: conf("delete"), ConfigStateChecks: []statecheck.StateCheck{copies("engine", "registry")}},
			{Config: conf("delete"), PlanOnly: true},
			{
				PreConfig: func() { w.Must(s.client.Delete(t.Context(), s.name+"@"+s.digest("latest"))) },
				Config:    conf("delete"), ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{copies("engine", "registry")},
			},
			{Config: conf("delete"), Destroy: true, ExpectError: login},
			{Config: conf("untag")},
			{Config: conf("untag"), Destroy: true, ExpectError: login},
			{Config: conf("keep")},
		},
	})
	if id := onEngine(w, s.name+":latest"); id != "" {
		builder := image.NewBuilder(func() (image.Engine, error) { return w.Docker, nil })
		w.Must(builder.Delete(t.Context(), id))
	}
}

// A source is pinned. A moved tag is followed only with follow = true.
func TestAccContainerImageOfASource(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{})
	first := s.put(t, "stable", "first")
	from := s.name + ":stable"
	var second string
	pinned := func(digest *string) statecheck.StateCheck {
		return value("reference", knownvalue.StringFunc(func(got string) error {
			if want := s.name + "@" + *digest; got != want {
				return fmt.Errorf("got %s, want %s", got, want)
			}
			return nil
		}))
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy: func(*terraform.State) error {
			for _, ref := range []string{w.Name + ":v1", s.name + "@" + first, s.name + "@" + second} {
				if onEngine(w, ref) != "" {
					return fmt.Errorf("%s is still on the engine", ref)
				}
			}
			return nil
		},
		Steps: []resource.TestStep{
			{
				PlanOnly:    true,
				Config:      s.source(s.name+":none", "", ""),
				ExpectError: regexp.MustCompile(`(?s)Resolving Image Source Failed.*:none`),
			},
			{
				Config: s.source(from, "", `tags = ["v1"]`),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectKnownValue(address, tfjsonpath.New("digest"), knownvalue.StringExact(first)),
				}},
				ConfigStateChecks: []statecheck.StateCheck{pinned(&first), value("image_id", aDigest), copies("engine")},
			},
			{
				PreConfig: func() { second = s.put(t, "stable", "second") },
				Config:    s.source(from, "", `tags = ["v1"]`), PlanOnly: true,
			},
			{
				Config:            s.source(from, "follow = true", `tags = ["v1"]`),
				ConfigPlanChecks:  action(plancheck.ResourceActionUpdate),
				ConfigStateChecks: []statecheck.StateCheck{pinned(&second), value("tags", tags("v1"))},
			},
			{ // a pinned image needs neither its tag nor the registry
				PreConfig: s.Stop, Config: s.source(from, "follow = true", `tags = ["v1"]`),
				ExpectError: regexp.MustCompile(`Resolving Image Source Failed`),
			},
			{
				PreConfig:         s.Restart,
				Config:            s.source(s.name+"@"+first, "", `tags = ["v1"]`),
				ConfigStateChecks: []statecheck.StateCheck{pinned(&first)},
			},
		},
	})
}

// between is what happens between plan and apply.
type between func()

func (f between) CheckPlan(context.Context, plancheck.CheckPlanRequest, *plancheck.CheckPlanResponse) {
	f()
}

// An apply pulls the image that was planned, or none.
func TestAccContainerImageOfATagThatMovesBeforeTheApply(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{})
	s.put(t, "stable", "first")
	conf := s.source(s.name+":stable", "", "")
	move := between(func() { s.put(t, "stable", "second") })
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             removed(w, w.Name+":latest"),
		Steps: []resource.TestStep{
			{
				Config: conf, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{move}},
				ExpectError: regexp.MustCompile(`(?s)inconsistent\s+final\s+plan.*\.digest`),
			},
			{Config: conf, ConfigPlanChecks: action(plancheck.ResourceActionCreate)},
		},
	})
}

// A source that is unknown at plan may be null at apply. An image that needs no source then stays as it is.
func TestAccContainerImageWhoseSourceTurnsOutToBeNull(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{})
	s.put(t, "stable", "")
	conf := func(more string) string {
		return w.Embedded() + fmt.Sprintf("resource \"sandbox_container_image\" \"test\" {\n  name = %q\n  %s\n}\n", s.name, more)
	}
	late := "push   = true\n  source = terraform_data.late.id == \"\" ? { reference = \"none\" } : null"
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{Config: s.named(s.source(s.name+":stable", "", "")), ConfigStateChecks: []statecheck.StateCheck{copies("engine")}},
			{Config: conf(""), ConfigStateChecks: []statecheck.StateCheck{copies("engine")}},
			{
				Config:            conf(late) + "resource \"terraform_data\" \"late\" {}\n",
				ConfigStateChecks: []statecheck.StateCheck{copies("engine", "registry")},
			},
		},
	})
}

// source with push needs no engine.
func TestAccContainerImageMirrored(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	from, to := newShelf(t, w, registrytest.Options{}), newShelf(t, w, registrytest.Options{})
	digest := from.put(t, "v1", "")
	away := fmt.Sprintf("provider \"sandbox\" {\n  docker = { host = \"unix://%s/docker.sock\" }\n}\n", t.TempDir())
	conf := func(more string) string {
		config := to.named(from.source(from.name+":v1", "", "push = true\non_destroy = \"delete\"\n"+more))
		return strings.Replace(config, w.Embedded(), away, 1)
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy: func(*terraform.State) error {
			if to.digest("latest") != "" || from.digest("v1") == "" {
				return fmt.Errorf("the copy was to be removed, and not the source")
			}
			return nil
		},
		Steps: []resource.TestStep{
			{Config: conf(""), ConfigStateChecks: []statecheck.StateCheck{
				value("reference", knownvalue.StringExact(to.name+"@"+digest)), value("image_id", knownvalue.Null()),
				value("instance", knownvalue.Null()), value("layers", knownvalue.ListSizeExact(1)), copies("registry"),
			}},
			{
				PreConfig: func() { w.Must(to.client.Delete(t.Context(), to.name+"@"+digest)) },
				Config:    conf(""), ConfigPlanChecks: action(plancheck.ResourceActionCreate),
			},
			{Config: conf(`tags = ["latest", "v2"]`), ConfigPlanChecks: action(plancheck.ResourceActionUpdate)},
		},
	})
}
