package leasing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestBatchesNeverLeaseMoreThanAllowed sends single and all-or-none batches at the same time to two engines on one
// ledger, on a backend that fails now and then. The events show how many leases existed at the same time.
func TestBatchesNeverLeaseMoreThanAllowed(t *testing.T) {
	t.Parallel()
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ceiling, covered = 7, 5
			c := newCasino(t, fresh(t))
			basic, _ := sandbox.ResourcesOf("basic")
			c.environment(sandbox.PutEnvironment{ID: "catan-1"})
			hour := sandbox.Duration(time.Hour)
			// An hour of 1 GiB, 4 GB and a quarter of the limit of a quarter of a core, at Cloudflare's list price.
			const cost = sandbox.NanoUSD(14_508_000)
			c.environment(sandbox.PutEnvironment{ID: "catan-2", EnvironmentSpec: sandbox.EnvironmentSpec{
				TTL: hour, Resources: basic, Budget: &sandbox.Budget{Monthly: covered*cost + cost/2}}})
			tenant := &sandbox.Tenant{
				Name:         "catan",
				Environments: []string{"catan-*"},
				Ceiling:      sandbox.Ceiling{Leases: ceiling},
			}

			var players sync.WaitGroup
			for n := range 8 {
				players.Go(func() { c.play(rand.New(rand.NewPCG(uint64(n), 1)), n, tenant) }) //nolint:gosec // not for secrets
			}
			players.Wait()
			c.rest()
			// A ceiling counts leases until their sandboxes are gone. A budget counts the live ones.
			if n := c.mostAtOnce("catan-1", sandbox.EventDeleted); n > ceiling || n < ceiling-2 {
				t.Errorf("there were %d leases at the same time, and the ceiling is %d", n, ceiling)
			}
			if n := c.mostAtOnce("catan-2", sandbox.EventEnded); n > covered || n < covered-2 {
				t.Errorf("%d leases lived at once, and the budget covers %d", n, covered)
			}
		})
	}
}

// casino has two engines with loops on one ledger and one backend.
type casino struct {
	*testing.T
	engines []*leasing.Service
	backend *fake.Executor
}

func newCasino(t *testing.T, url string) *casino {
	t.Helper()
	c := &casino{T: t}
	for range 2 {
		store, err := ledger.Open(t.Context(), url, ledger.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c.backend == nil {
			c.backend = fake.New("engine-1", store.Now)
		}
		engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{c.backend},
			PriceBooks: map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: pricing.Cloudflare()}})
		if err != nil {
			t.Fatal(err)
		}
		c.engines = append(c.engines, engine)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = loop.New(engine, loop.Config{}).Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			<-done
			if err := engine.Close(); err != nil {
				t.Error(err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	var (
		mu   sync.Mutex
		dice = rand.New(rand.NewPCG(7, 7)) //nolint:gosec // not for secrets
	)
	c.backend.Fault(fake.OpSpawn, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		switch dice.IntN(20) {
		case 0:
			return sandbox.Errorf(sandbox.Failed, "exec format error")
		case 1:
			return sandbox.Errorf(sandbox.CapacityExceeded, "no room")
		}
		return nil
	})
	return c
}

func (c *casino) environment(p sandbox.PutEnvironment) {
	c.Helper()
	p.Image, p.Network = "player", sandbox.NetworkNone
	if _, err := c.engines[0].PutEnvironment(c.Context(), p); err != nil {
		c.Fatal(err)
	}
}

// play sends batches of agents that other batches name too, and releases some of the leases.
func (c *casino) play(dice *rand.Rand, n int, tenant *sandbox.Tenant) {
	engine := c.engines[n%2]
	for range 12 {
		b := sandbox.AcquireBatch{EnvironmentID: fmt.Sprint("catan-", 1+dice.IntN(2)), Owner: "test", Tenant: tenant}
		b.AllOrNone = dice.IntN(2) == 0
		for _, i := range dice.Perm(12)[:1+dice.IntN(5)] {
			b.Items = append(b.Items, sandbox.BatchItem{AgentDID: seat(i)})
		}
		results, err := engine.AcquireBatch(c.Context(), b)
		if err != nil {
			c.mayFail(err)
			continue
		}
		for _, r := range results {
			if r.Err != nil {
				c.mayFail(r.Err)
			}
			if r.Err == nil && dice.IntN(3) > 0 {
				_, err := engine.Release(c.Context(), sandbox.LeaseRef{ID: r.Lease.ID, Generation: r.Lease.Generation})
				if err != nil && sandbox.CodeOf(err) != sandbox.Conflict { // others have its next generation
					c.Error(err)
				}
			}
		}
	}
}

func (c *casino) mayFail(err error) {
	switch sandbox.CodeOf(err) {
	case sandbox.Forbidden, sandbox.BudgetExceeded, sandbox.Failed, sandbox.CapacityExceeded, sandbox.Unavailable:
	default:
		c.Errorf("a batch returned %v (%s)", err, sandbox.CodeOf(err))
	}
}

// rest waits until every sandbox on the backend belongs to a live lease, and every live lease has one.
func (c *casino) rest() {
	c.Helper()
	c.backend.Fault(fake.OpSpawn, nil)
	testwait.NoError(c, time.Minute, "every living lease has its sandbox, and no other sandbox is there", func() error {
		leases, err := c.engines[0].ListLeases(c.Context(), sandbox.LeaseFilter{})
		if err != nil {
			c.Fatal(err)
		}
		boxes, lost := c.backend.Sandboxes(), 0
		for _, l := range leases {
			if _, ok := boxes[l.SandboxID]; ok != (l.Status == sandbox.LeaseActive) {
				lost++
			}
			delete(boxes, l.SandboxID)
		}
		if lost == 0 && len(boxes) == 0 {
			return nil
		}
		return fmt.Errorf("%d leases have no sandbox or have ended with one, and %d sandboxes are of no lease",
			lost, len(boxes))
	})
}

// mostAtOnce replays an environment's events: a lease counts from its acceptance until the given event.
func (c *casino) mostAtOnce(environment string, until sandbox.EventType) (most int) {
	c.Helper()
	events, err := allEvents(c.Context(), c.engines[0])
	if err != nil {
		c.Fatal(err)
	}
	there := 0
	for _, e := range events {
		switch {
		case e.EnvironmentID != environment:
		case e.Type == sandbox.EventAccepted:
			there++
		case e.Type == until:
			there--
		}
		most = max(most, there)
	}
	return most
}
