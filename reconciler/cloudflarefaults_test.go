package reconciler_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
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

// TestCloudflareThatMisbehavesLosesNothing is TestEngineThatMisbehavesLosesNothing on Cloudflare. An answer that does
// not come from the Worker says nothing about the request, even if it is an error.
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

// deploying and removing are the calls that deploy an environment to an account and remove it.
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
// removal: alternately before or after the step, and with SANDBOX_TEST_LONG both. The next reconciler continues when
// the request is repeated. In the end, the account is empty.
func TestCloudflareKilledWhileItDeploysConverges(t *testing.T) {
	t.Parallel()
	a := cloudflaretest.StartAccount(t)
	w, proxy := newCloudflareWorld(t, a)
	put := func(ctx context.Context) error {
		p := sandbox.PutEnvironment{
			ID:              "catan",
			EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCatan, Network: sandbox.NetworkNone},
		}
		w.ground.place(w, &p.EnvironmentSpec)
		_, err := w.service.PutEnvironment(ctx, p)
		return err
	}
	remove := func(ctx context.Context) error {
		return w.service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: "catan"})
	}
	both := os.Getenv("SANDBOX_TEST_LONG") != ""
	for _, after := range []bool{false, true} {
		for i, s := range deploying {
			if !both && after != (i%2 == 0) {
				continue
			}
			w.killedAt(proxy, s, after, put)
			if err := put(t.Context()); err != nil {
				t.Fatalf("%s: the next reconciler: %v", s.name, err)
			}
			w.acquire(agent(1), "catan")
			if err := w.service.DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: "catan", Force: true}); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
		for i, s := range removing {
			if !both && after != (i%2 == 0) {
				continue
			}
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

// killedAt kills the reconciler at a step of a request, and starts the next one.
func (w *world) killedAt(proxy faults, s step, after bool, ask func(context.Context) error) {
	w.Helper()
	hit := w.killAt(proxy, s, after)
	ctx, cancel := context.WithTimeout(w.Context(), 45*time.Second)
	defer cancel()
	go func() {
		select {
		case <-hit:
			cancel() // the client would retry a dead reconciler for seconds
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

// TestCloudflareEndsUnusedSandboxesWithoutAReconciler kills the reconciler while three agents have a sandbox each. Two
// sandboxes fall asleep meanwhile. The third never sleeps, and ends by its ttl.
func TestCloudflareEndsUnusedSandboxesWithoutAReconciler(t *testing.T) {
	t.Parallel()
	const unused = 15 * time.Second
	a := cloudflaretest.StartAccount(t)
	w := newWorldOn(t, onCloudflare{a}, "", func(c *reconciler.Config) {
		c.Cloudflare = deploy.Config{AccountID: a.ID, Token: a.Token, BaseURL: a.URL, Grace: time.Second}
	})
	sleepAfter, never, ttl := sandbox.Duration(unused), sandbox.Duration(0), sandbox.Duration(unused)
	w.environment("catan", func(p *sandbox.PutEnvironment) { p.SleepAfter = &sleepAfter })
	used, seen := w.acquire(agent(1), "catan"), w.acquire(agent(2), "catan")
	ends, err := w.service.Acquire(t.Context(), sandbox.Acquire{
		AgentDID:      agent(3),
		EnvironmentID: "catan",
		Settings:      sandbox.LeaseSettings{SleepAfter: &never, TTL: &ttl},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []sandbox.Lease{used, seen, ends.Lease} {
		w.exec(l.ID, "sh", "-c", "echo settlement > /data/board")
	}
	info, err := w.service.Ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.kill()
	testwait.NoError(t, 3*time.Minute, "every container has ended", func() error {
		if left := containersOf(w, info.ID); len(left) > 0 {
			return fmt.Errorf("%q run still", left)
		}
		return nil
	})
	inD1 := func(l sandbox.Lease) any {
		rows := a.Query(t, `SELECT status FROM sandbox_leases WHERE id = ?`, l.ID)
		if len(rows) != 1 {
			t.Fatalf("D1 has %v of lease %s", rows, l.ID)
		}
		return rows[0]["status"]
	}
	w.eventually("D1 tells of the end", func() bool { return inD1(ends.Lease) == "expired" })
	if status := inD1(seen); status != "active" {
		t.Errorf("D1 has the status %v for a sleeping lease", status)
	}

	w.start()
	if got := w.exec(used.ID, "cat", "/data/board"); got != "settlement\n" {
		t.Errorf("what was woken has %q", got)
	}
	w.eventually("the ledger knows that it sleeps", func() bool {
		l := w.lease(seen.ID)
		return l.Status == sandbox.LeaseActive && l.SandboxState == sandbox.SandboxStopped && l.StopReason == sandbox.StopIdle
	})
	w.eventually("the ledger knows that it has ended", func() bool {
		l := w.lease(ends.Lease.ID)
		return l.Status == sandbox.LeaseDestroyed && l.EndedBy == sandbox.EndedByTTL
	})
	w.eventually("D1 tells that it is gone", func() bool { return inD1(ends.Lease) == "destroyed" })
	if found, err := w.service.ListDrift(t.Context(), sandbox.DriftFilter{}); err != nil || len(found) != 0 {
		t.Errorf("the findings are %+v: %v", found, err)
	}
}
