package reconciler_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

// newCloudflareWorld starts a world whose account and Workers can misbehave.
func newCloudflareWorld(t *testing.T, a *cloudflaretest.Account) (*world, *cloudflaretest.Proxy) {
	t.Helper()
	p := cloudflaretest.NewProxy(t, a)
	return newWorldOn(t, onCloudflare{a}, "", func(c *reconciler.Config) {
		c.Cloudflare = deploy.Config{AccountID: a.ID, Token: a.Token, BaseURL: p.URL}
	}), p
}

// TestCloudflareKilledAtEveryStepConverges is TestKilledAtEveryStepConverges on Cloudflare.
func TestCloudflareKilledAtEveryStepConverges(t *testing.T) {
	t.Parallel()
	killAtEveryStep(newCloudflareWorld(t, cloudflaretest.StartAccount(t)))
}

// TestCloudflareThatMisbehavesLosesNothing is TestEngineThatMisbehavesLosesNothing on Cloudflare. An answer that
// is no Worker's says nothing of what became of the request, also when it is an error.
func TestCloudflareThatMisbehavesLosesNothing(t *testing.T) {
	t.Parallel()
	a := cloudflaretest.StartAccount(t)
	for name, misbehave := range misbehaviours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, proxy := newCloudflareWorld(t, a)
			loseNothing(w, proxy, misbehave, 1)
		})
	}
}

// deploying and removing are the calls by which an environment comes to an account, and leaves it.
var (
	deploying = []step{
		{"make its database", regexp.MustCompile(`^POST .*/d1/database$`)},
		{"make its bucket", regexp.MustCompile(`^POST .*/r2/buckets$`)},
		{"upload its Worker", regexp.MustCompile(`^PUT .*/workers/scripts/[^/]+$`)},
		{"make its container application", regexp.MustCompile(`^POST .*/containers/applications$`)},
		{"give it a route", regexp.MustCompile(`^POST .*/workers/scripts/[^/]+/subdomain$`)},
	}
	removing = []step{
		{"delete its container application", regexp.MustCompile(`^DELETE .*/containers/applications/[^/]+$`)},
		{"delete its Worker", regexp.MustCompile(`^DELETE .*/workers/scripts/[^/]+$`)},
		{"delete its bucket", regexp.MustCompile(`^DELETE .*/r2/buckets/[^/]+$`)},
		{"delete its database", regexp.MustCompile(`^DELETE .*/d1/database/[^/]+$`)},
	}
)

// TestCloudflareKilledWhileItDeploysConverges kills the reconciler at each step of an environment's deployment and
// of its removal. Asked again, the next one goes on; in the end the account has nothing.
func TestCloudflareKilledWhileItDeploysConverges(t *testing.T) {
	t.Parallel()
	a := cloudflaretest.StartAccount(t)
	w, proxy := newCloudflareWorld(t, a)
	put := func(ctx context.Context) error {
		p := sandbox.PutEnvironment{ID: "catan", EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCatan, Network: sandbox.NetworkNone}}
		w.ground.place(w, &p.EnvironmentSpec)
		_, err := w.service.PutEnvironment(ctx, p)
		return err
	}
	remove := func(ctx context.Context) error {
		return w.service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: "catan"})
	}
	for _, after := range []bool{false, true} {
		for _, s := range deploying {
			w.killedAt(proxy, s, after, put)
			if err := put(t.Context()); err != nil {
				t.Fatalf("%s: the next reconciler: %v", s.name, err)
			}
			w.acquire(agent(1), "catan")
			if err := w.service.DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: "catan", Force: true}); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
		for _, s := range removing {
			if err := put(t.Context()); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			w.killedAt(proxy, s, after, remove)
			if err := remove(t.Context()); err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
				t.Fatalf("%s: the next reconciler: %v", s.name, err)
			}
		}
		if left := a.API.Holding(); len(left) > 0 {
			t.Errorf("the account still has %v", left)
		}
	}
}

// killedAt has the reconciler killed at a step of what is asked, and starts the next one.
func (w *world) killedAt(proxy faults, s step, after bool, ask func(context.Context) error) {
	w.Helper()
	hit := w.killAt(proxy, s, after)
	ctx, cancel := context.WithTimeout(w.Context(), 45*time.Second)
	defer cancel()
	go func() {
		select {
		case <-hit:
			cancel() // a client that asks a dead reconciler asks again for seconds
		case <-ctx.Done():
		}
	}()
	if err := ask(ctx); err == nil {
		w.Fatalf("%s: the reconciler answered, which should be dead", s.name)
	}
	select {
	case <-hit:
	default:
		w.Fatalf("%s: it was never done", s.name)
	}
	proxy.Set(nil)
	w.start()
}
