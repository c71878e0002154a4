package leasing_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestWhateverHappensEveryInvariantHolds does random things to a reconciler, its backend, its clock and its leases. It
// checks everything after each step, and finally lets everything come to rest.
func TestWhateverHappensEveryInvariantHolds(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(r *rapid.T) {
			url := "sqlite://" + filepath.Join(memoryDir(t), "ledger.db")
			rapid.SyncTest(r, func(r *rapid.T) { newMachine(r, url).run() })
		})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		few(t, func(r *rapid.T) {
			url := postgrestest.New(t) + "&synchronous_commit=off"
			rapid.SyncTest(r, func(r *rapid.T) { newMachine(r, url).run() })
		})
	})
}

// few is rapid.Check with few cases, because a history takes seconds on PostgreSQL.
func few(t *testing.T, check func(*rapid.T)) {
	t.Helper()
	left := 3
	if os.Getenv("SANDBOX_TEST_LONG") != "" {
		left = 30
	}
	rapid.Check(t, func(r *rapid.T) {
		if left--; left >= 0 || t.Failed() {
			check(r)
		}
	})
}

// memoryDir returns a directory for ledgers that need not survive a crash of the machine. If possible it is in memory,
// because a sync to disk takes longer than the rest of a history.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "leasing")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// machine is a history with one reconciler at a time, and with earlier ones that froze.
type machine struct {
	*rapid.T
	host   *host
	clock  *stepper
	at     *process
	frozen []*process
	known  known
	env    map[string]sandbox.PutEnvironment

	acknowledged []sandbox.Delivery

	mu   sync.Mutex // guards what follows
	live []int64
	ids  int
}

// The environments of a machine. One has a warm pool whose sandboxes sleep by pause. The other has a budget; its
// sandboxes run commands before they are ready, sleep by stop, and are kept for a while after a failure.
const (
	pooledGame   = "catan-7"
	budgetedGame = "rpg-1"
)

func newMachine(r *rapid.T, url string) *machine {
	clock := &stepper{}
	m := &machine{
		T:     r,
		clock: clock,
		known: known{sent: make(map[string]sandbox.Condition), outside: make(map[string]bool)},
		env:   make(map[string]sandbox.PutEnvironment),
	}
	m.host = &host{
		url:     url,
		options: ledger.Options{Now: clock.now, Boot: clock.boot, BootID: "boot", Poll: noticeEvery, NoListen: true},
		backend: fake.New("engine-1", clock.now),
		faults:  &faults{next: make(map[fake.Op][]fault), orphan: m.orphan},
		ids:     m.issue,
		book:    bookOfTests(),
		loop:    &loop.Config{Poll: time.Minute, ResyncEvery: 2 * time.Minute},
	}
	return m
}

// noticeEvery is how often a reconciler looks for commits of other processes.
const noticeEvery = 10 * time.Second

func (m *machine) now() time.Time { return m.clock.now() }

// stepper is the clock of a host in a bubble. Its time since boot is the bubble's time.
type stepper struct {
	mu      sync.Mutex // guards stepped
	stepped time.Duration
}

func (s *stepper) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.stepped)
}

func (s *stepper) boot() time.Duration { return time.Duration(time.Now().UnixNano()) }

func (s *stepper) step(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stepped += d
}

// issue returns ids that are the same in each run of a history.
func (m *machine) issue(length int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids++
	id := []byte(strings.Repeat("a", length))
	for i, n := length-1, m.ids; n > 0; i, n = i-1, n/26 {
		id[i] = byte('a' + n%26)
	}
	return string(id)
}

func (m *machine) run() {
	m.begin()
	defer m.end()
	steps := make(map[string]func(*rapid.T))
	for name, act := range everything {
		steps[name] = func(*rapid.T) { act(m) }
	}
	steps[""] = func(*rapid.T) { m.check(invariants) }
	m.Repeat(steps)
	m.converge()
}

func (m *machine) begin() {
	m.start()
	never, hour := sandbox.Duration(0), sandbox.Duration(time.Hour)
	minutes := hour / 30
	idle := hour / 6
	m.put(sandbox.PutEnvironment{ID: pooledGame, Owner: "test", EnvironmentSpec: sandbox.EnvironmentSpec{
		Type:        sandbox.TypeRPG,
		Image:       "player",
		Network:     sandbox.NetworkNone,
		TTL:         hour,
		MaxLifetime: 5 * hour,
		SleepAfter:  &idle,
		PostMortem:  &never,
	}})
	m.put(sandbox.PutEnvironment{ID: budgetedGame, Owner: "test", EnvironmentSpec: sandbox.EnvironmentSpec{
		Type:        sandbox.TypeRPG,
		Image:       "player",
		Network:     sandbox.NetworkNone,
		TTL:         hour,
		MaxLifetime: 5 * hour,
		SleepAfter:  &never,
		PostMortem:  &minutes,
		SleepMode:   sandbox.SleepStop,
		Budget:      &sandbox.Budget{Monthly: 400_000_000},
		PostStart:   []sandbox.PostStart{{Command: []string{"echo"}}, {Command: []string{"sleep", "20s"}}},
	}})
	m.rest()
}

func (m *machine) put(p sandbox.PutEnvironment) {
	m.env[p.ID] = p
	_ = m.call(func(ctx context.Context) error {
		_, err := m.at.engine.PutEnvironment(ctx, p)
		return err
	})
}

// start starts a reconciler, which follows the events from the position of its predecessor.
func (m *machine) start() {
	var last int64
	m.mu.Lock()
	if len(m.live) > 0 {
		last = m.live[len(m.live)-1]
	}
	m.mu.Unlock()
	m.at = m.host.start(m.T, last, m.follow)
}

func (m *machine) follow(e sandbox.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = append(m.live, e.ID)
}

// orphan records a sandbox that may exist unknown to the engine.
func (m *machine) orphan(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known.outside[id] = true
}

func (m *machine) end() {
	for _, p := range append(m.frozen, m.at) {
		p.awaitGone()
	}
}

// replace replaces a reconciler that died or froze.
func (m *machine) replace() {
	if m.at.isFrozen() {
		m.Log("  the reconciler froze; another one starts")
		m.frozen = append(m.frozen, m.at)
	} else {
		m.Log("  the reconciler died; another one starts")
		m.at.awaitGone()
	}
	m.start()
}

// call makes a request to the reconciler. It returns nil, or an error with a code that the faults allow. Other errors
// fail the history.
func (m *machine) call(f func(ctx context.Context) error, allowed ...sandbox.Code) error {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.at.life, 3*time.Minute)
	defer cancel()
	err := m.at.ask(func() error { return f(ctx) })
	died := !m.at.alive()
	m.rest()
	code := sandbox.CodeOf(err)
	if err != nil {
		m.Logf("  %s", code)
	}
	switch {
	case err == nil || died || sandbox.IsRetryable(err) || code == sandbox.Failed:
		return err
	}
	for _, c := range allowed {
		if code == c {
			return err
		}
	}
	m.Logf("%v", err)
	m.Fatalf("the call ended with %s", code)
	return err
}

// rest runs the reconciler until everything waits for time to pass, for the end of a fault, or for a request.
func (m *machine) rest() {
	m.Helper()
	synctest.Wait()
	for !m.at.alive() {
		m.replace()
		synctest.Wait()
	}
}

// pass lets time pass.
func (m *machine) pass(d time.Duration) {
	m.Helper()
	time.Sleep(d)
	m.rest()
}

// check checks the invariants on a new picture.
func (m *machine) check(all []invariant) {
	m.Helper()
	p, err := look(m.Context(), m.at.store, m.at.engine, m.host.backend.Sandboxes())
	if err != nil {
		m.Fatal(err)
	}
	m.mu.Lock()
	k := known{
		before:   m.known.before,
		live:     append([]int64(nil), m.live...),
		sent:     m.known.sent,
		outside:  maps.Clone(m.known.outside),
		commands: m.known.commands,
	}
	m.mu.Unlock()
	for _, i := range all {
		if broken := i.broken(p, &k); broken != "" {
			m.tell(p)
			m.Fatalf("%s: %s", i.says, broken)
		}
	}
	m.known.before = p
}

// tell logs the current state.
func (m *machine) tell(p *picture) {
	for _, id := range p.sandboxIDs() {
		s := p.rows[id]
		state := "absent"
		if box, ok := p.boxes[id]; ok {
			state = string(box.State)
		}
		m.Logf("%s: wanted %s, %s, ended by %q, claimed for %q, due in %s; on its backend %s",
			p.name(id), s.Desired, s.Phase, s.Ending.By, s.Claim.For, s.Schedule.DueAt.Time().Sub(p.now), state)
	}
	for _, e := range p.events {
		m.Logf("event %d: %s %s %d %s", e.ID, e.Type, e.LeaseID, e.Sequence, e.Data)
	}
}

// converge ends all faults, lets all due work be done, and checks again.
func (m *machine) converge() {
	m.Log("all is well again")
	m.heal()
	m.pass(m.youngest())
	for range 6 { // until late calls have arrived, and then two resyncs beyond the grace
		m.pass(2*time.Minute + time.Second)
	}
	m.check(invariants)
	m.check(converged)
	m.checkAcknowledged()
}

// youngest returns the time until no object on the backend has a creation time in the future. After the clock was set
// back, such an object is too young to be an orphan.
func (m *machine) youngest() (d time.Duration) {
	for _, box := range m.host.backend.Sandboxes() {
		d = max(d, box.CreatedAt.Sub(m.now()))
	}
	for _, object := range m.host.backend.Objects() {
		d = max(d, object.CreatedAt.Sub(m.now()))
	}
	return d
}

// checkAcknowledged sends every acknowledged condition again. The ledger must know each of them.
func (m *machine) checkAcknowledged() {
	for _, d := range m.acknowledged {
		r, err := m.at.engine.Deliver(m.Context(), d)
		if err != nil || !r.Duplicate {
			m.Fatalf("the acknowledged condition %s is not known: %v", d.ID, err)
		}
	}
}

func (m *machine) agent() string {
	return fmt.Sprintf("did:plc:a%d", rapid.IntRange(1, 3).Draw(m.T, "agent"))
}

func (m *machine) game() string {
	return rapid.SampledFrom([]string{pooledGame, budgetedGame}).Draw(m.T, "environment")
}

func (m *machine) lease() sandbox.LeaseRef {
	return sandbox.LeaseRef{ID: sandbox.LeaseID(m.agent(), m.game())}
}

// shown returns a lease as it was after the last step, nil if there is none.
func (m *machine) shown(id string) *sandbox.Lease {
	for i, l := range m.known.before.leases {
		if l.ID == id {
			return &m.known.before.leases[i]
		}
	}
	return nil
}
