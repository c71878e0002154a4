package leasing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestADayOfABusyServer runs a reconciler for a day of its own time. Hundreds of leases in many games are used, sleep,
// are renewed, end by their games or by their time, or come from warm pools. Sandboxes crash and vanish, the engine
// fails now and then, and the reconciler is killed every few hours. At the end of the day, the process needs no more
// memory than in the morning. An idle process has no more goroutines than a new one, and all usage is accounted for.
// The test is not parallel, because it measures the memory of the whole process.
func TestADayOfABusyServer(t *testing.T) {
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDay(t, "sqlite://"+filepath.Join(dir, "ledger.db"))
		defer d.close()
		for hour := range 24 {
			for range 6 {
				d.tenMinutes()
			}
			d.measure()
			if hour%5 == 4 {
				d.kill()
			}
		}
		d.closeShop()
		d.check()
		d.checkIdle()
	})
}

// day is the day of a busy server.
type day struct {
	*testing.T
	host     *host
	at       *process
	rand     *rand.Rand
	pace     int // actions in ten minutes
	live     []int64
	sent     map[string]sandbox.Condition
	leased   int
	measured []need
}

// need is what a process uses after an hour.
type need struct {
	heap  uint64 // bytes
	alive int    // leases
}

const (
	dayGames  = 12
	dayAgents = 20 // of each game
)

func newDay(t *testing.T, url string) *day {
	d := &day{T: t, rand: rand.New(rand.NewPCG(1, 2)), pace: 10, sent: make(map[string]sandbox.Condition)}
	if os.Getenv("SANDBOX_TEST_LONG") != "" {
		d.pace = 60
	}
	d.host = &host{
		url: url, options: ledger.Options{Now: time.Now, Poll: 10 * time.Minute}, backend: fake.New("engine-1", nil),
		faults: &faults{next: make(map[fake.Op][]fault), orphan: func(string) {}}, ids: sandbox.RandomIDs, book: bookOfTests(),
		loop: &loop.Config{Poll: 10 * time.Minute, ResyncEvery: 10 * time.Minute},
	}
	d.at = d.host.start(t, 0, d.follow)
	for i := range dayGames {
		if _, err := d.at.engine.PutEnvironment(t.Context(), d.game(i)); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func gameOf(i int) string { return fmt.Sprintf("game-%d", i) }

// game returns a game of one of several kinds.
func (d *day) game(i int) sandbox.PutEnvironment {
	idle, hour := sandbox.Duration(10*time.Minute), sandbox.Duration(time.Hour)
	p := sandbox.PutEnvironment{ID: gameOf(i), Owner: "test", EnvironmentSpec: sandbox.EnvironmentSpec{
		Type: sandbox.TypeRPG, Image: "player", Network: sandbox.NetworkNone,
		TTL: hour * sandbox.Duration(1+i%3), MaxLifetime: 6 * hour, SleepAfter: &idle}}
	if i%2 == 1 {
		p.SleepMode = sandbox.SleepStop
	}
	if i%4 == 0 {
		p.WarmPool = &sandbox.WarmPool{Size: 3, TTL: 5 * hour}
	}
	return p
}

func (d *day) follow(e sandbox.Event) { d.live = append(d.live, e.ID) }

func (d *day) kill() {
	d.at.die()
	d.close()
	var last int64
	if len(d.live) > 0 {
		last = d.live[len(d.live)-1]
	}
	d.at = d.host.start(d.T, last, d.follow)
	synctest.Wait()
}

func (d *day) close() { d.at.awaitGone() }

// must fails on an error whose code is not expected on a busy day.
func (d *day) must(err error) {
	d.Helper()
	switch sandbox.CodeOf(err) {
	case "", sandbox.Unavailable, sandbox.UnknownOutcome, sandbox.Failed, sandbox.NotFound, sandbox.LeaseEnded,
		sandbox.EnvironmentEnded, sandbox.Conflict:
	default:
		d.Errorf("%v (%s)", err, sandbox.CodeOf(err))
	}
}

// tenMinutes makes all actors do something, and lets ten minutes pass.
func (d *day) tenMinutes() {
	for range d.pace {
		d.something()
	}
	time.Sleep(10 * time.Minute)
	synctest.Wait()
}

// something is an action of an agent, its orchestrator, its game or its engine.
func (d *day) something() {
	ctx, cancel := context.WithTimeout(d.Context(), 3*time.Minute)
	defer cancel()
	game := gameOf(d.rand.IntN(dayGames))
	agent := fmt.Sprintf("did:plc:a%d", d.rand.IntN(dayAgents))
	ref := sandbox.LeaseRef{ID: sandbox.LeaseID(agent, game)}
	switch p := d.rand.IntN(100); {
	case p < 40:
		a, err := d.at.engine.Acquire(ctx, sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: "test"})
		d.must(err)
		if err == nil && a.IsNew {
			d.leased++
		}
	case p < 70:
		_, err := d.at.engine.Exec(ctx, ref, sandbox.ExecRequest{Command: []string{"exit", fmt.Sprint(p % 2)}})
		d.must(err)
	case p < 78:
		_, err := d.at.engine.Renew(ctx, sandbox.Renew{LeaseRef: ref})
		d.must(err)
	case p < 84:
		_, err := d.at.engine.Release(ctx, ref)
		d.must(err)
	case p < 90:
		_, err := d.at.engine.Sleep(ctx, ref)
		d.must(err)
	case p < 97:
		d.deliver(sandbox.Condition{
			Type:      "agent.death",
			Timestamp: time.Now(),
			Data:      sandbox.ConditionData{EnvironmentID: game, AgentDID: agent},
		})
	case p < 98:
		d.deliver(sandbox.Condition{
			Type:      "game.finished",
			Timestamp: time.Now(),
			Data:      sandbox.ConditionData{EnvironmentID: game},
		})
		_, err := d.at.engine.ReopenEnvironment(ctx, game)
		d.must(err)
	case p < 99:
		if l, err := d.at.engine.GetLease(ctx, ref.ID); err == nil {
			d.host.backend.Remove(l.SandboxID)
		}
	default:
		d.host.faults.arm(operations[d.rand.IntN(len(operations))], []fault{refused, lost, hung}[d.rand.IntN(3)], 2)
	}
}

func (d *day) deliver(c sandbox.Condition) {
	id := fmt.Sprintf("m-%d", len(d.sent))
	d.sent[id] = c
	_, err := d.at.engine.Deliver(d.Context(), sandbox.Delivery{ID: id, Body: []byte(id), Condition: c})
	d.must(err)
}

// measure records what the process uses now.
func (d *day) measure() {
	d.host.faults.heal()
	time.Sleep(3 * time.Minute) // until hanging calls have timed out
	synctest.Wait()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	alive, err := d.at.engine.ListLeases(d.Context(), sandbox.LeaseFilter{Status: sandbox.LeaseActive})
	if err != nil {
		d.Fatal(err)
	}
	d.measured = append(d.measured, need{m.HeapAlloc, len(alive)})
}

// closeShop lets every lease end by its time.
func (d *day) closeShop() {
	d.host.faults.heal()
	for i := range dayGames {
		p := d.game(i)
		p.WarmPool = nil
		if _, err := d.at.engine.PutEnvironment(d.Context(), p); err != nil {
			d.Fatal(err)
		}
	}
	time.Sleep(7 * time.Hour)
	synctest.Wait()
}

func (d *day) check() {
	p, err := look(d.Context(), d.at.store, d.at.engine, d.host.backend.Sandboxes())
	if err != nil {
		d.Fatal(err)
	}
	(&world{T: d.T}).holds(p, known{sent: d.sent})
	if len(p.boxes) != 0 || len(p.rows) < d.leased {
		d.Errorf("%d sandboxes are left, and %d of at least %d are known", len(p.boxes), len(p.rows), d.leased)
	}
	d.Logf("%d leases, %d events, $%s", d.leased, len(p.events), p.costs.Total.Gross)
	d.checkFlat()
}

// checkFlat compares the last quarter of the day with the second, when the server reached its full load.
func (d *day) checkFlat() {
	for hour, m := range d.measured {
		d.Logf("hour %d: %d KiB, %d leases", hour+1, m.heap>>10, m.alive)
	}
	before, after := least(d.measured[6:12]), least(d.measured[18:24])
	if after.heap > before.heap+before.heap/5 {
		d.Errorf("%d KiB became %d KiB", before.heap>>10, after.heap>>10)
	}
}

// least returns the first hour's values with the smallest heap of all hours.
func least(hours []need) need {
	m := hours[0]
	for _, h := range hours {
		m.heap = min(m.heap, h.heap)
	}
	return m
}

// checkIdle compares the process, which has worked for hours and has nothing left to do, with a new one on the same
// ledger. Work on leases must leave no goroutine behind. Nothing else runs, so neither the machine's load nor chance
// affects the result.
func (d *day) checkIdle() {
	synctest.Wait() // until the queries of check are over
	worked := goroutines()
	d.kill()
	time.Sleep(time.Hour)
	synctest.Wait()
	fresh := goroutines()
	for creator, n := range worked {
		if n > fresh[creator] {
			d.Errorf("%d goroutines are there that were %s, and %d in a process that has just begun", n, creator, fresh[creator])
		}
	}
	if len(fresh) < 3 {
		d.Errorf("a process has no goroutines but %v", fresh)
	}
}

// goroutines counts the goroutines of the test's bubble by their creator.
func goroutines() map[string]int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	counts := make(map[string]int)
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		_, creator, _ := strings.Cut(stack, "\ncreated by ")
		creator, _, _ = strings.Cut(creator, " in goroutine")
		if strings.Contains(head, "synctest bubble") {
			counts["created by "+creator]++
		}
	}
	return counts
}
