package reconciler_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func agent(i int) string { return fmt.Sprintf("did:plc:agent%02d", i) }

func TestFiftyCallersGetOneContainer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	var wg sync.WaitGroup
	got := make([]sandbox.Acquired, 50)
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = w.service.Acquire(t.Context(),
				sandbox.Acquire{AgentDID: agent(0), EnvironmentID: "catan"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	fresh := 0
	for _, a := range got {
		if a.IsNew {
			fresh++
		}
		if a.Lease.SandboxID != got[0].Lease.SandboxID || a.Lease.Status != sandbox.LeaseActive {
			t.Errorf("%+v", a.Lease)
		}
	}
	if n := w.containers(); fresh != 1 || n != 1 {
		t.Errorf("%d callers created it, and there are %d containers", fresh, n)
	}
}

func TestTwoHandlesSeeOneWorkspaceAndTheNextLifeAnEmptyOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	id := w.acquire(agent(0), "catan").ID
	w.exec(id, "sh", "-c", "echo settlement > /workspace/board && mkdir /workspace/deep && touch /workspace/deep/x")
	again := w.acquire(agent(0), "catan")
	if out := w.exec(again.ID, "cat", "/workspace/board"); out != "settlement\n" || again.Generation != 1 {
		t.Fatalf("generation %d reads %q", again.Generation, out)
	}
	if _, err := w.service.Release(t.Context(), sandbox.LeaseRef{ID: id}); err != nil {
		t.Fatal(err)
	}
	next := w.acquire(agent(0), "catan")
	if out := w.exec(next.ID, "ls", "/workspace"); out != "config.json\n" || next.Generation != 2 {
		t.Errorf("generation %d finds %q in /workspace", next.Generation, out)
	}
}

// TestKilledReconcilerFinishesWhatItAccepted kills the reconciler right after it has accepted the end of a game, at a
// different moment of the destruction each time.
func TestKilledReconcilerFinishesWhatItAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	const agents = 3
	for round, delay := range []time.Duration{0, 10 * time.Millisecond, 60 * time.Millisecond} {
		game := fmt.Sprintf("catan-%d", round)
		w.environment(game)
		var leases []sandbox.Lease
		for i := range agents {
			leases = append(leases, w.acquire(agent(i), game))
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // the condition must be later than the leases
		finished := sandbox.Condition{
			Type:      "game.finished",
			Timestamp: time.Now(),
			Data:      sandbox.ConditionData{EnvironmentID: game},
		}
		status, receipt := w.post("msg_"+game, finished)
		if status != http.StatusAccepted || receipt.Matched != agents {
			t.Fatalf("%d %+v", status, receipt)
		}
		time.Sleep(delay) //nolint:forbidigo // a kill at different moments
		w.kill()
		w.start()
		w.eventually("all sandboxes of the game are destroyed", func() bool {
			left, err := w.service.ListLeases(t.Context(), sandbox.LeaseFilter{EnvironmentID: game})
			if err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(left, func(l sandbox.Lease) bool { return l.Status != sandbox.LeaseDestroyed })
		})
		if n := w.containers(); n != 0 {
			t.Errorf("round %d: %d containers are left", round, n)
		}
		for _, l := range leases {
			w.wantHistory(l)
		}
		if status, receipt = w.post("msg_"+game, finished); status != http.StatusAccepted || !receipt.Duplicate ||
			receipt.Matched != agents {
			t.Errorf("sent again: %d %+v", status, receipt)
		}
	}
}

// wantHistory checks the events of a life that a condition ended: all of them are there, once and in order. Usage
// begins when the sandbox was ready and ends when it was gone. If the reconciler died meanwhile, only the engine knows
// that time, which is after the end of the lease.
func (w *world) wantHistory(l sandbox.Lease) {
	w.Helper()
	events, err := w.service.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: l.SandboxID})
	if err != nil {
		w.Fatal(err)
	}
	var types []string
	for i, e := range events {
		types = append(types, string(e.Type))
		if e.Sequence != int64(i+1) {
			w.Errorf("event %d has sequence %d", i, e.Sequence)
		}
	}
	want := "sandbox.accepted sandbox.preparing sandbox.ready condition.applied lease.ended " +
		"sandbox.delete_requested sandbox.deleted"
	if got := strings.Join(types, " "); got != want {
		w.Errorf("events of %s: %s, want %s", l.ID, got, want)
	}
	costs, err := w.service.Costs(w.Context(), sandbox.CostQuery{EnvironmentID: l.EnvironmentID, AgentDID: l.AgentDID})
	if err != nil {
		w.Fatal(err)
	}
	end := w.lease(l.ID)
	least, most := end.EndedAt.Sub(end.ReadyAt).Seconds(), end.DestroyedAt.Sub(end.ReadyAt).Seconds()
	if got := costs.Total.AwakeSeconds; got < least-0.001 || got > most+0.001 {
		w.Errorf("usage of %s is %.3f s: it was leased for %.3f s and gone after %.3f s", l.ID, got, least, most)
	}
}

func TestReconcilerKilledWhileItAcquiresMakesOneSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	for i, delay := range []time.Duration{5 * time.Millisecond, 40 * time.Millisecond, 120 * time.Millisecond} {
		service := w.service
		go func() {
			// The reply is lost.
			_, _ = service.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent(i), EnvironmentID: "catan"})
		}()
		time.Sleep(delay) //nolint:forbidigo // a kill at different moments
		w.kill()
		w.start()
		l := w.acquire(agent(i), "catan")
		if l.Generation != 1 {
			t.Errorf("generation %d", l.Generation)
		}
		if n := w.containers(); n != i+1 {
			t.Errorf("%d containers, want %d", n, i+1)
		}
	}
}

func TestTTLEndsALeaseAndIdleTimePutsItToSleep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	second := sandbox.Duration(time.Second)
	w.environment("catan", func(p *sandbox.PutEnvironment) { p.TTL = 15 * second; p.SleepAfter = &second })
	l := w.acquire(agent(0), "catan")
	w.eventually("it sleeps", func() bool { return w.lease(l.ID).Phase == sandbox.PhaseAsleep })
	if out := w.docker("ps", "--filter", w.labelled(), "--filter", sandboxes,
		"--format", "{{.Status}}"); !strings.Contains(out, "Paused") {
		t.Errorf("docker says %q", out)
	}
	began := time.Now()
	w.exec(l.ID, "true")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("wake to first command took %s", took)
	}
	w.eventually("it is gone", func() bool { return w.lease(l.ID).Status == sandbox.LeaseDestroyed })
	end := w.lease(l.ID)
	if end.EndedBy != sandbox.EndedByTTL {
		t.Errorf("ended by %s", end.EndedBy)
	}
	t.Logf("gone %s after its deadline", end.DestroyedAt.Sub(end.EndedAt))
	if _, err := w.service.Renew(t.Context(),
		sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: l.ID}}); sandbox.CodeOf(err) != sandbox.LeaseEnded {
		t.Errorf("renewing it: %v", err)
	}
}

func TestContainerRemovedByHandIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	l := w.acquire(agent(0), "catan")
	w.docker("rm", "-f", w.docker("ps", "-q", "--filter", w.labelled(), "--filter", sandboxes))
	seen, err := w.service.ObserveLease(t.Context(), l.ID)
	if err != nil {
		t.Fatal(err)
	}
	if seen.EndedBy != sandbox.EndedByVanished {
		t.Errorf("ended by %q: %s", seen.EndedBy, seen.EndReason)
	}
	found, err := w.service.ListDrift(t.Context(), sandbox.DriftFilter{LeaseID: l.ID})
	if err != nil || len(found) != 1 || found[0].Kind != sandbox.DriftVanished {
		t.Errorf("%+v, %v", found, err)
	}
}
