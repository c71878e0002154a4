package reconciler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// TestLongKillsAtRandomMoments kills the reconciler again and again while agents come, work, die
// and leave, and then looks whether what exists is what is leased, and whether every life has its
// events.
func TestLongKillsAtRandomMoments(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("takes two minutes; set SANDBOX_TEST_LONG=1")
	}
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newWorld(t, "")
	w.environment("rpg", func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
	const agents = 6
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(200+rand.N(1500))*time.Millisecond)
		var wg sync.WaitGroup
		for i := range agents {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() { w.liveUntil(ctx, i, random) })
		}
		<-ctx.Done()
		w.kill()
		cancel()
		wg.Wait()
		seed++
		w.start()
	}
	w.eventually("nothing is pending or expired any more", func() bool {
		for _, status := range []sandbox.LeaseStatus{sandbox.LeasePending, sandbox.LeaseExpired} {
			left, err := w.service.ListLeases(t.Context(), sandbox.LeaseFilter{Status: status})
			if err != nil {
				t.Fatal(err)
			}
			if len(left) > 0 {
				return false
			}
		}
		return true
	})
	active, err := w.service.ListLeases(t.Context(), sandbox.LeaseFilter{Status: sandbox.LeaseActive})
	if err != nil {
		t.Fatal(err)
	}
	if n := w.containers(); n != len(active) {
		t.Errorf("%d containers exist and %d are leased", n, len(active))
	}
	for i := range agents {
		w.wantDenseEvents(sandbox.LeaseID(agent(i), "rpg"))
	}
}

// liveUntil does what an agent and its game server do. Errors are the point: the reconciler dies.
func (w *world) liveUntil(ctx context.Context, i int, random *rand.Rand) {
	ref := sandbox.LeaseRef{ID: sandbox.LeaseID(agent(i), "rpg")}
	for n := 0; ctx.Err() == nil; n++ {
		switch random.IntN(4) {
		case 0, 1:
			_, _ = w.service.Acquire(ctx, sandbox.Acquire{AgentDID: agent(i), EnvironmentID: "rpg"})
		case 2:
			_, _ = w.service.Exec(ctx, ref, sandbox.ExecRequest{Command: []string{"true"}})
		default:
			_, _ = w.service.Deliver(ctx, sandbox.Delivery{ID: fmt.Sprintf("%d-%d-%d", i, n, random.Uint64()),
				Condition: sandbox.Condition{Type: "agent.death", Timestamp: time.Now(),
					Data: sandbox.ConditionData{EnvironmentID: "rpg", AgentDID: agent(i)}}})
		}
	}
}

// wantDenseEvents checks that each life of a lease has its events without a gap, and that each but
// a living one was destroyed once.
func (w *world) wantDenseEvents(leaseID string) {
	w.Helper()
	last := make(map[string]int64)
	destroyed := make(map[string]int)
	f := sandbox.EventFilter{LeaseID: leaseID}
	for {
		events, err := w.service.ListEvents(w.Context(), f)
		if err != nil {
			w.Fatal(err)
		}
		for _, e := range events {
			if e.Sequence != last[e.SandboxID]+1 {
				w.Errorf("%s: sequence %d follows %d", e.SandboxID, e.Sequence, last[e.SandboxID])
			}
			last[e.SandboxID] = e.Sequence
			if e.Type == sandbox.EventDestroyed {
				destroyed[e.SandboxID]++
			}
			f.AfterID = e.ID
		}
		if len(events) < sandbox.MaxPage {
			break
		}
	}
	current := w.lease(leaseID)
	w.Logf("%s lived %d lives", leaseID, len(last))
	for id := range last {
		want := 1
		if id == current.SandboxID && current.Status != sandbox.LeaseDestroyed {
			want = 0
		}
		if destroyed[id] != want {
			w.Errorf("%s was destroyed %d times, want %d", id, destroyed[id], want)
		}
	}
}
