package reconciler_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// newProxiedWorld starts a world whose engine can misbehave.
func newProxiedWorld(t *testing.T, change ...func(*reconciler.Config)) (*world, *dockertest.Proxy) {
	t.Helper()
	p := dockertest.NewProxy(t)
	return newWorld(t, p.Host(), change...), p
}

func rpg(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG }

// TestKilledAtEveryStepConverges kills the reconciler right before and right after every kind of call that changes the
// engine. So the ledger and the engine differ in every possible way. In the end, the engine matches the ledger.
func TestKilledAtEveryStepConverges(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		killAtEveryStep(newProxiedWorld(t))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		killAtEveryStep(newProxiedWorld(t, func(c *reconciler.Config) { c.LedgerURL = postgrestest.New(t) }))
	})
}

func killAtEveryStep(w *world, proxy faults) {
	w.environment("catan", rpg)
	n := 0
	for _, s := range w.ground.steps() {
		for _, after := range []bool{false, true} {
			n++
			hit := w.killAt(proxy, s, after)
			w.live(agent(n), hit, fmt.Sprintf("msg_%d", n))
			select {
			case <-hit:
			default:
				w.Fatalf("%s: it was never done", s.name)
			}
			proxy.Set(nil)
			w.start()
			w.wantNothingUnderWay("catan")
		}
	}
	w.wantAllGone("catan", n)
}

// wantNothingUnderWay waits until a reconciler has finished the work of another one. Otherwise a fault for the next
// life would hit that work.
func (w *world) wantNothingUnderWay(environment string) {
	w.Helper()
	w.eventually("what was under way is finished", func() bool {
		leases, err := w.service.ListLeases(w.Context(), sandbox.LeaseFilter{EnvironmentID: environment})
		if err != nil {
			w.Fatal(err)
		}
		return !slices.ContainsFunc(leases, func(l sandbox.Lease) bool {
			moves := l.SandboxState == sandbox.SandboxPending || l.SandboxState == sandbox.SandboxDeleting
			return l.Status != sandbox.LeaseDestroyed && (l.Status != sandbox.LeaseActive || moves)
		})
	})
}

// killAt kills the reconciler at its next call of a kind: before the backend receives it, or after the backend has
// completed it. Then it closes the channel.
func (w *world) killAt(proxy faults, s step, after bool) <-chan struct{} {
	hit := make(chan struct{})
	var once atomic.Bool
	proxy.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if !s.is(r) || once.Swap(true) {
			pass(rw, r)
			return
		}
		if after {
			// The backend completes the call, and its answer is lost.
			pass(unheard{httptest.NewRecorder()}, r.WithContext(context.WithoutCancel(r.Context())))
		}
		w.kill()
		close(hit)
		panic(http.ErrAbortHandler)
	})
	return hit
}

// unheard discards an answer. A connection that is hijacked for the answer breaks immediately.
type unheard struct{ *httptest.ResponseRecorder }

// Hijack implements http.Hijacker.
func (unheard) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	far, near := net.Pipe()
	go func() { // ends with the start of the answer, or with the connection
		_, _ = far.Read(make([]byte, 4<<10))
		_ = far.Close() // never fails
	}()
	return near, bufio.NewReadWriter(bufio.NewReader(near), bufio.NewWriter(near)), nil
}

// live runs a life until it is over or the reconciler was killed during it.
func (w *world) live(agent string, killed <-chan struct{}, message string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 45*time.Second)
	defer cancel()
	go func() {
		select {
		case <-killed:
			cancel()
		case <-ctx.Done():
		}
	}()
	a, err := w.service.Acquire(ctx, sandbox.Acquire{AgentDID: agent, EnvironmentID: "catan"})
	ref := sandbox.LeaseRef{ID: a.Lease.ID}
	if err == nil {
		_, err = w.service.Sleep(ctx, ref)
	}
	if err == nil {
		_, err = w.service.Exec(ctx, ref, sandbox.ExecRequest{Command: []string{"true"}})
	}
	if err == nil {
		w.lastPost(message, sandbox.Condition{Type: "agent.death", Timestamp: time.Now(),
			Data: sandbox.ConditionData{EnvironmentID: "catan", AgentDID: agent}})
		select {
		case <-killed:
		case <-ctx.Done():
		}
	}
	select {
	case <-killed:
	case <-time.After(10 * time.Second): // the answer may arrive before the kill
	}
}

// wantAllGone ends the game, and checks that nothing is left and that every life has its events.
func (w *world) wantAllGone(environment string, lives int) {
	w.Helper()
	status, _ := w.post("msg_end", sandbox.Condition{
		Type:      "game.finished",
		Timestamp: time.Now(),
		Data:      sandbox.ConditionData{EnvironmentID: environment},
	})
	if status != http.StatusAccepted {
		w.Fatalf("the end of the game: %d", status)
	}
	var leases []sandbox.Lease
	w.eventually("every sandbox is destroyed", func() bool {
		var err error
		if leases, err = w.service.ListLeases(w.Context(), sandbox.LeaseFilter{EnvironmentID: environment}); err != nil {
			w.Fatal(err)
		}
		for _, l := range leases {
			if l.Status != sandbox.LeaseDestroyed {
				return false
			}
		}
		return true
	})
	if len(leases) != lives {
		w.Errorf("the ledger knows %d leases, want %d", len(leases), lives)
	}
	for _, l := range leases {
		if l.Generation != 1 || !l.EndedBy.EndedByRules() {
			w.Errorf("%s: generation %d ended by %s: %s", l.ID, l.Generation, l.EndedBy, l.EndReason)
		}
		events, err := w.service.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: l.SandboxID})
		if err != nil {
			w.Fatal(err)
		}
		for i, e := range events {
			if e.Sequence != int64(i+1) {
				w.Errorf("%s: event %d has sequence %d", l.ID, i, e.Sequence)
			}
		}
	}
	if left := w.ground.left(w); left != "" {
		w.Errorf("left of the sandboxes: %s", left)
	}
}

// misbehaviours are the ways in which a backend may misbehave.
var misbehaviours = map[string]func(healed <-chan struct{}) faulttest.Fault{
	"Down":      func(<-chan struct{}) faulttest.Fault { return faulttest.Down },
	"Slow":      func(<-chan struct{}) faulttest.Fault { return faulttest.Slow },
	"Hung":      faulttest.Hung,
	"Error500":  func(<-chan struct{}) faulttest.Fault { return faulttest.Error500 },
	"Truncated": func(<-chan struct{}) faulttest.Fault { return truncated },
	"Lost":      func(<-chan struct{}) faulttest.Fault { return lost },
}

// TestEngineThatMisbehavesLosesNothing makes the engine misbehave in each way while one lease begins and another one
// ends. Meanwhile the service answers and treats no sandbox as gone. Afterwards both operations complete, once.
func TestEngineThatMisbehavesLosesNothing(t *testing.T) {
	t.Parallel()
	for name, misbehave := range misbehaviours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, proxy := newProxiedWorld(t)
			generation := int64(1)
			if name == "Error500" {
				generation = 2 // an engine's error on creating the sandbox ends its lease
			}
			loseNothing(w, proxy, misbehave, generation)
		})
	}
}

// loseNothing makes the backend misbehave. A lease requested meanwhile has the given generation in the end.
func loseNothing(w *world, proxy faults, misbehave func(healed <-chan struct{}) faulttest.Fault, generation int64) {
	w.environment("catan", rpg)
	ending := w.acquire(agent(1), "catan")
	idle := w.acquire(agent(2), "catan")
	healed := make(chan struct{})
	proxy.Set(misbehave(healed))
	var wg sync.WaitGroup
	wg.Go(func() {
		// The request fails or is late; the test repeats it below.
		_, _ = w.service.Acquire(w.Context(), sandbox.Acquire{AgentDID: agent(3), EnvironmentID: "catan"})
	})
	if status, r := w.post("msg_1", sandbox.Condition{Type: "agent.death", Timestamp: time.Now(),
		Data: sandbox.ConditionData{EnvironmentID: "catan", AgentDID: agent(1)}}); status != http.StatusAccepted ||
		r.Matched != 1 {
		w.Errorf("the condition: %d %+v", status, r)
	}
	time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // the outage itself: the loop reconnects each second
	began := time.Now()
	if l := w.lease(idle.ID); l.Status != sandbox.LeaseActive {
		w.Errorf("the idle lease is %s, ended by %q", l.Status, l.EndedBy)
	}
	if _, err := w.service.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: idle.ID}}); err != nil {
		w.Errorf("renewing: %v", err)
	}
	if d := time.Since(began); d > 2*time.Second {
		w.Errorf("reading and renewing took %v", d)
	}
	proxy.Set(nil)
	close(healed)
	wg.Wait()
	w.eventually("the ended lease is destroyed",
		func() bool { return w.lease(ending.ID).Status == sandbox.LeaseDestroyed })
	var begun sandbox.Lease
	w.eventually("the lease that was asked for is there", func() bool {
		a, err := w.service.Acquire(w.Context(), sandbox.Acquire{AgentDID: agent(3), EnvironmentID: "catan"})
		begun = a.Lease
		return err == nil
	})
	if n := w.ground.running(w); begun.Generation != generation || n != 2 {
		w.Errorf("generation %d, and there are %d containers, want generation %d and 2 containers",
			begun.Generation, n, generation)
	}
	w.exec(idle.ID, "true")
}

// TestHungEngineDoesNotStopTheShutdown stops a reconciler whose engine no longer answers.
func TestHungEngineDoesNotStopTheShutdown(t *testing.T) {
	t.Parallel()
	w, proxy := newProxiedWorld(t)
	w.environment("catan", rpg)
	w.acquire(agent(1), "catan")
	healed := make(chan struct{})
	var hung atomic.Int64
	proxy.Set(counted(&hung, faulttest.Hung(healed)))
	w.post("msg_1", sandbox.Condition{
		Type:      "agent.death",
		Timestamp: time.Now(),
		Data:      sandbox.ConditionData{EnvironmentID: "catan", AgentDID: agent(1)},
	})
	w.eventually("a call to the engine hangs", func() bool { return hung.Load() > 0 })
	began := time.Now()
	if err := w.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = w.process.Wait() // its code does not matter here
	if d := time.Since(began); d > 75*time.Second {
		t.Errorf("it took %v to stop, more than a call to the engine may take", d)
	}
	proxy.Set(nil)
	close(healed)
	w.start()
	w.eventually("the ended lease is destroyed", func() bool {
		return w.lease(sandbox.LeaseID(agent(1), "catan")).Status == sandbox.LeaseDestroyed
	})
}

// counted counts the requests that a fault affects.
func counted(n *atomic.Int64, f faulttest.Fault) faulttest.Fault {
	return func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		n.Add(1)
		f(w, r, pass)
	}
}

// truncated forwards half of each answer, and then breaks the connection.
func truncated(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
	if strings.HasSuffix(r.URL.Path, "/events") { // it has no end
		panic(http.ErrAbortHandler)
	}
	faulttest.Truncated(w, r, pass)
}

// lost makes the backend do the work, and drops its answer.
func lost(_ http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
	if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/start") {
		pass(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
	}
	panic(http.ErrAbortHandler)
}
