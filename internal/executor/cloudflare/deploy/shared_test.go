package deploy_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// called returns the environment with another id.
func (g *ground) called(id string) driver.EnvironmentRef {
	ref := g.ref
	ref.EnvironmentID = id
	return ref
}

// wantEnvironments checks which environments share the Worker, and that starts can choose their images.
func (g *ground) wantEnvironments(ids ...string) {
	g.Helper()
	g.workers.mu.Lock()
	all := g.workers.living()
	g.workers.mu.Unlock()
	images := g.find(g.name).Images
	var got []string
	for _, env := range all {
		got = append(got, env.ID)
		if images[cloudflare.ImageName(env.Prepared)] != env.Prepared {
			g.Errorf("starts of %s cannot choose its image %s", env.ID, env.Prepared)
		}
		g.open(env.Prepared)
	}
	slices.Sort(got)
	if !slices.Equal(got, ids) {
		g.Errorf("the environments %v share the Worker, want %v", got, ids)
	}
}

func isUpload(request string) bool {
	return strings.HasPrefix(request, http.MethodPut) && strings.Contains(request, "/workers/scripts/")
}

func TestEnvironmentsThatComeTogetherShareAWorkerAndItsUploads(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	x := g.executor(cloudflare.PolicyDurableObject)
	const many = 12
	var ids []string
	specs := map[string]sandbox.EnvironmentSpec{}
	for i := range many {
		id := fmt.Sprintf("game-%02d", i)
		ids, specs[id] = append(ids, id), spec(g.origin.putGame(id), "lite")
	}
	var all errgroup.Group
	for _, id := range ids {
		all.Go(func() error { return x.Provision(t.Context(), g.called(id), specs[id]) })
	}
	g.must(all.Wait())
	g.wantEnvironments(ids...)
	uploads := 0
	for _, request := range g.changes() {
		if isUpload(request) {
			uploads++
		}
	}
	t.Logf("%d environments with an image each came with %d uploads and %d calls", many, uploads, g.api.Calls().Most)
	if uploads > many/2 {
		t.Errorf("%d environments that arrived together needed %d uploads", many, uploads)
	}
	if left := g.api.Holding(); left["workers"] != 1 || left["databases"] != 1 || left["buckets"] != 1 {
		t.Errorf("the account has %v", left)
	}
	g.api.ForgetCalls()
	for _, id := range ids {
		if found, err := x.Differences(t.Context(), g.called(id), specs[id]); err != nil || len(found) > 0 {
			t.Errorf("%s differs: %v, %v", id, found, err)
		}
	}
	if n := g.api.Calls().Most; n > 2*many {
		t.Errorf("reading %d environments took %d calls", many, n)
	}

	// An environment with another image is updated. An unchanged one needs no upload.
	g.forget(nil)
	g.must(x.Provision(t.Context(), g.called(ids[0]), specs[ids[0]]))
	isRead := func(request string) bool {
		return isCredentials(request) || strings.HasPrefix(request, http.MethodHead)
	}
	if changes := slices.DeleteFunc(g.changes(), isRead); len(changes) > 0 {
		t.Errorf("an unchanged environment was changed by %v", changes)
	}
	found, err := x.Differences(t.Context(), g.called(ids[1]), specs[ids[0]])
	if err != nil || len(found) != 1 || found[0].Setting != "image" {
		t.Errorf("an environment with another image differs in %v: %v", found, err)
	}
	if found, err := x.Repair(t.Context(), g.called(ids[1]), specs[ids[0]]); err != nil || !strings.Contains(found, "image") {
		t.Errorf("the repair reports %q: %v", found, err)
	}

	// All others stay when one is removed. The removal of the last one removes everything.
	for i, id := range ids {
		g.must(x.Deprovision(t.Context(), g.called(id)))
		if i < many-1 {
			g.wantEnvironments(ids[i+1:]...)
		}
		g.must(x.Deprovision(t.Context(), g.called(id)))
	}
	g.wantNothing()
	if left := g.images("sandbox-environments"); len(left) > 0 {
		t.Errorf("the registry still has %v", left)
	}
}

// TestAnEnvironmentThatWasMadeByItselfStaysSo: earlier releases deployed one Worker for each environment, with either
// policy.
func TestAnEnvironmentThatWasMadeByItselfStaysSo(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	x := g.executor(cloudflare.PolicyDurableObject)
	g.must(x.Provision(t.Context(), g.called("new"), spec(g.origin.putGame("new"), "lite")))
	before := pinned()
	before.Name = cloudflare.DeploymentName(g.ref.LedgerID, g.ref.EnvironmentID)
	was := g.deploy(before)
	g.must(x.Provision(t.Context(), g.ref, spec(g.origin.putGame("game"), "lite")))
	if now := g.find(before.Name); now.NamespaceID != was.NamespaceID || maps.Equal(now.Images, was.Images) {
		t.Errorf("it was moved or has the old image: %+v", now)
	}
	g.wantEnvironments("new")
	g.must(x.Deprovision(t.Context(), g.ref))
	g.wantEnvironments("new")
}

// TestAnImageThatAnotherProcessHasDroppedIsDeployedAgain: the other upload began before the environment was recorded.
func TestAnImageThatAnotherProcessHasDroppedIsDeployedAgain(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	x := g.executor(cloudflare.PolicyDurableObject)
	g.must(x.Provision(t.Context(), g.called("first"), spec(g.origin.putGame("first"), "lite")))
	late := pinned()
	late.Name, late.Images = g.name, g.find(g.name).Images
	for _, image := range late.Images {
		late.Image = image
	}
	g.workers.onPut(sync.OnceFunc(func() { g.deploy(late) }))
	g.must(x.Provision(t.Context(), g.called("second"), spec(g.origin.putGame("second"), "lite")))
	g.wantEnvironments("first", "second")
}

// TestAClosedWorkerIsWaitedFor: another process deletes it, or has died during the deletion.
func TestAClosedWorkerIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"it is deleted": false, "its process has died": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			var asked atomic.Int64
			x := g.executorWith(cloudflare.Config{
				SchedulingPolicy: cloudflare.PolicyDurableObject,
				Now:              func() time.Time { return time.Now().Add(time.Duration(asked.Load()) * time.Minute) },
			})
			game := spec(g.origin.putGame("game"), "lite")
			g.must(x.Provision(t.Context(), g.called("last"), game))
			was := g.find(g.name)
			g.workers.closes("last")
			deletes := sync.OnceFunc(func() { g.must(g.deployer.Delete(t.Context(), g.name)) })
			g.workers.onPut(func() {
				switch {
				case g.find(g.name).NamespaceID != was.NamespaceID:
					g.workers.opens()
				case dies:
					asked.Add(1)
				default:
					deletes()
				}
			})
			g.must(x.Provision(t.Context(), g.ref, game))
			if now := g.find(g.name); now.NamespaceID == was.NamespaceID {
				t.Error("the Worker is still the closed one")
			}
			g.wantEnvironments(g.ref.EnvironmentID)
		})
	}
}

// TestASharedWorkerThatDoesNotAnswerLosesNoEnvironment: it is unknown which environments it has.
func TestASharedWorkerThatDoesNotAnswerLosesNoEnvironment(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	x := g.executor(cloudflare.PolicyDurableObject)
	game := spec(g.origin.putGame("game"), "lite")
	g.must(x.Provision(t.Context(), g.ref, game))
	g.workers.down = true
	y := g.executor(cloudflare.PolicyDefault)
	for what, do := range map[string]func() error{
		"a difference":                   func() error { _, err := y.Differences(t.Context(), g.ref, game); return err },
		"a removal":                      func() error { return y.Deprovision(t.Context(), g.ref) },
		"a deployment of another policy": func() error { return y.Provision(t.Context(), g.ref, game) },
		"a sandbox": func() error {
			_, err := y.Inspect(t.Context(), driver.Handle{LedgerID: g.ref.LedgerID, EnvironmentID: g.ref.EnvironmentID, Instance: account})
			return err
		},
	} {
		if err := do(); sandbox.CodeOf(err) != sandbox.Unavailable && sandbox.CodeOf(err) != sandbox.UnknownOutcome {
			t.Errorf("%s ends with %v", what, err)
		}
	}
	g.workers.down = false
	g.wantEnvironments(g.ref.EnvironmentID)

	// Without its Worker, the environment counts as absent. The next deployment reuses the parts that are left.
	if code := g.status(http.MethodDelete, "/workers/scripts/"+g.name+"?force=true", ""); code != http.StatusOK {
		t.Fatalf("the answer to its deletion is %d", code)
	}
	found, err := x.Repair(t.Context(), g.ref, game)
	if err != nil || !strings.Contains(found, "worker") {
		t.Errorf("the repair reports %q: %v", found, err)
	}
	g.wantEnvironments(g.ref.EnvironmentID)
}

// TestUsageOfASharedApplicationIsThatOfAllItsEnvironments: Cloudflare counts by application. Recently removed
// environments have used it, too.
func TestUsageOfASharedApplicationIsThatOfAllItsEnvironments(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	x := g.executor(cloudflare.PolicyDurableObject)
	game := spec(g.origin.putGame("game"), "lite")
	basic := spec(g.origin.putGame("game"), "basic")
	for id, of := range map[string]sandbox.EnvironmentSpec{"a": game, "b": game, "removed": game, "alone": basic} {
		g.must(x.Provision(t.Context(), g.called(id), of))
	}
	g.must(x.Deprovision(t.Context(), g.called("removed")))
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	g.api.Count(g.name, localapi.Counted{Day: day, CPUSeconds: 90})
	g.api.Count(cloudflare.DeploymentName(g.ref.LedgerID, "alone"), localapi.Counted{Day: day, CPUSeconds: 10})
	refs := []driver.EnvironmentRef{g.called("a"), g.called("alone"), g.called("b"), g.called("absent")}
	groups, err := x.Metered(t.Context(), refs, day, day.AddDate(0, 0, 1))
	g.must(err)
	metered := func(cpu time.Duration) []driver.Metered { return []driver.Metered{{Day: day, CPU: cpu}} }
	byID := func(a, b driver.EnvironmentRef) bool { return a.EnvironmentID < b.EnvironmentID }
	want := []driver.MeteredGroup{
		{
			Environments: []driver.EnvironmentRef{g.called("a"), g.called("b"), g.called("removed")}, Shared: true,
			Since: g.workers.since.UTC(), Days: metered(90 * time.Second),
		},
		{Environments: []driver.EnvironmentRef{g.called("alone")}, Days: metered(10 * time.Second)},
	}
	if diff := cmp.Diff(want, groups, cmpopts.SortSlices(byID)); diff != "" {
		t.Errorf("the usage differs:\n%s", diff)
	}
}

// TestASharedWorkerThatBreaksOffIsCompletedOrRemoved: the process dies at any request to Cloudflare or to the Worker,
// and another process continues.
func TestASharedWorkerThatBreaksOffIsCompletedOrRemoved(t *testing.T) {
	t.Parallel()
	type step func(context.Context, *ground) error
	provision := func(ctx context.Context, g *ground) error {
		return g.hurried().Provision(ctx, g.ref, spec(g.origin.putGame("game"), "lite"))
	}
	remove := func(ctx context.Context, g *ground) error {
		return g.hurried().Deprovision(ctx, g.ref)
	}
	completed := func(g *ground) { g.must(provision(t.Context(), g)); g.wantEnvironments(g.ref.EnvironmentID) }
	removed := func(g *ground) {
		g.must(remove(t.Context(), g))
		g.wantNothing()
		if left := g.images("sandbox-environments"); len(left) > 0 {
			t.Errorf("the registry still has %v", left)
		}
	}
	nothing := func(context.Context, *ground) error { return nil }
	for name, run := range map[string]struct {
		before, do step
		then       func(*ground)
	}{
		"a new one is completed":   {nothing, provision, completed},
		"a new one is removed":     {nothing, provision, removed},
		"a removal is repeated":    {provision, remove, removed},
		"a removed one comes back": {provision, remove, completed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := func() *ground {
				g := newGround(t)
				g.must(run.before(t.Context(), g))
				g.breaksOff(localapi.None, -1)
				g.workers.forget(nil)
				return g
			}
			whole := start()
			whole.must(run.do(t.Context(), whole))
			calls, requests := whole.requests(), whole.workers.requests()
			for n := range 2*calls + requests {
				// Calls break off before or after they have an effect, and with SANDBOX_TEST_LONG both.
				if n < 2*calls && (n%calls%2 == 0) != (n < calls) && os.Getenv("SANDBOX_TEST_LONG") == "" {
					continue
				}
				g, ctx := start(), t.Context()
				switch {
				case n < calls:
					g.breaksOff(localapi.Down, n)
				case n < 2*calls:
					g.breaksOff(localapi.Lost, n-calls)
				default:
					g.workers.forget(func(i int) bool { return i > n-2*calls })
					var cancel context.CancelFunc // the executor waits for a Worker that does not answer
					ctx, cancel = context.WithTimeout(ctx, time.Second)
					defer cancel()
				}
				if err := run.do(ctx, g); err != nil && !sandbox.IsRetryable(err) {
					t.Errorf("the error does not allow a retry: %v", err)
				}
				g.breaksOff(localapi.None, -1)
				g.workers.forget(nil)
				run.then(g)
				if t.Failed() {
					t.Fatalf("after breaking off at %d of %d calls, twice, and %d requests", n, calls, requests)
				}
			}
		})
	}
}

// breaksOff makes the n-th call and all later ones fail; -1 means none.
func (g *ground) breaksOff(how localapi.Fault, n int) {
	g.forget(func(i int, r *http.Request) localapi.Fault {
		fault := localapi.None
		switch {
		case n >= 0 && i == n:
			fault = how
		case n >= 0 && i > n:
			fault = localapi.Down
		}
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/workers/scripts/"+g.name) && fault != localapi.Down {
			g.workers.opens()
		}
		return fault
	})
}
