package reconciler_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

// step is a call to the engine that changes something, as the engine's API names it.
type step struct {
	name string
	call *regexp.Regexp
}

// steps are those of a whole life, in their order.
var steps = []step{
	{"create a volume", regexp.MustCompile(`^POST .*/volumes/create$`)},
	{"create a container", regexp.MustCompile(`^POST .*/containers/create$`)},
	{"start the container", regexp.MustCompile(`^POST .*/containers/[^/]+/start$`)},
	{"remove the carrier", regexp.MustCompile(`^DELETE .*/containers/[^/]+-carrier$`)},
	{"pause", regexp.MustCompile(`^POST .*/containers/[^/]+/pause$`)},
	{"unpause", regexp.MustCompile(`^POST .*/containers/[^/]+/unpause$`)},
	{"run a command", regexp.MustCompile(`^POST .*/containers/[^/]+/exec$`)},
	{"remove the container", regexp.MustCompile(`^DELETE .*/containers/[0-9a-f]{64}$`)},
	{"remove a volume", regexp.MustCompile(`^DELETE .*/volumes/`)},
}

func (s step) is(r *http.Request) bool { return s.call.MatchString(r.Method + " " + r.URL.Path) }

// newProxiedWorld starts a world whose engine can misbehave.
func newProxiedWorld(t *testing.T, change ...func(*reconciler.Config)) (*world, *dockertest.Proxy) {
	t.Helper()
	p := dockertest.NewProxy(t)
	return newWorld(t, p.Host(), change...), p
}

func rpg(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG }

// TestKilledAtEveryStepConverges kills the reconciler right before and right after every kind of call
// by which it changes the engine: what is in the ledger and what is on the engine then differ in
// every way that they can. In the end all is as the ledger says, and the ledger knows all.
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

func killAtEveryStep(w *world, proxy *dockertest.Proxy) {
	w.environment("catan", rpg)
	n := 0
	for _, s := range steps {
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
		}
	}
	w.wantAllGone("catan", n)
}

// killAt has the reconciler killed at its next call of a kind: before the engine hears of it, or after
// the engine has done it. The channel is closed then.
func (w *world) killAt(proxy *dockertest.Proxy, s step, after bool) <-chan struct{} {
	hit := make(chan struct{})
	var once atomic.Bool
	proxy.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if !s.is(r) || once.Swap(true) {
			pass(rw, r)
			return
		}
		if after {
			// The engine does it to the end, whoever hears of it.
			pass(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		}
		w.kill()
		close(hit)
		panic(http.ErrAbortHandler)
	})
	return hit
}

// live lives a life until it is over or the reconciler was killed in it.
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
		w.post(message, sandbox.Condition{Type: "agent.death", Timestamp: time.Now(),
			Data: sandbox.ConditionData{EnvironmentID: "catan", AgentDID: agent}})
		select {
		case <-killed:
		case <-ctx.Done():
		}
	}
	select {
	case <-killed:
	case <-time.After(10 * time.Second): // the answer may be here before the kill
	}
}

// wantAllGone ends the game and checks that nothing is left and that every life is told of.
func (w *world) wantAllGone(environment string, lives int) {
	w.Helper()
	status, _ := w.post("msg_end", sandbox.Condition{Type: "game.finished", Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: environment}})
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
	filter := w.labelled()
	if left := w.docker("ps", "-aq", "--filter", filter) + w.docker("volume", "ls", "-q", "--filter", filter, "--filter", "label=io.sandbox-lease.sandbox"); left != "" {
		w.Errorf("left on the engine: %s", left)
	}
}

// TestEngineThatMisbehavesLosesNothing has the engine misbehave in each way while a lease begins and
// another one ends. Meanwhile the service answers and nothing is believed to be gone; afterwards
// both come to their end, once.
func TestEngineThatMisbehavesLosesNothing(t *testing.T) {
	t.Parallel()
	for name, misbehave := range map[string]func(healed <-chan struct{}) dockertest.Fault{
		"Down":      func(<-chan struct{}) dockertest.Fault { return down },
		"Slow":      func(<-chan struct{}) dockertest.Fault { return slow },
		"Hung":      hung,
		"Error500":  func(<-chan struct{}) dockertest.Fault { return error500 },
		"Truncated": func(<-chan struct{}) dockertest.Fault { return truncated },
		"Lost":      func(<-chan struct{}) dockertest.Fault { return lost },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, proxy := newProxiedWorld(t)
			w.environment("catan", rpg)
			ending := w.acquire(agent(1), "catan")
			idle := w.acquire(agent(2), "catan")
			healed := make(chan struct{})
			proxy.Set(misbehave(healed))
			var wg sync.WaitGroup
			wg.Go(func() {
				_, _ = w.service.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent(3), EnvironmentID: "catan"}) // refused or late: it is asked for again below
			})
			if status, r := w.post("msg_1", sandbox.Condition{Type: "agent.death", Timestamp: time.Now(),
				Data: sandbox.ConditionData{EnvironmentID: "catan", AgentDID: agent(1)}}); status != http.StatusAccepted || r.Matched != 1 {
				t.Errorf("the condition: %d %+v", status, r)
			}
			time.Sleep(1500 * time.Millisecond)
			began := time.Now()
			if l := w.lease(idle.ID); l.Status != sandbox.LeaseActive {
				t.Errorf("the lease that nobody touched is %s, ended by %q", l.Status, l.EndedBy)
			}
			if _, err := w.service.Renew(t.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: idle.ID}}); err != nil {
				t.Errorf("renewing: %v", err)
			}
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("reading and renewing took %v", d)
			}
			proxy.Set(nil)
			close(healed)
			wg.Wait()
			w.eventually("the ended lease is destroyed", func() bool { return w.lease(ending.ID).Status == sandbox.LeaseDestroyed })
			var begun sandbox.Lease
			w.eventually("the lease that was asked for is there", func() bool {
				a, err := w.service.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent(3), EnvironmentID: "catan"})
				begun = a.Lease
				return err == nil
			})
			generation := int64(1)
			if name == "Error500" {
				generation = 2 // an engine that says that it could not make the sandbox ends its lease
			}
			if n := w.containers(); begun.Generation != generation || n != 2 {
				t.Errorf("generation %d, and there are %d containers, want generation %d and 2 containers", begun.Generation, n, generation)
			}
			w.exec(idle.ID, "true")
		})
	}
}

// TestHungEngineDoesNotStopTheShutdown stops a reconciler whose engine answers nothing any more.
func TestHungEngineDoesNotStopTheShutdown(t *testing.T) {
	t.Parallel()
	w, proxy := newProxiedWorld(t)
	w.environment("catan", rpg)
	w.acquire(agent(1), "catan")
	healed := make(chan struct{})
	proxy.Set(hung(healed))
	w.post("msg_1", sandbox.Condition{Type: "agent.death", Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: "catan", AgentDID: agent(1)}})
	time.Sleep(500 * time.Millisecond)
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

func down(http.ResponseWriter, *http.Request, http.HandlerFunc) { panic(http.ErrAbortHandler) }

func slow(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
	time.Sleep(300 * time.Millisecond)
	pass(w, r)
}

// hung returns a fault that answers nothing until it is healed.
func hung(healed <-chan struct{}) dockertest.Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
		select {
		case <-healed:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
}

func error500(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, `{"message":"the disk is full"}`) // a client that has gone needs no answer
}

// truncated passes on half of each answer, and then breaks the connection.
func truncated(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
	if strings.HasSuffix(r.URL.Path, "/events") {
		panic(http.ErrAbortHandler)
	}
	whole := httptest.NewRecorder()
	pass(whole, r)
	w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
	w.Header().Set("Content-Length", fmt.Sprint(whole.Body.Len()+1))
	w.WriteHeader(whole.Code)
	_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
	panic(http.ErrAbortHandler)
}

// lost has the engine do what it is asked, and loses its answer.
func lost(_ http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
	if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/start") {
		pass(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
	}
	panic(http.ErrAbortHandler)
}
