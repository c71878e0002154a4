package provider_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// requests counts what a reconciler is asked, by method and path.
type requests struct {
	mu      sync.Mutex // guards what follows
	all     []string
	deletes []url.URL // with their queries
}

// counted returns a provider's configuration for a reconciler whose requests are counted.
func counted(t *testing.T, r providertest.Reconciler) (string, *requests) {
	t.Helper()
	target, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	seen, proxy := &requests{}, httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen.mu.Lock()
		seen.all = append(seen.all, req.Method+" "+req.URL.Path)
		if req.Method == http.MethodDelete {
			seen.deletes = append(seen.deletes, *req.URL)
		}
		seen.mu.Unlock()
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	return strings.Replace(r.Configuration, r.URL, server.URL, 1), seen
}

func (r *requests) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// A destroy names the owner in the state, so that it removes nothing that another owner has made under the name.
func TestAccADestroyNamesItsOwner(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	configuration, seen := counted(t, w.Reconciler())
	tf := terraform(t, configuration+environment(w))
	tf.Run("apply", "-auto-approve", "-input=false")
	env, err := w.Service().GetEnvironment(t.Context(), w.Name)
	w.Must(err)
	tf.Run("destroy", "-auto-approve", "-input=false")
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.deletes) != 1 || seen.deletes[0].Path != "/v1/environments/"+w.Name ||
		seen.deletes[0].Query().Get("owner") != env.Owner || !strings.HasPrefix(env.Owner, "terraform:") {
		t.Errorf("the environment of %s is removed by %v", env.Owner, seen.deletes)
	}
}

// Many leases of one environment are read by a few requests, and tell of their common end once.
func TestAccManyLeases(t *testing.T) {
	t.Parallel()
	const leases = 12
	w := providertest.New(t)
	configuration, seen := counted(t, w.Reconciler())
	tf := terraform(t, configuration+team(w, leases))
	tf.Run("apply", "-auto-approve", "-input=false")

	seen.take()
	if p := tf.Plan(); len(p.Changes) != 0 || len(p.Diagnostics) != 0 {
		t.Errorf("after an apply the plan is %+v", p)
	}
	alone := 0
	all := seen.take()
	for _, r := range all {
		if strings.HasPrefix(r, "GET /v1/leases/") {
			alone++
		}
	}
	if alone > 4 || len(all) > 8 {
		t.Errorf("a plan of %d leases asked %d times, %d of them for one lease: %v", leases, len(all), alone, all)
	}

	saveAnEnd(w, tf)
	w.Condition(w.Service(), "campaign.ended", w.Name, "")
	said := tf.Run("plan", "-input=false", "-no-color")
	if lines := warningLines(said); lines > 15 || lines == 0 {
		t.Errorf("the warning about the end of %d leases has %d lines:\n%s", leases, lines, said)
	}
	for _, what := range []string{fmt.Sprintf("%d leases ended", leases-1), "cost $", "and 8 more", "campaign.ended"} {
		if !strings.Contains(strings.Join(strings.Fields(said), " "), what) {
			t.Errorf("the plan does not say %q:\n%s", what, said)
		}
	}
	tf.Run("apply", "-refresh-only", "-auto-approve", "-input=false")
	if p := tf.Plan(); len(p.Changes) != 0 || len(p.Diagnostics) != 0 {
		t.Errorf("after apply -refresh-only the plan tells again: %+v", p)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// saveAnEnd ends a lease of the team and saves that: the state knows it, and no later warning counts it.
func saveAnEnd(w *providertest.World, tf *providertest.CLI) {
	w.Helper()
	w.Condition(w.Service(), "agent.death", w.Name, "did:plc:member-0")
	tf.Run("apply", "-refresh-only", "-auto-approve", "-input=false")
}

// warningLines counts the lines of the warnings that end a plan.
func warningLines(said string) int {
	_, plan, _ := strings.Cut(said, "Refreshing state...")
	_, warnings, found := strings.Cut(plan, "\nWarning: ")
	if !found {
		return 0
	}
	return strings.Count(strings.TrimSpace(warnings), "\n") + 1
}

// One warning reports the end of leases whose environment is in another state, too.
func TestAccManyLeasesOfAnEnvironmentElsewhere(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	environments := terraform(t, w.Embedded()+environment(w))
	environments.Run("apply", "-auto-approve", "-input=false")
	leases := strings.Replace(strings.TrimPrefix(team(w, 5), environment(w)), "sandbox_environment.game.name",
		fmt.Sprintf("%q", w.Name), 1)
	tf := terraform(t, w.Embedded()+leases)
	tf.Run("apply", "-auto-approve", "-input=false")
	saveAnEnd(w, tf)
	w.Condition(w.Service(), "campaign.ended", w.Name, "")
	p := tf.Plan()
	if len(p.Diagnostics) != 1 {
		t.Errorf("want one warning: %+v", p.Diagnostics)
	}
	if d := p.Warning(t, "4 Leases Of Environment "+w.Name+" Ended"); !strings.Contains(d.Detail, "(4 by condition)") {
		t.Errorf("it says %s", d.Detail)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
	environments.Run("destroy", "-auto-approve", "-input=false")
}

// What one warning says of leases whose environment was removed outside of Terraform is what the plan has.
func TestAccManyLeasesWhoseEnvironmentWasRemoved(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	byID := strings.Replace(team(w, 3), "sandbox_environment.game.name", "sandbox_environment.game.id", 1)
	tf := terraform(t, w.Embedded()+byID)
	tf.Run("apply", "-auto-approve", "-input=false")
	w.Must(w.Service().DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: w.Name, Force: true}))
	p := tf.Plan()
	if len(p.Diagnostics) != 2 || len(p.Changes) != 4 || p.Changes["sandbox_lease.team[0]"] != "replace" {
		t.Errorf("want two warnings, an environment that is created and three leases that are replaced: %+v", p)
	}
	p.Warning(t, "Environment "+w.Name+" Vanished")
	d := p.Warning(t, "3 Leases Ended With Environment "+w.Name)
	if !strings.Contains(d.Detail, "it replaces each lease") || strings.Contains(d.Detail, "this is not drift") {
		t.Errorf("it says %s", d.Detail)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// One warning reports sandboxes that vanished together, and each lease is planned again.
func TestAccManySandboxesThatVanished(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tf := terraform(t, w.Embedded()+team(w, 5))
	tf.Run("apply", "-auto-approve", "-input=false")
	w.RemoveContainers(w.Name)
	p := tf.Plan()
	if len(p.Diagnostics) != 1 || len(p.Changes) != 5 {
		t.Errorf("want one warning, and five changes: %+v", p)
	}
	p.Warning(t, "5 Leases Of Environment "+w.Name+" Vanished Or Failed")
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// Many leases that wait for their environment ask for it once, and one warning says so.
func TestAccManyLeasesWaitForTheirEnvironment(t *testing.T) {
	t.Parallel()
	const leases = 6
	w := providertest.New(t)
	configuration, seen := counted(t, w.Reconciler())
	recreated := strings.Replace(team(w, leases), "count ", "on_expiry = \"recreate\"\n  count ", 1)
	tf := terraform(t, configuration+recreated)
	tf.Run("apply", "-auto-approve", "-input=false")
	w.Condition(w.Service(), "campaign.ended", w.Name, "")

	seen.take()
	p := tf.Plan()
	if len(p.Changes) != 0 || len(p.Diagnostics) != 2 {
		t.Errorf("the plan has changes %v and %d warnings, want none and 2: %+v", p.Changes, len(p.Diagnostics), p.Diagnostics)
	}
	want := w.Name + " ended by campaign.ended"
	if d := p.Warning(t, "Leases Wait For Environment "+w.Name); !strings.Contains(d.Detail, want) {
		t.Errorf("it says %s, want %q", d.Detail, want)
	}
	asked := 0
	for _, r := range seen.take() {
		if r == "GET /v1/environments/"+w.Name {
			asked++
		}
	}
	if asked > 2 { // by the environment itself, and by its leases
		t.Errorf("the plan asked %d times for the environment", asked)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}
