package leasing_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestAClockThatIsSetEndsNoLeaseEarlyOrLate sets the clock of a busy host forward and back. Nothing ends early,
// everything ends when its time has passed, and used time is billed.
func TestAClockThatIsSetEndsNoLeaseEarlyOrLate(t *testing.T) {
	t.Parallel()
	h := ledgertest.NewHost()
	store, _ := h.Open(t, "sqlite://"+filepath.Join(t.TempDir(), "ledger.db"))
	backend := fake.New("engine-1", h.Now)
	engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{backend},
		PriceBooks: map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: pricing.Cloudflare()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	work := func() {
		t.Helper()
		ids, _, err := engine.ListDue(t.Context(), sandbox.Docker, sandbox.MaxPage)
		for _, id := range ids {
			if err == nil {
				err = engine.Work(t.Context(), id)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	never := sandbox.Duration(0)
	_, err = engine.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    game,
		Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type:       sandbox.TypeRPG,
			Image:      "player",
			Network:    sandbox.NetworkNone,
			TTL:        sandbox.Duration(time.Hour),
			SleepAfter: &never,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const leases = 20
	for i := range leases {
		if _, err := engine.Acquire(t.Context(),
			sandbox.Acquire{AgentDID: fmt.Sprintf("did:plc:a%d", i), EnvironmentID: game, Owner: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	h.Pass(30 * time.Minute)
	for _, step := range []time.Duration{30 * 24 * time.Hour, -60 * 24 * time.Hour, 30 * 24 * time.Hour} {
		h.Step(step)
		work()
		if n := len(backend.Sandboxes()); n != leases {
			t.Fatalf("after a step of %v there are %d sandboxes, want all %d", step, n, leases)
		}
	}
	r, err := engine.Deliver(t.Context(), sandbox.Delivery{ID: "msg-1", Body: []byte("{}"), Condition: sandbox.Condition{
		Type: "agent.death", Timestamp: h.Now(), Data: sandbox.ConditionData{EnvironmentID: game, AgentDID: "did:plc:a0"}}})
	if err != nil || r.Matched != 1 {
		t.Errorf("a condition of now ends %d leases (%v), want 1", r.Matched, err)
	}
	h.Pass(29 * time.Minute)
	work()
	if n := len(backend.Sandboxes()); n != leases-1 {
		t.Errorf("a minute before their time there are %d sandboxes, want %d", n, leases-1)
	}
	h.Pass(2 * time.Minute)
	work()
	if n := len(backend.Sandboxes()); n != 0 {
		t.Errorf("after their time there are %d sandboxes", n)
	}
	costs, err := engine.Costs(t.Context(), sandbox.CostQuery{})
	if err != nil {
		t.Fatal(err)
	}
	want := (59 + 61*(leases-1)) * 60.0
	if costs.Total.AwakeSeconds != want {
		t.Errorf("%v s were used, want %v s", costs.Total.AwakeSeconds, want)
	}
}

// TestAClockThatIsSetAfterARestoreKeepsSandboxesApart: sandboxes from before the restore are neither given out nor
// destroyed as orphans, and later ones wait in their pool.
func TestAClockThatIsSetAfterARestoreKeepsSandboxesApart(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			h := ledgertest.NewHost()
			store, _ := h.Open(t, "sqlite://"+filepath.Join(t.TempDir(), "ledger.db"))
			backend := fake.New("engine-1", h.Now)
			engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{backend},
				PriceBooks: map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: pricing.Cloudflare()}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = engine.Close() })
			w := &world{T: t, store: store, engine: engine, backend: backend}
			fill := func() {
				t.Helper()
				for range 3 {
					err := engine.ReconcilePools(t.Context())
					ids, _, dueErr := engine.ListDue(t.Context(), sandbox.Docker, sandbox.MaxPage)
					for _, id := range ids {
						err = errors.Join(err, engine.Work(t.Context(), id))
					}
					if err := errors.Join(err, dueErr); err != nil {
						t.Fatal(err)
					}
				}
				w.wantPool(1, 0)
			}
			w.environment(withPool(1))
			fill()
			before := slices.Collect(maps.Keys(backend.Sandboxes()))
			w.plantOrphan("unknown")
			h.Pass(time.Minute)
			if err := store.Write(t.Context(), func(tx *ledger.Tx) error { return tx.NoteRestored() }); err != nil {
				t.Fatal(err)
			}
			h.Step(step)
			fill()
			w.wantThere(false, before...)
			h.Pass(time.Minute)
			after := slices.Collect(maps.Keys(backend.Sandboxes()))
			fill()
			w.wantThere(true, after...)
			for range 3 {
				h.Pass(grace)
				w.resyncNow()
			}
			h.Pass(2 * time.Hour) // the clock has passed the time that it showed at the restore
			for range 3 {
				h.Pass(grace)
				w.resyncNow()
			}
			w.wantThere(true, "unknown")
		})
	}
}
