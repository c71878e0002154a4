package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi/recording"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// pinned returns wanted with the policy durable_object and more images.
func pinned(more ...string) cloudflare.Deployment {
	d := wanted()
	d.Policy, d.Images = cloudflare.PolicyDurableObject, map[string]string{}
	for _, image := range append(more, d.Image) {
		d.Images[cloudflare.ImageName(image)] = image
	}
	return d
}

// numbered returns an image of the account's registry whose digest begins with a number.
func numbered(n int) string {
	return fmt.Sprintf("registry.cloudflare.com/%s/game@sha256:%032x%032x", account, n+1, 0)
}

// TestPolicyDurableObjectIsDeployedAsWranglerDeploysIt: each body equals that of wrangler 4.164.0, whose application
// has only a name, the policy and a namespace.
func TestPolicyDurableObjectIsDeployedAsWranglerDeploysIt(t *testing.T) {
	t.Parallel()
	recorder := &recording.Recorder{To: localapi.New(localapi.Config{})}
	server := httptest.NewServer(recorder)
	t.Cleanup(server.Close)
	d, err := deploy.New(deploy.Config{AccountID: account, Token: token, BaseURL: server.URL + "/client/v4"})
	must(t, err)
	want := pinned()
	_, err = d.Deploy(t.Context(), want)
	must(t, err)
	var asked []string
	bodies := map[string]map[string]any{}
	for _, r := range recorder.Take() {
		asked = append(asked, r.Method+" "+r.Path)
		bodies[r.Path], _ = r.Body.(map[string]any)
	}
	script := "/workers/scripts/" + want.Name
	if diff := cmp.Diff([]string{
		"POST /d1/database", "POST /r2/buckets", "POST /containers/image-preparations", "PUT " + script,
		"POST /containers/applications", "POST " + script + "/subdomain",
	}, asked); diff != "" {
		t.Errorf("its requests differ:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"image": want.Image}, bodies["/containers/image-preparations"], ids); diff != "" {
		t.Errorf("the preparation of an image differs:\n%s", diff)
	}
	named := map[string]any{"{id}": want.Image} // the Recorder's name for 32 hexadecimal digits
	containers := []any{map[string]any{"name": want.Name, "class_name": "Sandbox", "images": named}}
	if diff := cmp.Diff(any(containers), bodies[script]["containers"], ids); diff != "" {
		t.Errorf("the Worker is uploaded with other containers:\n%s", diff)
	}
	application := map[string]any{
		"name": want.Name, "scheduling_policy": "durable_object", "durable_objects": map[string]any{"namespace_id": "{id}"},
	}
	if diff := cmp.Diff(application, bodies["/containers/applications"]); diff != "" {
		t.Errorf("the creation of the application differs:\n%s", diff)
	}
}

// ids compares strings with the account's id replaced as by a Recorder.
var ids = cmp.Comparer(func(a, b string) bool {
	return strings.ReplaceAll(a, account, "{id}") == strings.ReplaceAll(b, account, "{id}")
})

// TestAnotherImageIsAnotherEntryAndNoRollout: the application does not change, and nothing existing is uploaded again.
func TestAnotherImageIsAnotherEntryAndNoRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := pinned()
	w.deploy(first)
	if images := w.api.StartImages(first.Name); len(images) != 1 {
		t.Fatalf("it has the images %v", images)
	}
	w.forget(nil)
	next := pinned(first.Image)
	next.Image = numbered(1)
	next.Images[cloudflare.ImageName(next.Image)] = next.Image
	next.Resources = sandbox.Resources{CPUMillis: 1000, MemoryMB: 4096, DiskMB: 8000}
	site := w.deploy(next)
	want := []string{"POST /containers/image-preparations", "PUT /workers/scripts/" + next.Name}
	if diff := cmp.Diff(want, w.changes()); diff != "" {
		t.Errorf("the requests for another image differ:\n%s", diff)
	}
	if images := w.api.StartImages(next.Name); len(images) != 2 {
		t.Errorf("it has the images %v", images)
	}
	if site.Policy != cloudflare.PolicyDurableObject || !maps.Equal(site.Images, next.Images) {
		t.Errorf("the site has policy %q and images %v", site.Policy, site.Images)
	}
	w.forget(nil)
	w.deploy(next)
	if changes := w.changes(); len(changes) > 0 {
		t.Errorf("an unchanged deployment is deployed again: %v", changes)
	}
	w.wantDeployed(next)
	w.must(w.deployer.Delete(t.Context(), next.Name))
	w.wantNothing()
}

// TestAnApplicationKeepsItsPolicy: a deployment with another policy is refused, and changes nothing of the application.
func TestAnApplicationKeepsItsPolicy(t *testing.T) {
	t.Parallel()
	for _, d := range []struct{ was, is cloudflare.Deployment }{{wanted(), pinned()}, {pinned(), wanted()}} {
		w := newWorld(t)
		site := w.deploy(d.was)
		_, err := w.deployer.Deploy(t.Context(), d.is)
		w.wantCode(err, sandbox.Conflict)
		if now := w.find(d.was.Name); now.ApplicationID != site.ApplicationID || now.Policy != site.Policy {
			t.Errorf("application %s of policy %s has become %s of policy %s",
				site.ApplicationID, site.Policy, now.ApplicationID, now.Policy)
		}
	}
}

// TestTheLocalAPIRefusesWhatThePolicyDoesNotHave: settings that Cloudflare refuses fail tests first.
func TestTheLocalAPIRefusesWhatThePolicyDoesNotHave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := pinned()
	site := w.deploy(d)
	application, prepare := "/containers/applications/"+site.ApplicationID, "/containers/image-preparations"
	elsewhere := `{"image":"ghcr.io/acme/game@sha256:` + strings.Repeat("0a", 32) + `"}`
	for what, r := range map[string]struct{ method, path, body string }{
		"another policy":     {http.MethodPatch, application, `{"scheduling_policy":"default"}`},
		"instances":          {http.MethodPatch, application, `{"max_instances":3}`},
		"a rollout":          {http.MethodPost, application + "/rollouts", `{}`},
		"an image elsewhere": {http.MethodPost, prepare, elsewhere},
		"an image by a tag":  {http.MethodPost, prepare, `{"image":"registry.cloudflare.com/` + account + `/game:v1"}`},
	} {
		if status := w.status(r.method, r.path, r.body); status != http.StatusBadRequest {
			t.Errorf("the answer to %s is %d", what, status)
		}
	}
}

// status sends a request behind the deployer's back, and returns the status of the answer.
func (w *world) status(method, path, body string) int {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+"/accounts/"+account+path, strings.NewReader(body))
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	w.must(err)
	w.must(answer.Body.Close())
	return answer.StatusCode
}

// TestMoreThanAHundredImagesAreSentNowhere: Cloudflare allows a hundred.
func TestMoreThanAHundredImagesAreSentNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := pinned()
	for n := len(d.Images); n <= cloudflare.MaxImages; n++ {
		d.Images[cloudflare.ImageName(numbered(n))] = numbered(n)
	}
	_, err := w.deployer.Deploy(t.Context(), d)
	w.wantCode(err, sandbox.Invalid)
	if n := w.requests(); n > 0 {
		t.Errorf("101 images are refused after %d requests", n)
	}
	delete(d.Images, cloudflare.ImageName(numbered(1)))
	w.deploy(d)
	if n := len(w.api.StartImages(d.Name)); n != cloudflare.MaxImages {
		t.Errorf("%d of 100 images exist", n)
	}
}

// crowd answers in place of every Worker, with these sandboxes and environments.
type crowd struct {
	images func() []string // the images that starts of the shared Worker choose from

	mu           sync.Mutex // guards what follows
	sandboxes    []map[string]any
	environments []cloudflare.Environment
	since        time.Time // when the first environment was added, in the Worker's answer
	asked        int
	fails        func(n int) bool // whether the n-th request fails; nil for none
	closed, down bool
	put          func() // called before each environment that is put; nil for none
}

// living returns the environments that were not removed. The caller holds mu.
func (c *crowd) living() []cloudflare.Environment {
	return slices.DeleteFunc(slices.Clone(c.environments), func(env cloudflare.Environment) bool { return env.RemovedAt != 0 })
}

// onPut makes f run before each environment that is put.
func (c *crowd) onPut(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put = f
}

// closes closes the shared Worker's ledger after its last environment has been removed.
func (c *crowd) closes(last string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.environments = slices.DeleteFunc(c.environments, func(env cloudflare.Environment) bool { return env.ID == last })
}

// opens makes the shared Worker a new one with a new database.
func (c *crowd) opens() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.environments = false, nil
}

// forget resets the count of requests, and makes some of them break off; nil means none.
func (c *crowd) forget(fails func(n int) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.fails = 0, fails
}

func (c *crowd) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// shared answers requests about environments like worker/src/index.ts. The caller holds mu.
func (c *crowd) shared(method, id string, body io.Reader) map[string]any {
	is := func(env cloudflare.Environment) bool { return env.ID == id }
	switch {
	case method == http.MethodPut && !c.closed:
		c.environments = slices.DeleteFunc(c.environments, is)
		env := cloudflare.Environment{ID: id}
		_ = json.NewDecoder(body).Decode(&env) // the test finds an environment without an image
		c.environments = append(c.environments, env)
	case method == http.MethodDelete && id != "":
		for i := range c.environments {
			if is(c.environments[i]) {
				c.environments[i].RemovedAt = c.since.UnixMilli()
			}
		}
	case method == http.MethodDelete:
		c.closed = c.closed || len(c.living())+len(c.sandboxes) == 0
	}
	return map[string]any{"environments": c.environments, "closed": c.closed, "since": c.since.UnixMilli()}
}

func (c *crowd) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/environments/") {
		c.mu.Lock()
		put := c.put
		c.mu.Unlock()
		if put != nil {
			put()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.fails != nil && c.fails(c.asked) {
		return nil, errors.New("the connection broke off")
	}
	say := map[string]any{"instance": account, "sandboxes": c.sandboxes, "more": false}
	if r.URL.Path == "/v1/instance" && strings.Contains(r.URL.Host, "-shared.") {
		say["images"] = c.images()
	}
	if _, id, ok := strings.Cut(r.URL.Path, "/environments"); ok && !c.down {
		say = c.shared(r.Method, strings.TrimPrefix(id, "/"), r.Body)
	}
	said, err := json.Marshal(say)
	status := http.StatusOK
	if c.down {
		status = http.StatusInternalServerError
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(string(said))), Request: r}, err
}

// sleeps adds a sleeping sandbox for each image, which its next start needs; no image means that all were killed.
func (c *crowd) sleeps(images ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sandboxes = nil
	for i, image := range images {
		choice := map[string]any{"image": image, "instance": "lite"}
		view := map[string]any{"state": "stopped", "settings": map[string]any{"image": "of " + image, "choice": choice}}
		c.sandboxes = append(c.sandboxes, map[string]any{"id": fmt.Sprintf("s%04d", i), "view": view})
	}
}

// ground has an environment on an account whose Workers do not run.
type ground struct {
	*world
	origin  *origin
	workers *crowd
	ref     driver.EnvironmentRef
	name    string // of the shared Worker
}

func newGround(t *testing.T) *ground {
	t.Helper()
	cloudflaretest.Need(t) // the built Worker is deployed
	ref := driver.EnvironmentRef{LedgerID: "ledgerofdeploy22", EnvironmentID: "catan-7", Instance: account}
	g := &ground{newWorld(t), newOrigin(t), &crowd{since: time.UnixMilli(1_795_000_000_000)}, ref, cloudflare.SharedName(ref.LedgerID)}
	g.workers.images = func() []string { return g.api.StartImages(g.name) }
	return g
}

// executor returns the executor of a separate process.
func (g *ground) executor(p cloudflare.SchedulingPolicy) *cloudflare.Executor {
	g.Helper()
	return g.executorWith(cloudflare.Config{SchedulingPolicy: p})
}

// hurried returns the executor of a process with a fast clock, which does not wait long for a dead process.
func (g *ground) hurried() *cloudflare.Executor {
	g.Helper()
	began := time.Now()
	return g.executorWith(cloudflare.Config{
		SchedulingPolicy: cloudflare.PolicyDurableObject, Poll: 50 * time.Millisecond,
		Now: func() time.Time { return began.Add(1000 * time.Since(began)) },
	})
}

func (g *ground) executorWith(cfg cloudflare.Config) *cloudflare.Executor {
	g.Helper()
	cfg.Deployer, cfg.MasterKey, cfg.HTTP = g.deployer, "the key of keys", &http.Client{Transport: g.workers}
	x, err := cloudflare.New(cfg)
	g.must(err)
	g.Cleanup(func() { g.must(x.Close()) })
	return x
}

func spec(image, size string) sandbox.EnvironmentSpec {
	resources, _ := sandbox.ResourcesOf(size)
	of := sandbox.EnvironmentSpec{Type: sandbox.TypeCatan, Backend: sandbox.Cloudflare, Image: image, Resources: resources}
	return of.WithDefaults()
}

// noted returns the environment as the shared Worker has it.
func (g *ground) noted() cloudflare.Environment {
	g.Helper()
	g.workers.mu.Lock()
	defer g.workers.mu.Unlock()
	for _, env := range g.workers.environments {
		if env.ID == g.ref.EnvironmentID {
			return env
		}
	}
	g.Fatalf("the shared Worker has no environment %s", g.ref.EnvironmentID)
	return cloudflare.Environment{}
}

// prepared returns the image that the environment's starts choose now.
func (g *ground) prepared() string {
	g.Helper()
	return g.noted().Prepared
}

// TestImagesThatSandboxesNeedStayAndOthersAreCollected: in the map of images, and in the registry.
func TestImagesThatSandboxesNeedStayAndOthersAreCollected(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	x := g.executor(cloudflare.PolicyDurableObject)
	var all []string
	provision := func(says string) {
		g.must(x.Provision(t.Context(), g.ref, spec(g.origin.putGame(says), "lite")))
		all = append(all, g.prepared())
	}
	wantImages := func(when string, images ...string) {
		t.Helper()
		var names []string
		for _, image := range images {
			names = append(names, cloudflare.ImageName(image))
			g.open(image)
		}
		slices.Sort(names)
		if got := g.api.StartImages(g.name); !slices.Equal(got, names) {
			t.Errorf("%s starts choose from %v, want %v", when, got, names)
		}
	}
	provision("first")
	g.workers.sleeps(all[0])
	provision("second")
	provision("third")
	provision("fourth")
	wantImages("while the first is needed", all[0], all[2], all[3])
	g.workers.sleeps()
	provision("fifth")
	wantImages("when nothing sleeps", all[3], all[4])
	provision("sixth")
	if _, err := g.registry().Open(t.Context(), all[0], "linux/amd64"); err == nil {
		t.Error("the registry keeps an image that no sandbox needs")
	}
	g.workers.sleeps(all[3], all[3])
	now := spec(g.noted().Image, "standard-1")
	if found, err := x.Differences(t.Context(), g.ref, now); err != nil || !slices.ContainsFunc(found, isImages) {
		t.Errorf("an image that a sandbox needs is not there, and the differences are %v: %v", found, err)
	}
}

func isImages(d driver.Difference) bool { return d.Setting == "images" }

// TestAWorkerThatDoesNotAnswerKeepsItsImages: it is unknown which of them are needed.
func TestAWorkerThatDoesNotAnswerKeepsItsImages(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	x := g.executor(cloudflare.PolicyDurableObject)
	g.must(x.Provision(t.Context(), g.ref, spec(g.origin.putGame("first"), "lite")))
	first := g.prepared()
	g.workers.down = true
	d := spec(g.origin.putGame("second"), "lite")
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	g.wantCode(x.Provision(short, g.ref, d), sandbox.Unavailable)
	g.workers.down = false
	g.workers.sleeps(first)
	g.must(x.Provision(t.Context(), g.ref, d))
	if got := g.api.StartImages(g.name); len(got) != 2 || !slices.Contains(got, cloudflare.ImageName(first)) {
		t.Errorf("starts choose from %v", got)
	}
	g.open(first)
}

// TestTheHundredAndFirstImageIsRefusedBeforeAnythingIsSent: the environment and its sleeping sandboxes need a hundred.
func TestTheHundredAndFirstImageIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	x := g.executor(cloudflare.PolicyDurableObject)
	first := spec(g.origin.putGame("first"), "lite")
	g.must(x.Provision(t.Context(), g.ref, first))
	var asleep []string
	for n := range cloudflare.MaxImages - 1 {
		asleep = append(asleep, numbered(n))
	}
	g.workers.sleeps(asleep...) // a hundred, with the environment's own
	g.forget(nil)
	next := spec(g.origin.putGame("next"), "lite")
	err := x.Provision(t.Context(), g.ref, next)
	g.wantCode(err, sandbox.CapacityExceeded)
	if !strings.Contains(err.Error(), "end leases") || !strings.Contains(err.Error(), "100") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	if sent := slices.DeleteFunc(g.changes(), isCredentials); len(sent) > 0 {
		t.Errorf("it is refused after %v", sent)
	}
	g.workers.sleeps(asleep[1:]...)
	g.must(x.Provision(t.Context(), g.ref, next))
}

func isCredentials(request string) bool { return strings.HasSuffix(request, "/credentials") }

// TestAnEnvironmentKeepsThePolicyItWasMadeWith: the configured policy applies to new environments only, and not to the
// size basic.
func TestAnEnvironmentKeepsThePolicyItWasMadeWith(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	byObject, byDefault := g.executor(cloudflare.PolicyDurableObject), g.executor(cloudflare.PolicyDefault)
	game := g.origin.putGame("game")
	g.must(byObject.Provision(t.Context(), g.ref, spec(game, "basic")))
	own := cloudflare.DeploymentName(g.ref.LedgerID, g.ref.EnvironmentID)
	site := g.find(own)
	if site.Policy != cloudflare.PolicyDefault {
		t.Errorf("an environment of size basic has the policy %q", site.Policy)
	}
	if found, err := byObject.Differences(t.Context(), g.ref, spec(game, "basic")); err != nil || len(found) > 0 {
		t.Errorf("the size basic differs: %v, %v", found, err)
	}
	g.must(byObject.Provision(t.Context(), g.ref, spec(game, "lite")))
	if now := g.find(own); now.ApplicationID != site.ApplicationID || now.Policy != cloudflare.PolicyDefault {
		t.Errorf("another size has moved application %s to %s, of %s", site.ApplicationID, now.ApplicationID, now.Policy)
	}
	found, err := byObject.Differences(t.Context(), g.ref, spec(game, "lite"))
	want := []driver.Difference{{Setting: "scheduling_policy", Wanted: "durable_object", Found: "default", Kept: true}}
	if diff := cmp.Diff(want, found); err != nil || diff != "" {
		t.Errorf("the differences are wrong: %v\n%s", err, diff)
	}

	g.ref.EnvironmentID = "rpg-5"
	g.must(byObject.Provision(t.Context(), g.ref, spec(game, "lite")))
	g.must(byDefault.Provision(t.Context(), g.ref, spec(game, "standard-1")))
	if kept := g.find(g.name); kept.Policy != cloudflare.PolicyDurableObject || g.noted().Image != game {
		t.Errorf("it was created with durable_object and has %s, with %+v", kept.Policy, g.noted())
	}
	for _, refuse := range []func() error{
		func() error { return byDefault.Check(t.Context(), g.ref, spec(game, "basic")) },
		func() error { return byObject.Provision(t.Context(), g.ref, spec(game, "basic")) },
	} {
		if err := refuse(); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "basic") {
			t.Errorf("the size basic is not refused: %v", err)
		}
	}
}

// TestARolloutLeavesRunningContainersAlone: the grace period is the longest that Cloudflare allows.
func TestARolloutLeavesRunningContainersAlone(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	x := g.executor(cloudflare.PolicyDefault)
	g.must(x.Provision(t.Context(), g.ref, spec(g.origin.putGame("first"), "basic")))
	g.must(x.Provision(t.Context(), g.ref, spec(g.origin.putGame("second"), "basic")))
	var all []struct {
		ID    string
		Grace int `json:"rollout_active_grace_period"`
	}
	g.get("/containers/applications", &all)
	if len(all) != 1 || all[0].Grace != 7*24*3600 {
		t.Errorf("the applications are %+v, want one that leaves containers alone for 7 days", all)
	}
	body := strings.NewReader(`{"rollout_active_grace_period":604801}`)
	if status := g.patch(all[0].ID, body); status != http.StatusBadRequest {
		t.Errorf("the local API answers %d to more than Cloudflare allows", status)
	}
}

// TestRepairRestoresTheImagesOfStarts: another program uploaded the Worker without them while sandboxes sleep.
func TestRepairRestoresTheImagesOfStarts(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	x := g.executor(cloudflare.PolicyDurableObject)
	g.must(x.Provision(t.Context(), g.ref, spec(g.origin.putGame("first"), "lite")))
	first := g.prepared()
	g.workers.sleeps(first)
	now := spec(g.origin.putGame("now"), "lite")
	g.must(x.Provision(t.Context(), g.ref, now))
	was := g.find(g.name)
	bare := wanted() // by another program: no image, and no variable that records one
	bare.Name, bare.Policy, bare.Image = g.name, cloudflare.PolicyDurableObject, numbered(1)
	bare.Images = map[string]string{cloudflare.ImageName(bare.Image): bare.Image}
	g.deploy(bare)
	found, err := x.Repair(t.Context(), g.ref, now)
	g.must(err)
	if !strings.Contains(found, "images") {
		t.Errorf("the repair reports %q", found)
	}
	site := g.find(g.name)
	if !maps.Equal(site.Images, was.Images) || site.ApplicationID != was.ApplicationID {
		t.Errorf("starts choose from %v, want %v", site.Images, was.Images)
	}
	if found, err := x.Repair(t.Context(), g.ref, now); found != "" || err != nil {
		t.Errorf("a second repair reports %q: %v", found, err)
	}
}
