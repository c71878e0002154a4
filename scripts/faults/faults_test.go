// Package faults runs the built reconciler for a while under faults, and then looks whether it kept
// its promises. `make test-all` runs it.
package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

const (
	environment = "faults"
	image       = "sandbox-faults/player:latest"
	duration    = 2 * time.Minute
	players     = 6
)

// Players lease, act and die, each on its own, while the reconciler is killed every few seconds.
// What was acknowledged must hold in the end, and nothing may be left over.
func TestLongReconcilerIsKilledAgainAndAgain(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("takes minutes: set SANDBOX_TEST_LONG=1, or run make test-all")
	}
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var playing sync.WaitGroup
	for i := range players {
		playing.Go(func() { w.play(ctx, fmt.Sprintf("did:plc:player%d", i)) })
	}
	kills := w.killAgainAndAgain(ctx)
	playing.Wait()
	t.Logf("%d kills, %d leases, %d conditions acknowledged", kills, w.leased.Load(), len(w.acknowledged))
	if kills < 5 || w.leased.Load() < players || len(w.acknowledged) < players {
		t.Fatal("that was too little to say anything")
	}

	w.endEverything()
	w.checkAcknowledgedConditionsAreKnown()
	w.checkUsage(w.readLives())
	w.checkNothingIsLeft()
}

type world struct {
	t          *testing.T
	reconciler *harness.Reconciler
	prices     string
	service    atomic.Pointer[sandbox.Service]
	leased     atomic.Int64

	mu           sync.Mutex // guards what follows
	acknowledged []sandbox.Delivery
}

func newWorld(t *testing.T) *world {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	example := filepath.Join(root, "examples", "quickstart")
	w := &world{t: t, reconciler: harness.NewReconciler(root, t.TempDir()), prices: filepath.Join(example, "prices.json")}
	if err := harness.ImportPlayer(t.Context(), example, image); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cleanUp)
	w.start(t.Context())
	spec := sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, Image: image, Network: sandbox.NetworkNone}
	if _, err := w.api().PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: environment, EnvironmentSpec: spec}); err != nil {
		t.Fatal(err)
	}
	return w
}

// cleanUp removes what the test made, also when it failed.
func (w *world) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s := w.service.Load(); s != nil {
		if err := (*s).DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: environment, Force: true}); err != nil {
			w.t.Errorf("delete the environment: %v", err)
		}
	}
	if err := w.reconciler.Stop(ctx); err != nil {
		w.t.Error(err)
	}
	if _, err := harness.Docker(ctx, "image", "rm", image); err != nil {
		w.t.Error(err)
	}
}

func (w *world) api() sandbox.Service { return *w.service.Load() }

func (w *world) start(ctx context.Context) {
	w.t.Helper()
	if err := w.reconciler.Start(ctx, w.prices); err != nil {
		w.t.Fatal(err)
	}
	service := w.reconciler.Service // the next start replaces it there
	w.service.Store(&service)
}

// killAgainAndAgain kills and restarts the reconciler until ctx ends, and returns how often.
func (w *world) killAgainAndAgain(ctx context.Context) int {
	for kills := 0; ; kills++ {
		select {
		case <-ctx.Done():
			return kills
		case <-time.After(500*time.Millisecond + rand.N(4*time.Second)): // the fault's own pace, not a wait
		}
		if err := w.reconciler.Kill(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		w.start(w.t.Context())
	}
}

// play lets one agent live and die until ctx ends. Whatever fails because the reconciler is down is
// tried again.
func (w *world) play(ctx context.Context, agent string) {
	for n := 0; ctx.Err() == nil; n++ {
		got, err := w.api().Acquire(ctx, sandbox.Acquire{AgentDID: agent, EnvironmentID: environment})
		if err != nil {
			w.tolerate(ctx, "acquire", err)
			continue
		}
		w.leased.Add(1)
		turn := sandbox.ExecRequest{Command: []string{"/player"}, Stdin: strings.NewReader(`{"game":"rpg","state":{}}`)}
		if result, err := w.api().Exec(ctx, sandbox.LeaseRef{ID: got.Lease.ID}, turn); err != nil {
			w.tolerate(ctx, "exec", err)
		} else if result.ExitCode != 0 {
			w.t.Errorf("%s: exit code %d: %s", got.Lease.ID, result.ExitCode, result.Stderr)
		}
		d := sandbox.Delivery{ID: fmt.Sprintf("%s-%d", agent, n), Condition: sandbox.Condition{
			Type: "agent.death", Timestamp: time.Now().UTC(),
			Data: sandbox.ConditionData{EnvironmentID: environment, AgentDID: agent},
		}}
		if _, err := w.api().Deliver(ctx, d); err != nil {
			w.tolerate(ctx, "deliver", err)
			continue
		}
		w.mu.Lock()
		w.acknowledged = append(w.acknowledged, d)
		w.mu.Unlock()
	}
}

// tolerate accepts the errors that a killed reconciler explains.
func (w *world) tolerate(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && !sandbox.IsRetryable(err) && sandbox.CodeOf(err) != sandbox.LeaseEnded {
		w.t.Errorf("%s: %v", what, err)
	}
}

// endEverything ends the game and waits until every lease is destroyed.
func (w *world) endEverything() {
	end := sandbox.Delivery{ID: "the-end", Condition: sandbox.Condition{
		Type: "game.finished", Timestamp: time.Now().UTC(), Data: sandbox.ConditionData{EnvironmentID: environment},
	}}
	if _, err := w.api().Deliver(w.t.Context(), end); err != nil {
		w.t.Fatal(err)
	}
	_, err := harness.Until(w.t.Context(), time.Minute, "every lease is destroyed", func(ctx context.Context) (bool, error) {
		leases, err := w.leases(ctx)
		open := slices.ContainsFunc(leases, func(l sandbox.Lease) bool { return l.Status != sandbox.LeaseDestroyed })
		return err == nil && !open, err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) leases(ctx context.Context) ([]sandbox.Lease, error) {
	return w.api().ListLeases(ctx, sandbox.LeaseFilter{EnvironmentID: environment})
}

func (w *world) checkAcknowledgedConditionsAreKnown() {
	for _, d := range w.acknowledged {
		receipt, err := w.api().Deliver(w.t.Context(), d)
		if err != nil || !receipt.Duplicate {
			w.t.Errorf("condition %s was acknowledged, and sent again it gives %+v, %v", d.ID, receipt, err)
		}
	}
}

// life is what the events tell about one sandbox.
type life struct {
	agent                             string
	sequence                          int64
	accepted, ready, ended, destroyed time.Time
}

// readLives reads all events, and checks that their sequences have no gap.
func (w *world) readLives() map[string]*life {
	lives := make(map[string]*life)
	for after := int64(0); ; {
		events, err := w.api().ListEvents(w.t.Context(), sandbox.EventFilter{EnvironmentID: environment, AfterID: after})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range events {
			after = e.ID
			if e.SandboxID != "" {
				w.readEvent(lives, e)
			}
		}
		if len(events) == 0 {
			return lives
		}
	}
}

func (w *world) readEvent(lives map[string]*life, e sandbox.Event) {
	l := lives[e.SandboxID]
	if l == nil {
		agent, _, err := sandbox.ParseLeaseID(e.LeaseID)
		if err != nil {
			w.t.Fatal(err)
		}
		l = &life{agent: agent}
		lives[e.SandboxID] = l
	}
	if e.Sequence != l.sequence+1 {
		w.t.Errorf("sandbox %s: event %d follows event %d", e.SandboxID, e.Sequence, l.sequence)
	}
	l.sequence = e.Sequence
	switch e.Type {
	case sandbox.EventAccepted:
		l.accepted = e.At
	case sandbox.EventReady:
		l.ready = e.At
	case sandbox.EventEnded:
		l.ended = e.At
	case sandbox.EventDeleted:
		l.destroyed = e.At
	}
}

// What an agent is billed for is at least the time for which its sandboxes were ready and wanted,
// and at most that for which they existed: nothing is lost, nothing counted twice.
func (w *world) checkUsage(lives map[string]*life) {
	var least, most = make(map[string]float64), make(map[string]float64)
	for id, l := range lives {
		if l.destroyed.IsZero() {
			w.t.Errorf("sandbox %s of %s has no event that it was destroyed", id, l.agent)
		}
		if !l.ready.IsZero() {
			least[l.agent] += l.ended.Sub(l.ready).Seconds()
		}
		most[l.agent] += l.destroyed.Sub(l.accepted).Seconds()
	}
	report, err := w.api().Costs(w.t.Context(), sandbox.CostQuery{EnvironmentID: environment, GroupBy: sandbox.CostByAgent})
	if err != nil {
		w.t.Fatal(err)
	}
	const rounding = 0.001
	for _, row := range report.Rows {
		used := row.AwakeSeconds + row.AsleepSeconds
		if used < least[row.AgentDID]-rounding || used > most[row.AgentDID]+rounding {
			w.t.Errorf("%s is billed for %.3f s, not between %.3f and %.3f s", row.AgentDID, used, least[row.AgentDID], most[row.AgentDID])
		}
	}
	if len(report.Rows) != players {
		w.t.Errorf("%d agents have usage, not %d", len(report.Rows), players)
	}
}

func (w *world) checkNothingIsLeft() {
	ctx := w.t.Context()
	left, err := harness.Containers(ctx, w.reconciler.Ledger)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(left) > 0 {
		w.t.Errorf("every lease is destroyed, and these containers are left: %q", left)
	}
	if err := w.api().DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: environment}); err != nil {
		w.t.Fatal(err)
	}
	if left, err = harness.Leftovers(ctx, w.reconciler.Ledger, "sandbox-none/none"); err != nil {
		w.t.Fatal(err)
	}
	if len(left) > 0 {
		w.t.Errorf("the environment is deleted, and this is left: %q", left)
	}
}
