package environment_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// If the creation of an environment fails halfway, it is rolled back, or the environment is in the state until a
// destroy or the next apply has removed the rest. The same holds if a destroy fails halfway.
func TestAccEnvironmentThatIsMadeInPart(t *testing.T) {
	t.Parallel()
	providertest.OverAnEngineThatFails(t,
		func(t *testing.T, w *providertest.World, provider string, engine *dockertest.Proxy) {
			making, removing := "POST .*/images/create", "DELETE .*/(images|volumes)/"
			config := provider + minimal(w, "")
			healed := func() { engine.Set(nil) }
			replaced := resource.ConfigPlanChecks{
				PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, plancheck.ResourceActionReplace)},
			}
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             destroyed(w, w.Name),
				Steps: []resource.TestStep{
					{
						PreConfig: func() { engine.Set(refuse(making)) }, Config: config,
						ExpectError: regexp.MustCompile(`(?s)Creating Environment Failed.*the disk is full`),
					},
					{ // nothing is left of it, and nothing is in the state
						PreConfig: func() { wantOnEngine(w, 0); engine.Set(refuse(making, removing)) }, Config: config,
						ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
							plancheck.ExpectResourceAction(address, plancheck.ResourceActionCreate),
						}},
						ExpectError: regexp.MustCompile(`(?s)Creating Environment Failed.*the disk is full.*could\s+not\s+be\s+removed`),
					},
					{PreConfig: func() { wantOnEngine(w, 1); healed() }, Config: config, Destroy: true},
					{
						PreConfig:   func() { wantOnEngine(w, 0); engine.Set(refuse(making, removing)) },
						Config:      config,
						ExpectError: regexp.MustCompile(`the disk is full`),
					},
					{
						PreConfig: healed, Config: config, ConfigPlanChecks: replaced,
						ConfigStateChecks: []statecheck.StateCheck{value("status", text("open"))},
					},
					{
						PreConfig: func() { engine.Set(refuse(removing)) }, Config: config, Destroy: true,
						ExpectError: regexp.MustCompile(`(?s)Destroying Environment Failed.*the disk is full`),
					},
					{ // the next apply continues from there
						PreConfig: healed, Config: config, ConfigPlanChecks: replaced,
						ConfigStateChecks: []statecheck.StateCheck{value("status", text("open"))},
					},
				},
			})
		})
}

// inPart matches the error about an environment that may exist. Nothing may follow the cause.
func inPart(cause string) *regexp.Regexp {
	const said = `The environment may exist\. It is in Terraform's state, and the next apply replaces it\.`
	return regexp.MustCompile(`(?s)Creating Environment Failed.*` + cause + `\.\s+` + strings.ReplaceAll(said, " ", `\s+`) +
		`(\s+Run\s+Terraform\s+again\.)?\s*$`)
}

// If the engine goes away during the creation of an environment, the environment is in the state, and the error says
// so.
func TestAccEnvironmentOfAnEngineThatGoesAway(t *testing.T) {
	t.Parallel()
	providertest.OverAnEngineThatFails(t,
		func(t *testing.T, w *providertest.World, provider string, engine *dockertest.Proxy) {
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             destroyed(w, w.Name),
				Steps: []resource.TestStep{
					{
						PreConfig: func() {
							engine.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
								pass(rw, r)
								if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/images/create") {
									engine.Set(faulttest.Down)
								}
							})
						},
						Config:      provider + minimal(w, ""),
						ExpectError: inPart(`deleting\s+it`),
					},
					{
						PreConfig: func() { engine.Set(nil) }, Config: provider + minimal(w, ""),
						ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
							plancheck.ExpectResourceAction(address, plancheck.ResourceActionReplace),
						}},
						ConfigStateChecks: []statecheck.StateCheck{value("status", text("open"))},
					},
				},
			})
		})
}

// If the engine goes away during a change or a destroy, the error does not say that nothing has changed.
func TestAccEnvironmentThatChangesWhileTheEngineGoesAway(t *testing.T) {
	t.Parallel()
	providertest.OverAnEngineThatFails(t,
		func(t *testing.T, w *providertest.World, provider string, engine *dockertest.Proxy) {
			away := func(request string) func() { return func() { engine.Set(downFrom(engine, request)) } }
			back := func() { engine.Set(nil) }
			changed := strings.Replace(provider+minimal(w, ""), `mode = "none"`, `mode = "restricted"`, 1)
			said := func(summary, says string) *regexp.Regexp {
				return regexp.MustCompile(`(?s)` + summary + `.*\.\s+` + strings.ReplaceAll(says, " ", `\s+`) + `\s+Run\s+Terraform\s+again`)
			}
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             destroyed(w, w.Name),
				Steps: []resource.TestStep{
					{Config: provider + minimal(w, "")},
					{
						PreConfig: away("POST .*/(images|volumes|containers)/create"), Config: changed,
						ExpectError: said("Updating Environment Failed",
							"The change may have been made in part. Terraform's state is unchanged, and the next apply makes the rest."),
					},
					{ // although the ledger has the change
						PreConfig: back, Config: changed,
						ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
							plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate),
						}},
					},
					{Config: changed, PlanOnly: true},
					{
						PreConfig: away("DELETE .*/(images|volumes|containers)/"), Config: changed, Destroy: true,
						ExpectError: said("Destroying Environment Failed", "The environment may have been removed in part. "+
							"Terraform's state still has it, and the next destroy removes the rest."),
					},
					{PreConfig: back, Config: changed, Destroy: true},
				},
			})
		})
}

// downFrom makes the engine go away at the first request whose method and path match.
func downFrom(engine *dockertest.Proxy, request string) faulttest.Fault {
	at := regexp.MustCompile("^" + request)
	return func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if at.MatchString(r.Method + " " + r.URL.Path) {
			engine.Set(faulttest.Down)
			faulttest.Down(rw, r, pass)
			return
		}
		pass(rw, r)
	}
}

// refuse makes the engine fail requests whose method and path match one of these.
func refuse(requests ...string) faulttest.Fault {
	refused := regexp.MustCompile("^(" + strings.Join(requests, "|") + ")")
	return func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if refused.MatchString(r.Method + " " + r.URL.Path) {
			faulttest.Error500(rw, r, pass)
			return
		}
		pass(rw, r)
	}
}

// wantOnEngine fails the test unless the engine has this many images and volumes of the world's environment.
func wantOnEngine(w *providertest.World, want int) {
	w.Helper()
	f := dockerapi.NewFilters(dockerapi.Filter("label", "io.sandbox-lease.environment="+w.Name))
	images, err := w.Docker.ImageList(w.Context(), dockerapi.ImageListOptions{Filters: f})
	w.Must(err)
	volumes, err := w.Docker.VolumeList(w.Context(), dockerapi.VolumeListOptions{Filters: f})
	w.Must(err)
	if got := len(images) + len(volumes.Volumes); got != want {
		w.Errorf("the engine has %d images and %d volumes of the environment, want %d in all",
			len(images), len(volumes.Volumes), want)
	}
}

// If the reconciler has created an environment but its answer is lost, the environment is in the state, tainted.
func TestAccEnvironmentWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]faulttest.Fault{
		"once":         nil,
		"until healed": faulttest.Down,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			provider, line := behindALine(w)
			cut := func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
				if r.Method != http.MethodPut {
					pass(rw, r)
					return
				}
				pass(httptest.NewRecorder(), r)
				line.Set(after)
				panic(http.ErrAbortHandler)
			}
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				CheckDestroy:             destroyed(w, w.Name),
				Steps: []resource.TestStep{
					{
						PreConfig: func() { line.Set(cut) },
						Config:    provider + minimal(w, ""), ExpectError: inPart(`EOF[^.]*`),
					},
					{
						PreConfig: func() { line.Set(nil) },
						Config:    provider + minimal(w, ""),
						ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
							plancheck.ExpectResourceAction(address, plancheck.ResourceActionReplace),
						}},
						ConfigStateChecks: []statecheck.StateCheck{
							value("status", text("open")),
							statecheck.ExpectKnownValue(address, tfjsonpath.New("name"), knownvalue.StringExact(w.Name)),
						},
					},
				},
			})
		})
	}
}

// A client repeats a creation if the first answer says that nothing was done. The repetition may find its own
// environment.
func TestAccEnvironmentThatIsCreatedTwice(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	provider, line := behindALine(w)
	line.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if r.Method != http.MethodPut {
			pass(rw, r)
			return
		}
		line.Set(nil)
		pass(httptest.NewRecorder(), r)
		rw.WriteHeader(http.StatusServiceUnavailable)
	})
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             destroyed(w, w.Name),
		Steps: []resource.TestStep{
			{Config: provider + minimal(w, "")},
			{Config: provider + minimal(w, ""), PlanOnly: true},
		},
	})
}

// behindALine starts a reconciler behind a connection that can be cut, and returns the configuration of a provider that
// uses it.
func behindALine(w *providertest.World) (provider string, line *faulttest.Switch) {
	w.Helper()
	r := w.Reconciler()
	target, err := url.Parse(r.URL)
	w.Must(err)
	line = new(faulttest.Switch)
	server := httptest.NewServer(line.Before(&httputil.ReverseProxy{
		Rewrite:      func(p *httputil.ProxyRequest) { p.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}))
	w.Cleanup(server.Close)
	return strings.ReplaceAll(r.Configuration, fmt.Sprintf("%q", r.URL), fmt.Sprintf("%q", server.URL)), line
}
