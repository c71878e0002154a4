package containerimage_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// A push failed after some tags. The state has the image, the next apply replaces it, and nothing unknown to the state
// remains on the engine or in the registry.
func TestAccContainerImageThatIsPushedInPart(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{})
	front, refuse := refusing(t, s.Host, "/manifests/v2")
	s.name = front + "/" + w.Name
	refuse.Store(true)
	conf := s.named(built(w, player(t, w.Name), "", "push = true\non_destroy = \"delete\"\ntags = [\"v1\", \"v2\"]\n"))
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy: func(*terraform.State) error {
			for _, tag := range []string{"v1", "v2"} {
				if s.digest(tag) != "" || onEngine(w, s.name+":"+tag) != "" {
					return fmt.Errorf("%s of the image is left", tag)
				}
			}
			return nil
		},
		Steps: []resource.TestStep{
			{Config: conf, ExpectError: regexp.MustCompile(`(?s)Pushing Image Failed.*:v2`)},
			{
				PreConfig: func() {
					if onEngine(w, s.name+":v1") == "" || s.digest("v1") == "" || s.digest("v2") != "" {
						t.Errorf("the image must be on the engine, and its first tag alone in the registry")
					}
					refuse.Store(false)
				},
				Config: conf, ConfigPlanChecks: action(plancheck.ResourceActionReplace),
				ConfigStateChecks: []statecheck.StateCheck{copies("engine", "registry"), value("tags", tags("v1", "v2"))},
			},
		},
	})
}

// A failed update removes nothing: what refers to the earlier image keeps working. The next apply makes the rest. It
// removes the earlier tag of an image that stays the same.
func TestAccContainerImageWhoseUpdateFailsInPart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rules string
		left  bool // the earlier tag, after the next apply
	}{
		"a new image": {"2", true}, "the same image": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			s := newShelf(t, w, registrytest.Options{})
			front, refuse := refusing(t, s.Host, "/manifests/v2")
			s.name = front + "/" + w.Name
			dir := player(t, w.Name)
			conf := func(tag string) string {
				return s.named(built(w, dir, "", "push = true\non_destroy = \"delete\"\ntags = [\""+tag+"\"]\n"))
			}
			var id, digest string
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				Steps: []resource.TestStep{
					{Config: conf("v1"), Check: func(*terraform.State) error {
						id, digest = onEngine(w, s.name+":v1"), s.digest("v1")
						return nil
					}},
					{
						PreConfig: func() { write(t, dir, "rules.txt", w.Name+tt.rules); refuse.Store(true) },
						Config:    conf("v2"), ExpectError: regexp.MustCompile(`(?s)Pushing Image Failed.*:v2`),
					},
					{
						PreConfig: func() {
							if onEngine(w, s.name+":v1") != id || s.digest("v1") != digest {
								t.Errorf("the earlier image was removed")
							}
							refuse.Store(false)
						},
						Config: conf("v2"), ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
						ConfigStateChecks: []statecheck.StateCheck{copies("engine", "registry"), value("tags", tags("v2"))},
					},
					{Config: conf("v2"), PlanOnly: true, PreConfig: func() {
						if left := onEngine(w, s.name+":v1") != ""; left != tt.left {
							t.Errorf("the engine has the earlier tag: %t", left)
						}
					}},
				},
			})
			if tt.left {
				builder := image.NewBuilder(func() (image.Engine, error) { return w.Docker, nil })
				w.Must(builder.Delete(t.Context(), id))
			}
		})
	}
}

// ends matches an error with these last sentences.
func ends(cause, sentences string) *regexp.Regexp {
	return regexp.MustCompile(said(cause, sentences) + `$`)
}

func said(cause, sentences string) string {
	sentences = strings.ReplaceAll(regexp.QuoteMeta(sentences), "AN ID", `sha256:\w+`)
	return `(?s)` + cause + `\.\s+` + strings.ReplaceAll(sentences, " ", `\s+`) + `\s*`
}

// The error of an image with only some of its tags says what was made, and that the state has it.
func TestAccContainerImageWhoseRegistryStops(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	from, to := newShelf(t, w, registrytest.Options{}), newShelf(t, w, registrytest.Options{})
	from.put(t, "v1", "")
	front, stopped := stopping(t, to.Host)
	to.name = front + "/" + w.Name
	const more = "push = true\non_destroy = \"delete\"\ntags = [\"v1\", \"v2\"]\n"
	pushed := to.named(built(w, player(t, w.Name), "", more))
	copied := to.named(from.source(from.name+":v1", "", more))
	const made = "The image was made. Of its tags, the registry has v1. Terraform's state has this, and the next apply " +
		"makes the rest."
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{
				PreConfig: func() { stopped.Store(false) }, Config: pushed,
				ExpectError: ends(`Pushing Image Failed.*:v2:.*EOF`, made),
			},
			{PreConfig: func() { stopped.Store(false) }, Config: pushed, Destroy: true},
			{
				PreConfig: func() { stopped.Store(false) }, Config: copied,
				ExpectError: ends(`Copying Image Failed.*/tf-acc-\w+:v2:.*EOF`,
					made+" Run Terraform again once the engine and the service are reachable."),
			},
			{PreConfig: func() { stopped.Store(false) }, Config: copied, Destroy: true},
		},
	})
}

// through returns a world's configuration with a proxy in front of the engine.
func through(w *providertest.World, p *dockertest.Proxy, config string) string {
	return strings.Replace(config, w.Embedded(),
		fmt.Sprintf("provider \"sandbox\" {\n  docker = {\n    host = %q\n  }\n}\n", p.Host()), 1)
}

// removals fails all removals of images after the first n.
func removals(n int32, fault faulttest.Fault) faulttest.Fault {
	var seen atomic.Int32
	return func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/images/") && seen.Add(1) > n {
			fault(rw, r, pass)
			return
		}
		pass(rw, r)
	}
}

// A destroy that times out says that it may have removed something, and can be run again.
func TestAccContainerImageThatIsRemovedInPart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ onDestroy, says string }{
		"untag":  {"untag", `Untagging Image Failed.*:v2: .*context\s+deadline\s+exceeded`},
		"delete": {"delete", `Removing Image Failed.*remove image .*context\s+deadline\s+exceeded`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, engine := providertest.New(t), dockertest.NewProxy(t)
			conf := through(w, engine, built(w, player(t, w.Name), "", fmt.Sprintf(
				"on_destroy = %q\ntags = [\"v1\", \"v2\"]\ntimeouts {\n delete = \"1s\"\n}\n", tt.onDestroy)))
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             removed(w, w.Name+":v1", w.Name+":v2"),
				Steps: []resource.TestStep{
					{Config: conf},
					{
						PreConfig: func() { engine.Set(removals(1, faulttest.Hung(nil))) }, Config: conf, Destroy: true,
						ExpectError: ends(tt.says, "Some names of the image may have been removed. Terraform's state still has the "+
							"image, and the next destroy removes the rest. Run Terraform again."),
					},
					{
						PreConfig: func() {
							engine.Set(nil)
							if onEngine(w, w.Name+":v1") != "" || onEngine(w, w.Name+":v2") == "" {
								t.Errorf("the first tag alone was to be removed")
							}
						},
						Config: conf, Destroy: true,
					},
				},
			})
		})
	}
}

// If the replaced image cannot be removed, the error says that the new one was made.
func TestAccContainerImageThatIsSupersededStays(t *testing.T) {
	t.Parallel()
	w, engine := providertest.New(t), dockertest.NewProxy(t)
	dir := player(t, w.Name)
	conf := func(tags string) string {
		return through(w, engine, built(w, dir, "", "on_destroy = \"delete\"\ntags = "+tags+"\n"))
	}
	superseded := func(ref string) string {
		return "The new image was made, has its tags and is in Terraform's state. Image " + ref + ", which it supersedes, " +
			"may still be on the engine, and no plan removes it: remove it there by hand."
	}
	down := func() { engine.Set(removals(0, faulttest.Down)) }
	var old string
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{
				Config: conf(`["v1", "v2", "v3"]`),
				Check:  func(*terraform.State) error { old = onEngine(w, w.Name+":v1"); return nil },
			},
			{ // the same image
				PreConfig: down, Config: conf(`["v1", "v3"]`),
				ExpectError: ends(`Untagging Image Failed.*:v2: .*EOF`, "The image has its tags. "+w.Name+":v2 may still point "+
					"to it, is in Terraform's state, and is removed by the next apply. Run Terraform again once the engine and the "+
					"service are reachable."),
			},
			{PreConfig: func() { engine.Set(nil) }, Config: conf(`["v1", "v3"]`)},
			{
				PreConfig: func() { write(t, dir, "rules.txt", w.Name+" 2"); down() }, Config: conf(`["v3"]`),
				ExpectError: regexp.MustCompile(said(`Untagging Image Failed.*:v1: .*EOF`, superseded(w.Name+":v1")) +
					said(`Error: Removing Superseded Image Failed.*EOF`, superseded("AN ID")) + `$`),
			},
			{PreConfig: func() { engine.Set(nil) }, Config: conf(`["v3"]`), PlanOnly: true},
		},
	})
	builder := image.NewBuilder(func() (image.Engine, error) { return w.Docker, nil })
	w.Must(builder.Delete(t.Context(), old))
}

// stopping serves a registry at another address, until it has accepted a tag.
func stopping(t *testing.T, host string) (address string, stopped *atomic.Bool) {
	t.Helper()
	stopped = new(atomic.Bool)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: host})
		r.Out.Host = r.In.Host // answers of the registry contain it
	}}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if stopped.Load() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(rw, r)
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/v") {
			stopped.Store(true)
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), stopped
}

// refusing serves a registry at another address. While set, it refuses paths with an ending.
func refusing(t *testing.T, host, suffix string) (address string, refuse *atomic.Bool) {
	t.Helper()
	refuse = new(atomic.Bool)
	return denying(t, host, func(r *http.Request) bool {
		return refuse.Load() && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, suffix)
	}), refuse
}

// forbidding serves a registry at another address. It answers 403 to requests without a password.
func forbidding(t *testing.T, host string) (address string) {
	t.Helper()
	return denying(t, host, func(r *http.Request) bool {
		return r.URL.Path != "/v2/" && r.Header.Get("Authorization") == ""
	})
}

// denying serves a registry at another address, and answers 403 to the requests that it denies.
func denying(t *testing.T, host string, denied func(*http.Request) bool) (address string) {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: host})
		r.Out.Host = r.In.Host // answers of the registry contain it
	}}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if denied(r) {
			http.Error(rw, `{"errors":[{"code":"DENIED","message":"not this one"}]}`, http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
