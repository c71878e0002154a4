package environment_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// refusedByAReconciler maps settings that a reconciler without flags refuses to the error message.
var refusedByAReconciler = map[string]string{
	`backend = "cloudflare"`:     `backend cloudflare is not configured here.*--cloudflare-account`,
	`env_passthrough = ["HOME"]`: `env_passthrough variable HOME is not allowed.*--env-allow HOME`,
	`workspace = { git = { url = "https://nowhere.invalid/game.git" } }`: `workspace\.git\.url .*--workspace-allow`,
	`archive = [{
    url    = "https://nowhere.invalid/maps.tar"
    target = "/workspace/maps"
    sha256 = "` + strings.Repeat("a", 64) + `"
  }]`: `archive\[0\]\.url .*--workspace-allow`,
	`mount = [{ source = "/srv", target = "/srv" }]`: `mount\[0\]\.source .*--mount-allow`,
	`confinement = { runtime = "nowhere" }`:          `confinement\.runtime engine .* has no runtime "nowhere"`,
	`instance = "nowhere"`:                           `has instance "nowhere", and the docker instance that answers here`,
}

// The plan finds what a reconciler refuses, for a new environment and for a change, and leaves nothing.
func TestAccEnvironmentErrorsOfTheReconcilerAtPlan(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	provider := w.Reconciler().Configuration
	refusal := func(says string) *regexp.Regexp {
		return regexp.MustCompile(`(?s)Checking Environment Failed.*` + strings.ReplaceAll(says, " ", `\s+`))
	}
	settings := slices.Sorted(maps.Keys(refusedByAReconciler))
	found := planErrors(t, w, provider, settings)
	steps := []resource.TestStep{{Config: provider + minimal(w, ""), Check: isAlone(w)}}
	for i, setting := range settings {
		says := refusal(refusedByAReconciler[setting])
		if !says.MatchString(found[i]) {
			t.Errorf("of %s, the plan says %s, want %s", setting, found[i], says)
		}
		steps = append(steps,
			resource.TestStep{Config: provider + minimal(w, setting), PlanOnly: true, ExpectError: says})
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             destroyed(w, w.Name),
		Steps:                    append(steps, resource.TestStep{Config: provider + minimal(w, ""), PlanOnly: true}),
	})
}

// isAlone checks that the plans before the step have left no event.
func isAlone(w *providertest.World) resource.TestCheckFunc {
	return func(*terraform.State) error {
		events, err := w.Service().ListEvents(w.Context(), sandbox.EventFilter{EnvironmentID: w.Name})
		w.Must(err)
		if len(events) != 1 || events[0].Type != sandbox.EventEnvironmentCreated {
			w.Errorf("the environment has the events %+v, want its creation", events)
		}
		return nil
	}
}

// A plan does not refuse values that are still unknown, or things that the apply may still create.
func TestAccEnvironmentThatMayBeAppliedIsPlanned(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	_, err := w.Service().PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: w.Name + "-taken", Owner: "somebody",
		EnvironmentSpec: sandbox.EnvironmentSpec{Image: w.Image, Network: sandbox.NetworkNone}})
	w.Must(err)
	const later = "resource \"terraform_data\" \"later\" {\n  input = \"x\"\n}\n"
	config := w.Reconciler().Configuration + later
	for i, setting := range []string{
		`env_passthrough = [terraform_data.later.output]`,
		`workspace = { git = { url = "https://${terraform_data.later.output}/game.git" } }`,
		`archive = [{
    url    = "https://${terraform_data.later.output}/maps.tar"
    target = "/workspace/maps"
    sha256 = "` + strings.Repeat("a", 64) + `"
  }]`,
		`mount = [{ source = "/${terraform_data.later.output}", target = "/srv" }]`,
		`copy = [{ source = "/${terraform_data.later.output}", target = "/workspace/srv" }]`,
		`confinement = { runtime = terraform_data.later.output }`,
		`secrets = { token = { value_wo = terraform_data.later.output, value_wo_version = 1 } }`,
		`secrets = { token = { value_wo = "hunter2", value_wo_version = 1 } }`,
	} {
		config += strings.Replace(labelled(w, fmt.Sprint("t", i), setting), w.Name, fmt.Sprint(w.Name, "-", i), 1)
	}
	config += strings.Replace(labelled(w, "image", ""), w.Image, "sandbox-test/nowhere:yet", 1)
	config += strings.Replace(labelled(w, "taken", ""), w.Name, w.Name+"-taken", 1)
	resource.Test(t, resource.TestCase{ProtoV6ProviderFactories: w.Providers(), Steps: []resource.TestStep{
		{PlanOnly: true, ExpectNonEmptyPlan: true, Config: config},
	}})
	w.Must(w.Service().DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: w.Name + "-taken"}))
}

// A reconciler older than the check has no such route. The apply then finds what the reconciler refuses.
func TestAccEnvironmentOfAnOlderReconciler(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	provider, line := behindALine(w)
	var checks atomic.Int64
	line.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if strings.HasSuffix(r.URL.Path, "/check") {
			checks.Add(1)
			r.URL.Path += "-of-a-newer-reconciler"
		}
		pass(rw, r)
	})
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy:             destroyed(w, w.Name),
		Steps: []resource.TestStep{
			{Config: provider + minimal(w, `env_passthrough = ["HOME"]`),
				ExpectError: regexp.MustCompile(`(?s)Creating Environment Failed.*--env-allow`)},
			{Config: provider + minimal(w, "")},
			{Config: provider + minimal(w, `ttl = "3h"`)},
		},
	})
	if checks.Load() == 0 {
		t.Error("no plan asked for a check")
	}
}
