package provider_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// requests counts a reconciler's requests, by method and path.
type requests struct {
	mu      sync.Mutex // guards the fields below
	all     []string
	deletes []url.URL // with their queries
}

// counted returns a provider configuration for a reconciler, and counts its requests.
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

// A destroy names the owner in the state, so that it does not remove what another owner has created under the name.
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

// A plan checks each environment that it creates or changes once, and checks nothing if nothing changes.
func TestAccAPlanChecksAnEnvironmentOnce(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	configuration, seen := counted(t, w.Reconciler())
	tf := terraform(t, configuration+environment(w))
	plansWith := func(want int) {
		t.Helper()
		seen.take()
		tf.Run("plan", "-input=false")
		all, checks := seen.take(), 0
		for _, r := range all {
			if r == "POST /v1/environments/"+w.Name+"/check" {
				checks++
			}
		}
		if checks != want {
			t.Errorf("a plan asked for %d checks, want %d: %v", checks, want, all)
		}
	}
	plansWith(1)
	tf.Run("apply", "-auto-approve", "-input=false")
	plansWith(0)
	tf.Write("main.tf", configuration+strings.Replace(environment(w), "\n  network = {", "\n  ttl = \"3h\"\n  network = {", 1))
	plansWith(1)
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// A few requests read many leases of one environment, and one warning reports their common end.
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
		t.Errorf("after apply -refresh-only the plan reports the end again: %+v", p)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// One list for each environment reads the leases of many environments, and each environment is read once.
func TestAccManyLeasesOfManyEnvironments(t *testing.T) {
	t.Parallel()
	if os.Getenv("TF_ACC") == "" {
		t.Skip("set TF_ACC=1: it runs Terraform")
	}
	const environments, leases = 20, 5
	r, leasing := serveInMemory(t)
	configuration, seen := counted(t, r)
	tf := terraform(t, configuration+games(environments, leases))
	tf.Run("apply", "-auto-approve", "-input=false", "-parallelism=50")
	for _, what := range []string{"open", "closed"} {
		for e := range environments {
			if what == "closed" {
				(&providertest.World{TB: t}).Condition(leasing, "game.finished", fmt.Sprintf("game-%d", e), "")
			}
		}
		seen.take()
		if p := tf.Plan(); len(p.Changes) != 0 {
			t.Errorf("the plan of environments that are %s has changes: %v", what, p.Changes)
		}
		if all := seen.take(); len(all) > 50 {
			t.Errorf("a plan of %d environments that are %s asked %d times: %v", environments, what, len(all), all)
		}
	}
	tf.Run("destroy", "-auto-approve", "-input=false", "-parallelism=50")
}

// Without a reconciler, a plan lists an environment's sandboxes once. It inspects each listed sandbox, because Docker's
// list has no limits and exit codes. The first four leases are inspected before the list.
func TestAccAPlanListsTheEngineOnce(t *testing.T) {
	t.Parallel()
	const leases = 7
	w, engine := providertest.NewThroughProxy(t)
	tf := terraform(t, w.Embedded()+team(w, leases))
	tf.Run("apply", "-auto-approve", "-input=false")
	lists, inspections := looks(engine)
	if p := tf.Plan(); len(p.Changes) != 0 || len(p.Diagnostics) != 0 {
		t.Errorf("after an apply the plan is %+v", p)
	}
	engine.Set(nil)
	if lists.Load() != 1 || inspections.Load() != 4+leases {
		t.Errorf("a plan of %d leases listed the engine %d times and inspected %d containers, want 1 and %d", leases,
			lists.Load(), inspections.Load(), 4+leases)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// looks counts an engine's requests to list and to inspect containers.
func looks(engine *dockertest.Proxy) (lists, inspections *atomic.Int32) {
	lists, inspections = &atomic.Int32{}, &atomic.Int32{}
	inspects := regexp.MustCompile(`/containers/[^/]+/json$`)
	engine.Set(func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			lists.Add(1)
		case inspects.MatchString(r.URL.Path):
			inspections.Add(1)
		}
		pass(w, r)
	})
	return lists, inspections
}

// saveAnEnd ends a lease of the team and saves the end in the state, so that no later warning counts it.
func saveAnEnd(w *providertest.World, tf *providertest.CLI) {
	w.Helper()
	w.Condition(w.Service(), "agent.death", w.Name, "did:plc:member-0")
	tf.Run("apply", "-refresh-only", "-auto-approve", "-input=false")
}

// warningLines counts the lines of the warnings at the end of a plan.
func warningLines(said string) int {
	_, plan, _ := strings.Cut(said, "Refreshing state...")
	_, warnings, found := strings.Cut(plan, "\nWarning: ")
	if !found {
		return 0
	}
	return strings.Count(strings.TrimSpace(warnings), "\n") + 1
}

// games is a configuration of environments with this many leases each.
func games(environments, leases int) string {
	return fmt.Sprintf(`
resource "sandbox_environment" "game" {
  count = %d
  name  = "game-${count.index}"
  type  = "rpg"
  image = "player"
}
resource "sandbox_lease" "player" {
  count          = %d
  agent_did      = "did:plc:player-${count.index}"
  environment_id = sandbox_environment.game[floor(count.index / %d)].name
}
`, environments, environments*leases, leases)
}

// A plan has one warning for each ended environment, which includes its leases, even if there are few.
func TestAccWarningsFold(t *testing.T) {
	t.Parallel()
	if os.Getenv("TF_ACC") == "" {
		t.Skip("set TF_ACC=1: it runs Terraform")
	}
	for name, tt := range map[string]struct {
		condition                             string
		environments, leases, warnings, lines int
		says                                  string // of each environment
	}{
		"games of two":              {"game.finished", 4, 2, 4, 60, "2 leases ended"},
		"games of one":              {"game.finished", 3, 1, 3, 45, "1 lease ended"},
		"deaths of two":             {"agent.death", 2, 2, 2, 30, "2 leases ended"},
		"a game of a hundred":       {"game.finished", 1, 100, 1, 15, "100 leases ended"},
		"deaths of a whole hundred": {"agent.death", 1, 100, 1, 15, "100 leases ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, leasing := serveInMemory(t)
			w := &providertest.World{TB: t}
			tf := terraform(t, r.Configuration+games(tt.environments, tt.leases))
			tf.Run("apply", "-auto-approve", "-input=false", "-parallelism=50")
			for e := range tt.environments {
				if tt.condition != "agent.death" {
					w.Condition(leasing, tt.condition, fmt.Sprintf("game-%d", e), "")
					continue
				}
				for l := range tt.leases {
					w.Condition(leasing, tt.condition, fmt.Sprintf("game-%d", e), fmt.Sprintf("did:plc:player-%d", e*tt.leases+l))
				}
			}
			p := tf.Plan()
			if len(p.Diagnostics) != tt.warnings || len(p.Changes) != 0 {
				t.Errorf("want %d warnings and no changes: %+v", tt.warnings, p)
			}
			for _, d := range p.Diagnostics {
				if !strings.Contains(d.Detail, tt.says) || !strings.Contains(d.Detail, "cost $") ||
					!strings.Contains(d.Detail, "did:plc:player-") || !strings.Contains(d.Detail, "apply -refresh-only") {
					t.Errorf("%s: it says %s", d.Summary, d.Detail)
				}
			}
			said := tf.Run("plan", "-input=false", "-no-color")
			if lines := warningLines(said); lines > tt.lines || lines == 0 {
				t.Errorf("the warnings have %d lines:\n%s", lines, said)
			}
			tf.Run("apply", "-refresh-only", "-auto-approve", "-input=false")
			if p := tf.Plan(); len(p.Changes) != 0 || len(p.Diagnostics) != 0 {
				t.Errorf("after apply -refresh-only the plan reports the end again: %+v", p)
			}
			tf.Run("destroy", "-auto-approve", "-input=false", "-parallelism=50")
		})
	}
}

// One warning also reports the end of leases whose environment is in another state.
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

// If an environment was removed outside of Terraform, the one warning about its leases agrees with the plan.
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

// One warning reports sandboxes that vanished together, and the plan leases each again.
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

// Many leases that wait for their environment read it once, and one warning reports them.
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
	if asked > 1 { // once for the environment itself, not again for its leases
		t.Errorf("the plan asked %d times for the environment", asked)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}
