// Package inprocess creates the service in process, on a separate ledger and an in-memory backend, for the
// suite in servicetest.
package inprocess

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// start is the initial time of every test: half a day before the next day and month.
var start = time.Date(2026, 8, 15, 12, 0, 0, 0, time.UTC)

// SQLite returns the URL of a new ledger.
func SQLite(t *testing.T) string { return fileURL(t) }

func fileURL(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "ledger.db")
	ledgertest.CreateFile(t, path)
	return "sqlite://" + path
}

// New creates a test environment on SQLite. Everything ends with the test.
func New(t *testing.T) servicetest.Env {
	t.Helper()
	e, _ := NewStored(t)
	return e
}

// NewStored is New, and also returns the ledger. change changes the configuration of the service.
func NewStored(t testing.TB, change ...func(*leasing.Config)) (servicetest.Env, *ledger.Store) {
	t.Helper()
	return NewStoredOn(t, fileURL(t), change...)
}

// NewOn is New on another database: url returns the URL of a new ledger.
func NewOn(url func(t *testing.T) string) func(t *testing.T) servicetest.Env {
	return func(t *testing.T) servicetest.Env {
		t.Helper()
		e, _ := NewStoredOn(t, url(t))
		return e
	}
}

// NewStoredOn is NewStored on the database of a URL.
func NewStoredOn(t testing.TB, url string, change ...func(*leasing.Config)) (servicetest.Env, *ledger.Store) {
	t.Helper()
	c := &clock{now: start}
	store, err := ledger.Open(t.Context(), url, ledger.Options{Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	backend := fake.New("engine-1", c.Now)
	states, err := snapshotstore.Open(t.Context(), "mem://")
	if err != nil {
		t.Fatal(err)
	}
	config := leasing.Config{
		Store: store, Objects: states, Executors: []driver.Executor{backend}, Version: "test",
		Keys:       seal.InFile(filepath.Join(t.TempDir(), "secrets.key"), true),
		PriceBooks: map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: pricing.Cloudflare()},
	}
	for _, f := range change {
		f(&config)
	}
	engine, err := leasing.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if err := states.Close(); err != nil {
			t.Error(err)
		}
	})
	away := sandbox.Errorf(sandbox.Unavailable, "the engine is away")
	return servicetest.Env{
		Service:  engine,
		Now:      c.Now,
		Advance:  func(d time.Duration) { advance(t, c, engine, d) },
		Pass:     func(d time.Duration) { c.set(c.Now().Add(d)) },
		Instance: "engine-1",
		Plant:    backend.Plant,
		Remove:   backend.Remove,
		Burn:     backend.Burn,
		Weaken:   backend.Weaken,
		CallModels: func(environmentID string, calls ...sandbox.LLMCall) {
			t.Helper()
			backend.LogLLM(driver.EnvironmentRef{LedgerID: store.ID(), EnvironmentID: environmentID, Instance: "engine-1"},
				calls...)
			if err := engine.CollectEgress(t.Context(), sandbox.Docker); err != nil {
				t.Fatal(err)
			}
		},
		Reach: func(environmentID string, attempts ...sandbox.EgressRecord) {
			t.Helper()
			backend.LogEgress(driver.EnvironmentRef{LedgerID: store.ID(), EnvironmentID: environmentID, Instance: "engine-1"},
				attempts...)
			if err := engine.CollectEgress(t.Context(), sandbox.Docker); err != nil {
				t.Fatal(err)
			}
		},
		Secrets:     backend.Secrets,
		FailKills:   func(fail bool) { backend.Fail(fake.OpKill, when(fail, away)) },
		HoldSpawns:  holdSpawns(backend),
		Running:     func() int { return len(backend.Sandboxes()) },
		Provisioned: backend.Environments,
		Purge:       func(ttl time.Duration) { purge(t, engine, ttl) },
		BackendAway: func(isAway bool) {
			for _, op := range []fake.Op{
				fake.OpInstance, fake.OpSpawn, fake.OpKill, fake.OpExec, fake.OpInspect, fake.OpList, fake.OpUsage,
				fake.OpDependents, fake.OpRemove, fake.OpAudit,
			} {
				backend.Fail(op, when(isAway, away))
			}
		},
	}, store
}

// holdSpawns returns a function that blocks the creation of sandboxes, and unblocks it.
func holdSpawns(backend *fake.Executor) func(hold bool) {
	var held chan struct{}
	return func(hold bool) {
		if !hold {
			close(held)
			backend.Fault(fake.OpSpawn, nil)
			return
		}
		held = make(chan struct{})
		until := held
		backend.Fault(fake.OpSpawn, func(ctx context.Context) error {
			select {
			case <-until:
				return nil
			case <-ctx.Done():
				return sandbox.Errorf(sandbox.Unavailable, "the engine takes too long: %w", ctx.Err())
			}
		})
	}
}

func purge(t testing.TB, engine *leasing.Service, ttl time.Duration) {
	t.Helper()
	if err := engine.RollUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Purge(t.Context(), ttl); err != nil {
		t.Fatal(err)
	}
	if err := engine.PurgeUsage(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func when(fails bool, err error) error {
	if fails {
		return err
	}
	return nil
}

// clock stands still until it is set.
type clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// advance moves the clock from one due time to the next, and does the due work.
func advance(t testing.TB, c *clock, engine *leasing.Service, d time.Duration) {
	t.Helper()
	end := c.Now().Add(d)
	if err := engine.Resync(t.Context(), sandbox.Docker); err != nil && sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Fatal(err)
	}
	for {
		if err := engine.ReconcilePools(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids, next, err := engine.ListDue(t.Context(), sandbox.Docker, sandbox.MaxPage)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			// The lease shows an error of the backend, and its step is due again later.
			if err := engine.Work(t.Context(), id); err != nil && sandbox.CodeOf(err) != sandbox.Unavailable {
				t.Fatal(err)
			}
		}
		switch {
		case len(ids) > 0:
		case next.IsZero() || next.After(end):
			c.set(end)
			return
		default:
			c.set(next)
		}
	}
}
