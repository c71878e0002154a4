package leasing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestADatabaseThatMisbehavesLosesNothing breaks the connections to PostgreSQL, and the server, under load, in several
// ways. Callers retry when told so. In the end, everything acknowledged has happened, and nothing has happened twice.
func TestADatabaseThatMisbehavesLosesNothing(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	proxy := postgrestest.NewProxy(t, server)
	g := startGame(t, proxy.Through(t, server.URL(t)))
	defer g.stop()
	g.await(20)
	began := time.Now()
	g.await(10)
	usual := time.Since(began) // it depends on what else the machine does
	for _, fault := range []struct {
		name   string
		strike func()
	}{
		{"connections are closed", proxy.Cut},
		{"connections are reset", proxy.Reset},
		{"answers to commits are lost", func() {
			proxy.LoseCommits(10)
			testwait.Until(t, time.Minute, "they are lost", func() bool { return proxy.LeftToLose() == 0 })
		}},
		{"answers are slow", func() {
			proxy.SetLatency(20 * time.Millisecond)
			g.await(2)
			proxy.SetLatency(0)
		}},
		{"connections are refused", func() {
			proxy.SetDown(true)
			time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the outage itself
			proxy.SetDown(false)
		}},
		{"connections carry nothing, and then end", func() {
			proxy.Strand()
			time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the outage itself
			proxy.Cut()
		}},
		{"the server crashes", func() {
			server.StopImmediately(t)
			server.Start(t)
		}},
	} {
		before := g.refused()
		fault.strike()
		well := time.Now()
		g.await(10)
		took := time.Since(well)
		t.Logf("%s: %d requests were put off, and 10 conditions were acknowledged %v after it was over, without a fault "+
			"within %v", fault.name, g.refused()-before, took, usual)
		if took > usual+10*time.Second {
			t.Errorf("%s: it took %v until conditions were acknowledged again", fault.name, took)
		}
	}
	g.stop()
	g.check()
}

// TestLongConnectionsThatCarryNothingAreGivenUp leaves every connection open and silent forever, like a firewall that
// has dropped their state.
func TestLongConnectionsThatCarryNothingAreGivenUp(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("waits for 75 s: set SANDBOX_TEST_LONG=1, or run make test-long")
	}
	t.Parallel()
	server := postgrestest.Start(t)
	proxy := postgrestest.NewProxy(t, server)
	g := startGame(t, proxy.Through(t, server.URL(t)))
	defer g.stop()
	g.await(20)
	proxy.Strand()
	stranded := time.Now()
	g.await(10)
	took := time.Since(stranded)
	t.Logf("conditions were acknowledged again after %v", took)
	if took > 85*time.Second {
		t.Errorf("it took %v until conditions were acknowledged again", took)
	}
	if _, err := g.engine.ListLeases(t.Context(), sandbox.LeaseFilter{}); err != nil {
		t.Error(err)
	}
	g.stop()
	g.check()
}

// brawl is a game whose agents live and die again and again.
type brawl struct {
	*testing.T
	store  *ledger.Store
	engine *leasing.Service
	ctx    context.Context
	end    func()
	wg     sync.WaitGroup

	mu    sync.Mutex     // guards what follows
	lives map[string]int // acknowledged deaths of each agent
	told  int            // number of Unavailable answers
	news  chan struct{}
}

func startGame(t *testing.T, url string) *brawl {
	t.Helper()
	store, err := ledger.Open(t.Context(), url, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{fake.New("engine-1", store.Now)}})
	if err != nil {
		t.Fatal(err)
	}
	g := &brawl{T: t, store: store, engine: engine, lives: make(map[string]int), news: make(chan struct{}, 1)}
	g.ctx, g.end = context.WithCancel(context.Background())
	_, err = engine.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    game,
		Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeRPG, Image: "player", Network: sandbox.NetworkNone},
	})
	if err != nil {
		t.Fatal(err)
	}
	looping, endLoop := context.WithCancel(context.Background())
	loops := sync.WaitGroup{}
	loops.Go(func() { _ = loop.New(engine, loop.Config{}).Run(looping) })
	for i := range 8 {
		g.wg.Go(func() { g.play(fmt.Sprintf("did:plc:a%d", i)) })
	}
	t.Cleanup(func() {
		g.stop()
		endLoop()
		loops.Wait()
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// play makes an agent live and die until the game ends. It repeats each request until it is answered.
func (g *brawl) play(agent string) {
	for life := 1; g.ctx.Err() == nil; life++ {
		var l sandbox.Lease
		if !g.insist(func() error {
			a, err := g.engine.Acquire(g.ctx, sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: "test"})
			l = a.Lease
			return err
		}) {
			return
		}
		if l.Generation != int64(life) {
			g.Errorf("%s has lived %d times and is in generation %d", agent, life, l.Generation)
			return
		}
		d := death(fmt.Sprintf("%s-%d", agent, life), agent, "body")
		d.Condition.Data.Generation = l.Generation
		if !g.insist(func() error {
			_, err := g.engine.Deliver(g.ctx, d)
			return err
		}) {
			return
		}
		g.mu.Lock()
		g.lives[agent]++
		g.mu.Unlock()
		select {
		case g.news <- struct{}{}:
		default:
		}
	}
}

// insist repeats a request until it is answered, and reports whether that was before the end of the game.
func (g *brawl) insist(ask func() error) bool {
	for {
		err := ask()
		switch {
		case err == nil:
			return true
		case g.ctx.Err() != nil:
			return false
		case sandbox.CodeOf(err) != sandbox.Unavailable:
			g.Errorf("a request returned %v (%s)", err, sandbox.CodeOf(err))
			return false
		}
		g.mu.Lock()
		g.told++
		g.mu.Unlock()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-g.ctx.Done():
		}
	}
}

// await waits until n more deaths were acknowledged.
func (g *brawl) await(n int) {
	g.Helper()
	late := time.After(2 * time.Minute) //nolint:forbidigo // the limit of all waits below
	for until := g.deaths() + n; g.deaths() < until; {
		select {
		case <-g.news:
		case <-late:
			g.Fatal("no condition is acknowledged any more")
		}
	}
}

func (g *brawl) deaths() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, lives := range g.lives {
		n += lives
	}
	return n
}

func (g *brawl) refused() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.told
}

func (g *brawl) stop() {
	g.end()
	g.wg.Wait()
}

// check compares the acknowledged requests with the events.
func (g *brawl) check() {
	g.Helper()
	events, err := allEvents(g.Context(), g.engine)
	if err != nil {
		g.Fatal(err)
	}
	applied, ended := make(map[string]int), make(map[string]int)
	for _, e := range events {
		switch e.Type {
		case sandbox.EventConditionApplied:
			var data struct {
				Delivery string `json:"delivery"`
			}
			if err := json.Unmarshal(e.Data, &data); err != nil {
				g.Fatal(err)
			}
			applied[data.Delivery]++
		case sandbox.EventEnded:
			ended[fmt.Sprintf("%s %d", e.LeaseID, e.Generation)]++
		}
	}
	for agent, lives := range g.lives {
		for life := 1; life <= lives; life++ {
			id, generation := fmt.Sprintf("%s-%d", agent, life), fmt.Sprintf("%s %d", sandbox.LeaseID(agent, game), life)
			if applied[id] != 1 || ended[generation] != 1 {
				g.Errorf("death %s was acknowledged, applied %d times, and %s ended %d times",
					id, applied[id], generation, ended[generation])
			}
		}
	}
	g.Logf("%d deaths were acknowledged, %d requests were put off", g.deaths(), g.refused())
}
