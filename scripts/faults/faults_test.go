// Package faults runs the built reconciler under faults for a while, and then checks that it kept its promises. `make
// test-all` runs it.
package faults

import (
	"cmp"
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

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

const (
	environment = "faults"
	image       = "sandbox-faults/player:latest"
	players     = 6
)

// Players lease, act, rest and die independently, while the reconciler is killed every few seconds. In the end,
// acknowledged conditions must hold, every figure of the bill must follow from the usage periods, and nothing may be
// left.
func TestLongKillsOfAReconcilerOnSQLite(t *testing.T) {
	w := newWorld(t)
	w.join("")
	w.play(w.killAReconciler)
}

// The same with two reconcilers on one PostgreSQL, which crashes as well.
func TestLongKillsOfTwoReconcilersOnPostgreSQL(t *testing.T) {
	w := newWorld(t)
	server := postgrestest.Start(t)
	url := server.URL(t)
	w.join(url)
	w.join(url)
	w.play(w.killAReconciler, w.killAReconciler, w.killAReconciler, func() {
		server.StopImmediately(t)
		server.Start(t)
		w.crashes++
	})
}

// duration is how long the test kills reconcilers.
func duration(t *testing.T) time.Duration {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("takes minutes: set SANDBOX_TEST_LONG=1, or run make test-long")
	}
	d, err := time.ParseDuration(cmp.Or(os.Getenv("SANDBOX_TEST_KILL_LOOP"), "10m"))
	if err != nil {
		t.Fatalf("SANDBOX_TEST_KILL_LOOP: %v", err)
	}
	return d
}

type world struct {
	t           *testing.T
	duration    time.Duration
	root        string
	prices      string
	reconcilers []*harness.Reconciler
	// services are the clients of the reconcilers.
	services []*atomic.Pointer[service.Service]
	// kills and crashes count the faults.
	kills, crashes int
	leased         atomic.Int64

	mu           sync.Mutex // guards the fields below
	acknowledged []sandbox.Delivery
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, duration: duration(t)}
	var err error
	if w.root, err = filepath.Abs("../.."); err != nil {
		t.Fatal(err)
	}
	w.prices = filepath.Join(t.TempDir(), "prices.json")
	// Odd prices make every item inexact before rounding. Sleep has a cost too.
	if err := os.WriteFile(w.prices, []byte(`{"name": "odd", "source": "this test", "as_of": "2026-11-22",
		"memory_gib_second_usd": "0.000002573", "cpu_second_usd": "0.000020011", "disk_gb_second_usd": "0.000000071",
		"asleep_memory_gib_second_usd": "0.000000613", "asleep_disk_gb_second_usd": "0.000000017"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := harness.ImportPlayer(t.Context(), filepath.Join(w.root, "examples", "quickstart"), image); err != nil {
		t.Fatal(err)
	}
	return w
}

// join starts a reconciler on a ledger, "" for an embedded one. All reconcilers have the same credentials.
func (w *world) join(ledgerURL string) {
	w.t.Helper()
	r := harness.NewReconciler(w.root, w.t.TempDir())
	if ledgerURL != "" {
		r.LedgerURL = ledgerURL
	}
	if len(w.reconcilers) == 0 {
		w.t.Cleanup(w.cleanUp) // before the cleanup of the database, which was registered earlier
	} else {
		first := w.reconcilers[0]
		r.TokenFile, r.SecretFile = first.TokenFile, first.SecretFile
	}
	w.reconcilers, w.services = append(w.reconcilers, r), append(w.services, new(atomic.Pointer[service.Service]))
	w.start(len(w.reconcilers) - 1)
}

// play runs the game under faults, a random one every few seconds, and then checks the result.
func (w *world) play(faults ...func()) {
	w.t.Helper()
	rest := sandbox.Duration(2 * time.Second)
	spec := sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, Image: image, Network: sandbox.NetworkNone, SleepAfter: &rest}
	if _, err := w.api().PutEnvironment(w.t.Context(),
		sandbox.PutEnvironment{ID: environment, EnvironmentSpec: spec}); err != nil {
		w.t.Fatal(err)
	}
	engine := followEngine(w.t, w.reconcilers[0].Ledger)
	ctx, cancel := context.WithTimeout(w.t.Context(), w.duration)
	defer cancel()
	var playing sync.WaitGroup
	for i := range players {
		playing.Go(func() { w.player(ctx, fmt.Sprintf("did:plc:player%d", i)) })
	}
	playing.Go(func() { w.referee(ctx) })
	for ctx.Err() == nil {
		pause(ctx, 500*time.Millisecond+rand.N(4*time.Second))
		faults[rand.N(len(faults))]()
	}
	playing.Wait()
	w.t.Logf("%d kills, %d crashes of the database, %d leases, %d conditions acknowledged",
		w.kills, w.crashes, w.leased.Load(), len(w.acknowledged))
	if w.kills < 5 || w.leased.Load() < players || len(w.acknowledged) < players {
		w.t.Fatal("there was too little load for a result")
	}

	w.endEverything()
	w.checkAcknowledgedConditionsAreKnown()
	w.checkUsage(w.readLives(), engine)
	w.checkBill()
	w.checkNothingIsLeft()
}

// cleanUp removes the objects of the test, even after a failure.
func (w *world) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if len(w.services) > 0 && w.services[0].Load() != nil {
		if err := w.api().DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: environment, Force: true}); err != nil {
			w.t.Errorf("delete the environment: %v", err)
		}
	}
	for _, r := range w.reconcilers {
		if err := r.Stop(ctx); err != nil {
			w.t.Error(err)
		}
	}
	if _, err := harness.Docker(ctx, "image", "rm", image); err != nil {
		w.t.Error(err)
	}
}

// api returns the client of a random reconciler.
func (w *world) api() service.Service { return *w.services[rand.N(len(w.services))].Load() }

func (w *world) start(n int) {
	w.t.Helper()
	r := w.reconcilers[n]
	if err := r.Start(w.t.Context(), w.prices); err != nil {
		w.t.Fatal(err)
	}
	service := r.Service // the next start replaces the field
	w.services[n].Store(&service)
}

// killAReconciler kills a reconciler and restarts it.
func (w *world) killAReconciler() {
	n := rand.N(len(w.reconcilers))
	if err := w.reconcilers[n].Kill(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.kills++
	w.start(n)
}

// player leases and ends sandboxes for one agent until ctx ends. It retries what fails because a reconciler is down.
func (w *world) player(ctx context.Context, agent string) {
	for n := 0; ctx.Err() == nil; n++ {
		got, err := w.api().Acquire(ctx, sandbox.Acquire{AgentDID: agent, EnvironmentID: environment})
		if err != nil {
			w.tolerate(ctx, "acquire", err)
			continue
		}
		w.leased.Add(1)
		lease := sandbox.LeaseRef{ID: got.Lease.ID}
		w.turn(ctx, lease)
		switch rand.N(4) {
		case 0: // its sandbox goes to sleep, and wakes for the next turn
			pause(ctx, 3*time.Second)
			w.turn(ctx, lease)
		case 1:
			if _, err := w.api().Release(ctx, lease); err != nil {
				w.tolerate(ctx, "release", err)
			}
			continue
		}
		w.deliver(ctx, fmt.Sprintf("%s-%d", agent, n), "agent.death", agent)
	}
}

// turn runs a command.
func (w *world) turn(ctx context.Context, lease sandbox.LeaseRef) {
	turn := sandbox.ExecRequest{Command: []string{"/player"}, Stdin: strings.NewReader(`{"game":"rpg","state":{}}`)}
	result, err := w.api().Exec(ctx, lease, turn)
	if err != nil {
		w.tolerate(ctx, "exec", err)
	} else if result.ExitCode != 0 {
		w.t.Errorf("%s: exit code %d: %s", lease.ID, result.ExitCode, result.Stderr)
	}
}

// referee ends the game for all players from time to time, and reopens it.
func (w *world) referee(ctx context.Context) {
	for n := 0; ; n++ {
		pause(ctx, 15*time.Second+rand.N(15*time.Second))
		if ctx.Err() != nil {
			return
		}
		w.deliver(ctx, fmt.Sprintf("game-%d", n), "game.finished", "")
		for ctx.Err() == nil {
			if _, err := w.api().ReopenEnvironment(ctx, environment); err == nil {
				break
			}
			pause(ctx, 100*time.Millisecond)
		}
	}
}

// deliver sends a condition, and records that it was acknowledged.
func (w *world) deliver(ctx context.Context, id, condition, agent string) {
	d := sandbox.Delivery{ID: id, Condition: sandbox.Condition{
		Type:      condition,
		Timestamp: time.Now().UTC(),
		Data:      sandbox.ConditionData{EnvironmentID: environment, AgentDID: agent},
	}}
	if _, err := w.api().Deliver(ctx, d); err != nil {
		w.tolerate(ctx, "deliver", err)
		return
	}
	w.mu.Lock()
	w.acknowledged = append(w.acknowledged, d)
	w.mu.Unlock()
}

// tolerate accepts errors that result from a killed reconciler, a database that is down, or an ended game.
func (w *world) tolerate(ctx context.Context, what string, err error) {
	switch code := sandbox.CodeOf(err); {
	case ctx.Err() != nil, sandbox.IsRetryable(err), code == sandbox.LeaseEnded:
	case code == sandbox.EnvironmentEnded:
		pause(ctx, 100*time.Millisecond) // until it is reopened
	default:
		w.t.Errorf("%s: %v", what, err)
	}
}

// pause waits: players rest, and faults have their own pace.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// endEverything ends the game and waits until every lease is destroyed, including the sandboxes of earlier generations.
// The claim of a killed reconciler on a sandbox expires only after some seconds.
func (w *world) endEverything() {
	end := sandbox.Delivery{ID: "the-end", Condition: sandbox.Condition{
		Type: "game.finished", Timestamp: time.Now().UTC(), Data: sandbox.ConditionData{EnvironmentID: environment},
	}}
	if _, err := w.api().Deliver(w.t.Context(), end); err != nil {
		w.t.Fatal(err)
	}
	_, err := harness.Until(w.t.Context(), time.Minute, "every lease is destroyed",
		func(ctx context.Context) (bool, error) {
			leases, err := w.leases(ctx)
			open := slices.ContainsFunc(leases, func(l sandbox.Lease) bool { return l.Status != sandbox.LeaseDestroyed })
			if err != nil || open {
				return false, err
			}
			for _, l := range w.readLives() {
				open = open || l.destroyed.IsZero()
			}
			return !open, nil
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

// life has the times of one sandbox's events.
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

// checkUsage checks that an agent is billed for at least the time in which its sandboxes were ready and wanted, and at
// most the time in which the engine had their containers. So nothing is lost or counted twice, and time without a
// reconciler is not billed.
func (w *world) checkUsage(lives map[string]*life, engine *existences) {
	least := make(map[string]float64)
	for id, l := range lives {
		if l.destroyed.IsZero() {
			w.t.Errorf("sandbox %s of %s has no event of its destruction", id, l.agent)
		}
		if !l.ready.IsZero() {
			least[l.agent] += l.ended.Sub(l.ready).Seconds()
		}
	}
	existed, count := engine.seconds(w.t)
	report, err := w.api().Costs(w.t.Context(),
		sandbox.CostQuery{EnvironmentID: environment, GroupBy: sandbox.CostByAgent})
	if err != nil {
		w.t.Fatal(err)
	}
	const apart = 2.0 // seconds per sandbox: the reconciler learns of a start or a removal from the engine's answer
	// If a reconciler died after it requested a removal, the engine may have forgotten the time of that. Then usage ends
	// with the lease, and misses at most the duration of the removal.
	for _, row := range report.Rows {
		used, slack := row.AwakeSeconds+row.AsleepSeconds, apart*float64(count[row.AgentDID])
		w.t.Logf("%s is billed for %.3f s; the engine had its %d containers for %.3f s",
			row.AgentDID, used, count[row.AgentDID], existed[row.AgentDID])
		if used < least[row.AgentDID]-slack || used > existed[row.AgentDID]+slack {
			w.t.Errorf("%s is billed for %.3f s; its %d sandboxes were ready and wanted for %.3f s, and the engine had their "+
				"containers for %.3f s", row.AgentDID, used, count[row.AgentDID], least[row.AgentDID], existed[row.AgentDID])
		}
	}
	if len(report.Rows) != players {
		w.t.Errorf("%d agents have usage, not %d", len(report.Rows), players)
	}
}

func (w *world) checkNothingIsLeft() {
	ctx := w.t.Context()
	left, err := harness.Containers(ctx, w.reconcilers[0].Ledger)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(left) > 0 {
		w.t.Errorf("every lease is destroyed, and these containers are left: %q", left)
	}
	if err := w.api().DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: environment}); err != nil {
		w.t.Fatal(err)
	}
	if left, err = harness.Objects(ctx, w.reconcilers[0].Ledger, "sandbox-none/none"); err != nil {
		w.t.Fatal(err)
	}
	if len(left) > 0 {
		w.t.Errorf("the environment is deleted, and this is left: %q", left)
	}
}
