package leasing_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestUsageIsWhatSandboxesUsed does random things to leases and a warm pool: acquire and release, sleep and wake, ends
// without a request, crashes, failed kills, clock steps, and purges. It measures on the backend how long each sandbox
// is awake and asleep and how much CPU it uses. The ledger's usage must be the same, periods of a sandbox must not
// overlap, and costs must be their sum.
func TestUsageIsWhatSandboxesUsed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		m := newMeter(t, r)
		r.Repeat(map[string]func(*rapid.T){
			"acquire": func(*rapid.T) { m.acquire() },
			"release": func(*rapid.T) {
				_, err := m.engine.Release(r.Context(), m.lease())
				m.allow(err, sandbox.NotFound, sandbox.Unavailable)
			},
			"sleep":       func(*rapid.T) { m.sleep(m.lease()) },
			"wake":        func(*rapid.T) { m.wake(m.lease()) },
			"pass":        func(*rapid.T) { m.pass() },
			"end":         func(*rapid.T) { m.end() },
			"unseen":      func(*rapid.T) { m.endUnseen() },
			"wake unseen": func(*rapid.T) { m.wakeUnseen() },
			"restart":     func(*rapid.T) { m.restart() },
			"kills":       func(*rapid.T) { m.failKills(rapid.Bool().Draw(r, "fail")) },
			"roll up":     func(*rapid.T) { m.allow(m.engine.RollUp(r.Context())) },
			"step":        func(*rapid.T) { m.step() },
			"retire": func(*rapid.T) {
				_, err := m.engine.Purge(r.Context(), 12*time.Hour)
				m.allow(err)
			},
			"": func(*rapid.T) { m.look() },
		})
		m.check()
	})
}

// TestListedReadingsAreCounted: a backend that lists usage readings gets no other requests for usage. A reading counts
// once, and for its boot only, because lists may be older than a wake.
func TestListedReadingsAreCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.backend.Record()
		w.backend.KeepReadings()
		never := sandbox.Duration(0)
		w.environment(func(p *sandbox.PutEnvironment) { p.SleepAfter = &never })
		w.startLoop()
		id := w.acquire(ann).SandboxID
		w.backend.Fault(fake.OpUsage, func(context.Context) error {
			t.Error("a sandbox is asked for its usage")
			return nil
		})
		want := func(what string, seconds float64) {
			t.Helper()
			later(2 * time.Minute) // several looks at the list
			if got := w.costs().CPUSeconds; got != seconds {
				t.Errorf("%s: %v s of CPU time are counted, want %v", what, got, seconds)
			}
		}
		w.backend.Burn(id, 10*time.Second)
		want("before the first reading", 0)
		w.backend.TakeReadings()
		want("after it", 10)
		w.backend.Burn(id, 20*time.Second)
		w.backend.Restart(id) // its record has the usage until then
		want("after a restart, listed as before it", 30)
		w.backend.Burn(id, 2*time.Second)
		w.backend.TakeReadings()
		want("after the first reading of the next boot", 32)
		h, err := w.engine.LeaseUsageHistory(w.Context(), sandbox.UsageHistoryQuery{LeaseRef: sandbox.LeaseRef{ID: annLease}})
		if err != nil || len(h.Samples) != 2 {
			t.Errorf("its history has %+v (%v), want two samples", h.Samples, err)
		}
	})
}

// TestACrashLosesNoMoreThanOneHeartbeatOfCPU makes a sandbox use a CPU without pause. It kills the reconciler and then
// the sandbox, which loses its count of CPU time.
func TestACrashLosesNoMoreThanOneHeartbeatOfCPU(t *testing.T) {
	const heartbeat = 60.0 // seconds, at most
	inWorld(t, func(w *world) {
		never := sandbox.Duration(0)
		w.environment(func(p *sandbox.PutEnvironment) { p.SleepAfter = &never })
		w.startLoop()
		l := w.acquire(ann)
		burnt := 0.0
		burn := func(seconds int) {
			for range seconds {
				w.backend.Burn(l.SandboxID, time.Second)
				later(time.Second)
				burnt++
			}
		}
		want := func(least, most float64) {
			t.Helper()
			report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
			if err != nil {
				t.Fatal(err)
			}
			if got := report.Total.CPUSeconds; got < least || got > most {
				t.Fatalf("after %.0f s of CPU time, %v s are counted, want %.0f to %.0f", burnt, got, least, most)
			}
		}
		burn(317)
		want(burnt-heartbeat, burnt)
		w.close()
		burn(200) // no reconciler looks, and the backend continues to count
		w.open()
		w.startLoop()
		burn(90)
		want(burnt-heartbeat, burnt)
		burn(17)
		w.backend.Remove(l.SandboxID)
		later(5 * time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByVanished)
		want(burnt-heartbeat, burnt)
	})
}

// TestCPUTimeIsCountedFromAnUnseenStart: a sandbox stops in its sleep, the ledger does not notice, and a wake starts
// it. The backend then counts from zero. Its use is counted in full, whether it is more or less than before the sleep.
func TestCPUTimeIsCountedFromAnUnseenStart(t *testing.T) {
	wakeTwice := func(w *world, fails sandbox.Code) {
		if _, err := w.engine.Wake(w.Context(), sandbox.LeaseRef{ID: annLease}); sandbox.CodeOf(err) != fails {
			w.Fatalf("the first wake ended with %v, want %s", err, fails)
		}
		later(lifecycle.FirstRetry)
		w.wake()
	}
	start := func(w *world, id string) {
		w.backend.Change(id, func(o *driver.Observation) { o.State = sandbox.StateRunning })
	}
	for name, c := range map[string]struct {
		mode  sandbox.SleepMode
		start func(w *world, id string)
		after []time.Duration // CPU time used in a start, after 10 s of use before
	}{
		"a wake starts it": {
			sandbox.SleepPause, func(w *world, _ string) { w.wake() },
			[]time.Duration{4 * time.Second, 10 * time.Second, 25 * time.Second},
		},
		"a wake starts it, and cannot fill it at first": {
			sandbox.SleepPause, func(w *world, _ string) {
				w.backend.Fault(fake.OpPutSecrets, func(context.Context) error {
					w.backend.Fault(fake.OpPutSecrets, nil)
					return away
				})
				wakeTwice(w, sandbox.Unavailable)
			}, []time.Duration{4 * time.Second, 25 * time.Second},
		},
		"a wake starts it, and its answer is lost": {
			sandbox.SleepPause, func(w *world, id string) {
				w.backend.Fault(fake.OpWake, func(context.Context) error {
					w.backend.Fault(fake.OpWake, nil)
					start(w, id)
					return sandbox.Errorf(sandbox.UnknownOutcome, "the connection broke")
				})
				wakeTwice(w, sandbox.UnknownOutcome)
			}, []time.Duration{4 * time.Second}, // more would look like the use of the previous boot
		},
		"another program starts it": {
			sandbox.SleepStop, func(w *world, id string) {
				start(w, id)
				if err := w.engine.Look(w.Context(), id); err != nil {
					w.Fatal(err)
				}
			}, []time.Duration{4 * time.Second, 25 * time.Second},
		},
	} {
		for _, after := range c.after {
			t.Run(fmt.Sprint(name, ", and it uses ", after), func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.environment(withSecret, func(p *sandbox.PutEnvironment) { p.SleepMode = c.mode })
					id := w.acquire(ann).SandboxID
					w.wantCPU("before its sleep", id, 10*time.Second, 10)
					if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
						w.Fatal(err)
					}
					w.backend.Change(id, func(o *driver.Observation) { o.State, o.StoppedAt = sandbox.StateStopped, w.now() })
					later(time.Second)
					c.start(w, id)
					w.wantCPU("after its start", id, after, 10+after.Seconds())
					w.wantCPU("later", id, 3*time.Second, 13+after.Seconds())
				})
			})
		}
	}
}

// TestCPUTimeIsCountedFromAnUnseenStartOfAPool is TestCPUTimeIsCountedFromAnUnseenStart for a sandbox that waits in a
// pool.
func TestCPUTimeIsCountedFromAnUnseenStartOfAPool(t *testing.T) {
	for _, after := range []time.Duration{4 * time.Second, 25 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.startLoop()
				w.backend.Fault(fake.OpUsage, func(context.Context) error { // it uses CPU time before it waits
					w.backend.Fault(fake.OpUsage, nil)
					time.Sleep(time.Second)
					for id := range w.backend.Sandboxes() {
						w.backend.Burn(id, 10*time.Second)
					}
					return nil
				})
				w.environment(withPool(1))
				later(2 * time.Second)
				w.wantPool(1, 0)
				w.close()
				for id := range w.backend.Sandboxes() {
					w.backend.Change(id, func(o *driver.Observation) { o.State, o.StoppedAt = sandbox.StateStopped, w.now() })
				}
				w.open()
				if got := w.costs().CPUSeconds; got != 10 {
					w.Fatalf("while it waited %v s of CPU time are counted, want 10", got)
				}
				w.wantCPU("of its lease", w.acquire(ann).SandboxID, after, 10+after.Seconds())
			})
		})
	}
}

// TestAReadingFromBeforeAWakeIsOfNoNewBoot: a list may be older than a wake.
func TestAReadingFromBeforeAWakeIsOfNoNewBoot(t *testing.T) {
	inWorld(t, func(w *world) {
		w.backend.KeepReadings()
		w.environment()
		id := w.acquire(ann).SandboxID
		w.wantCPU("before the first reading", id, 10*time.Second, 0)
		w.backend.TakeReadings()
		w.wantCPU("after it", id, 5*time.Second, 10)
		if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			w.Fatal(err)
		}
		w.wake()
		w.wantCPU("after a wake", id, 2*time.Second, 15) // its sleep has taken the reading
		w.backend.TakeReadings()
		w.wantCPU("after the next reading", id, 0, 17)
	})
}

// wantCPU makes a sandbox use CPU time, and checks the total count after a look.
func (w *world) wantCPU(what, id string, burn time.Duration, want float64) {
	w.Helper()
	w.backend.Burn(id, burn)
	later(time.Second)
	if err := w.engine.Resync(w.Context(), sandbox.Docker); err != nil {
		w.Fatal(err)
	}
	if got := w.costs().CPUSeconds; got != want {
		w.Fatalf("%s: %v s of CPU time are counted, want %v", what, got, want)
	}
}

// meter is a world that measures the backend's sandboxes.
type meter struct {
	*rapid.T
	host    *ledgertest.Host
	store   *ledger.Store
	engine  *leasing.Service
	backend *fake.Executor
	steps   bool // the clock may be set
	records bool // the backend records when sandboxes run
	// readings: the backend lists usage readings that are a little old.
	readings bool

	used map[string]*sandbox.CostRow // by lease, "" is the pool
	seen map[string]bool             // sandboxes that were on the backend
}

func newMeter(t *testing.T, r *rapid.T) *meter {
	m := &meter{
		T:     r,
		host:  ledgertest.NewHost(),
		used:  make(map[string]*sandbox.CostRow),
		seen:  make(map[string]bool),
		steps: rapid.Bool().Draw(r, "steps"),
	}
	// A record on another machine does not change when this machine's clock is set.
	m.records = !m.steps && rapid.Bool().Draw(r, "records")
	m.backend = fake.New("engine-1", m.host.Now)
	if m.records {
		m.backend.Record()
		m.readings = rapid.Bool().Draw(r, "readings")
	}
	if m.readings {
		m.backend.KeepReadings()
	}
	var err error
	if m.store, err = ledger.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "ledger.db"),
		m.host.Options()); err != nil {
		r.Fatal(err)
	}
	m.engine, err = leasing.New(leasing.Config{Store: m.store, Executors: []driver.Executor{m.backend},
		PriceBooks: map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: pricing.Cloudflare()}})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := errors.Join(m.engine.Close(), m.store.Close()); err != nil {
			t.Error(err)
		}
	})
	_, err = m.engine.PutEnvironment(r.Context(), sandbox.PutEnvironment{
		ID:    game,
		Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeRPG, Image: "player", Network: sandbox.NetworkNone, TTL: sandbox.Duration(30 * time.Hour),
			WarmPool: &sandbox.WarmPool{
				Size: int64(rapid.IntRange(1, 2).Draw(r, "pool")),
				TTL:  sandbox.Duration(40 * time.Hour),
			}},
	})
	m.allow(err)
	m.work()
	return m
}

func (m *meter) allow(err error, codes ...sandbox.Code) {
	m.Helper()
	for _, c := range codes {
		if sandbox.CodeOf(err) == c {
			return
		}
	}
	if err != nil {
		m.Fatalf("%v (%s)", err, sandbox.CodeOf(err))
	}
}

func (m *meter) lease() sandbox.LeaseRef {
	return sandbox.LeaseRef{ID: sandbox.LeaseID(fmt.Sprint("did:plc:a", rapid.IntRange(1, 3).Draw(m.T, "agent")), game)}
}

func (m *meter) acquire() {
	agent, _, err := sandbox.ParseLeaseID(m.lease().ID)
	m.allow(err)
	_, err = m.engine.Acquire(m.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: "test"})
	m.allow(err)
	m.work()
}

// work does all due work, as a loop does. The remains of a kill are due again later.
func (m *meter) work() {
	m.Helper()
	for {
		m.allow(m.engine.ReconcilePools(m.Context()))
		ids, _, err := m.engine.ListDue(m.Context(), sandbox.Docker, sandbox.MaxPage)
		m.allow(err)
		if len(ids) == 0 {
			return
		}
		for _, id := range ids {
			m.allow(m.engine.Work(m.Context(), id), sandbox.Unavailable)
		}
	}
}

// pass lets time pass.
func (m *meter) pass() {
	m.spend(time.Duration(rapid.Int64Range(0, int64(20*time.Hour/time.Microsecond)).Draw(m.T,
		"passes")) * time.Microsecond)
}

// spend lets time pass, in which sandboxes use CPU, and then does all work that became due.
func (m *meter) spend(length time.Duration) {
	active := make(map[string]bool) // the CPU time of others is read when their kills are tried
	for _, l := range m.active() {
		active[l.SandboxID] = true
	}
	for id, o := range m.backend.Sandboxes() {
		lease := m.backend.Spec(id).LeaseID
		row := m.used[lease]
		if row == nil {
			row = new(sandbox.CostRow)
			m.used[lease] = row
		}
		switch o.State {
		case sandbox.StateRunning:
			row.AwakeSeconds += length.Seconds()
			if cpu := (length / 7).Truncate(time.Microsecond); active[id] {
				m.backend.Burn(id, cpu)
				row.CPUSeconds += cpu.Seconds()
			}
		case sandbox.StatePaused, sandbox.StateStopped: // a sandbox that is down is billed as asleep
			row.AsleepSeconds += length.Seconds()
		}
	}
	m.host.Pass(length)
	m.backend.TakeReadings()
	m.allow(m.engine.Resync(m.Context(), sandbox.Docker))
	m.work()
	m.check()
}

func (m *meter) active() []sandbox.Lease {
	m.Helper()
	leases, err := m.engine.ListLeases(m.Context(), sandbox.LeaseFilter{Status: sandbox.LeaseActive})
	m.allow(err)
	return leases
}

// end removes or stops one sandbox behind the ledger's back. The ledger then looks immediately.
func (m *meter) end() {
	id := m.anyActive()
	if id == "" {
		return
	}
	if rapid.Bool().Draw(m.T, "stops") {
		m.halt(id)
	} else {
		m.backend.Remove(id)
	}
	m.allow(m.engine.Look(m.Context(), id))
	m.work()
}

// endUnseen stops one sandbox behind the ledger's back, without a look. It removes the sandbox if the backend records
// that.
func (m *meter) endUnseen() {
	id := m.anyActive()
	if id == "" || m.steps { // recorded times do not move with the clock
		return
	}
	if m.records && rapid.Bool().Draw(m.T, "removed") {
		m.backend.Remove(id)
		m.pass() // before a kill that fails and could not tell a removed sandbox from a stopped one
	} else {
		m.halt(id)
	}
}

// wakeUnseen puts one sandbox to sleep, stops it behind the ledger's back, and wakes it before the ledger looks.
func (m *meter) wakeUnseen() {
	id := m.anyActive()
	if id == "" || m.backend.Sandboxes()[id].State != sandbox.StateRunning {
		return
	}
	seconds := rapid.Int64Range(1, 60)
	m.spend(time.Duration(seconds.Draw(m.T, "seconds before")) * time.Second)
	ref := sandbox.LeaseRef{ID: m.backend.Spec(id).LeaseID}
	m.sleep(ref)
	if m.backend.Sandboxes()[id].State == sandbox.StatePaused {
		m.halt(id)
		m.wake(ref)
	}
	m.spend(time.Duration(seconds.Draw(m.T, "seconds after")) * time.Second)
}

// sleep puts a lease to sleep, if possible. Its turn may be at a time that this test's clock does not reach meanwhile.
func (m *meter) sleep(ref sandbox.LeaseRef) {
	ctx, cancel := context.WithTimeout(m.Context(), time.Second)
	defer cancel()
	_, err := m.engine.Sleep(ctx, ref)
	m.allow(err, sandbox.NotFound, sandbox.LeaseEnded, sandbox.Timeout)
}

// wake wakes a lease, under the same conditions as sleep.
func (m *meter) wake(ref sandbox.LeaseRef) {
	ctx, cancel := context.WithTimeout(m.Context(), time.Second)
	defer cancel()
	_, err := m.engine.Wake(ctx, ref)
	m.allow(err, sandbox.NotFound, sandbox.LeaseEnded, sandbox.Timeout)
}

// restart stops and starts one sandbox without a look, if the backend records that.
func (m *meter) restart() {
	if id := m.anyActive(); id != "" && m.records {
		m.backend.Restart(id)
	}
}

func (m *meter) anyActive() string {
	var ids []string
	for _, l := range m.active() {
		ids = append(ids, l.SandboxID)
	}
	if len(ids) == 0 {
		return ""
	}
	return rapid.SampledFrom(ids).Draw(m.T, "sandbox")
}

func (m *meter) halt(id string) {
	m.backend.Change(id, func(o *driver.Observation) { o.State, o.StoppedAt = sandbox.StateStopped, m.host.Now() })
}

func (m *meter) failKills(fail bool) {
	var err error
	if fail {
		err = sandbox.Errorf(sandbox.Unavailable, "the engine is away")
	}
	m.backend.Fail(fake.OpKill, err)
}

// step sets the clock forward or back, by up to two days and by enough to count as a step.
func (m *meter) step() {
	if m.steps {
		m.host.Step(time.Duration(
			rapid.SampledFrom([]int64{-1, 1}).Draw(m.T, "way")*rapid.Int64Range(3e6, 2e11).Draw(m.T, "step")) * time.Microsecond)
		m.work()
	}
}

// look records the current sandboxes.
func (m *meter) look() {
	for id := range m.backend.Sandboxes() {
		m.seen[id] = true
	}
}

func (m *meter) check() {
	m.Helper()
	report, err := m.engine.Costs(m.Context(), sandbox.CostQuery{})
	m.allow(err)
	m.checkUse(report.Rows)
	for _, group := range []sandbox.CostGroup{
		sandbox.CostByEnvironment, sandbox.CostByAgent, sandbox.CostByDay, sandbox.CostByMonth,
	} {
		other, err := m.engine.Costs(m.Context(), sandbox.CostQuery{GroupBy: group})
		m.allow(err)
		if other.Total != report.Total {
			m.Fatalf("by %s it is %+v in all, by lease %+v", group, other.Total, report.Total)
		}
	}
	want := m.checkPeriods()
	if want != report.Total.Gross {
		m.Fatalf("it cost %s, the periods cost %s", report.Total.Gross, want)
	}
	m.checkLeases()
}

// checkLeases compares the cost of each lease with its usage periods, in its current generation.
func (m *meter) checkLeases() {
	m.Helper()
	leases, err := m.engine.ListLeases(m.Context(), sandbox.LeaseFilter{})
	m.allow(err)
	sums := &bill{T: m.T, now: m.host.Now()}
	err = m.store.Read(m.Context(), func(tx *ledger.Tx) error {
		sums.books, err = accounting.In(tx).PriceBooks()
		for _, l := range leases {
			periods, err2 := accounting.In(tx).PeriodsOf([]string{l.SandboxID})
			err = errors.Join(err, err2)
			var want sandbox.CostRow
			for i := range periods {
				sums.addUp(&want, &periods[i], sandbox.CostQuery{})
			}
			if l.PurgedAt.IsZero() && l.Cost != want.Gross {
				m.Fatalf("lease %s costs %s; its usage periods cost %s", l.ID, l.Cost, want.Gross)
			}
		}
		return err
	})
	m.allow(err)
}

// checkUse compares the reported use with the measured one.
func (m *meter) checkUse(rows []sandbox.CostRow) {
	m.Helper()
	near := func(a, b float64) bool { return a-b < 1e-4 && b-a < 1e-4 }
	reported := make(map[string]sandbox.CostRow)
	for _, row := range rows {
		reported[row.LeaseID] = row
	}
	for lease, used := range m.used {
		if got := reported[lease]; !near(got.AwakeSeconds, used.AwakeSeconds) ||
			!near(got.AsleepSeconds, used.AsleepSeconds) || !near(got.CPUSeconds, used.CPUSeconds) {
			m.Fatalf("lease %q: reported %+v, measured %+v", lease, got, *used)
		}
	}
}

// checkPeriods checks that no two periods of a sandbox overlap and that the open one matches the sandbox's state. It
// returns the total cost.
func (m *meter) checkPeriods() (cost sandbox.NanoUSD) {
	m.Helper()
	sums := &bill{T: m.T, now: m.host.Now(), books: make(map[string]sandbox.PriceBook)}
	var total sandbox.CostRow
	err := m.store.Read(m.Context(), func(tx *ledger.Tx) error {
		books, err := accounting.In(tx).PriceBooks()
		if err != nil {
			return err
		}
		sums.books = books
		for id := range m.seen {
			s, err := tx.Sandbox(id)
			if err != nil {
				return err
			}
			if s.Tombstone != nil {
				total.Gross += s.Tombstone.Cost
				continue
			}
			periods, err := accounting.In(tx).PeriodsOf([]string{id})
			if err != nil {
				return err
			}
			m.checkSequence(s, periods)
			for i := range periods {
				sums.addUp(&total, &periods[i], sandbox.CostQuery{})
			}
		}
		return nil
	})
	m.allow(err)
	return total.Gross
}

func (m *meter) checkSequence(s *ledger.Sandbox, periods []accounting.UsagePeriod) {
	m.Helper()
	generations := int64(0)
	endedItself := s.Ending.By == sandbox.EndedByVanished
	for i := range periods {
		p := &periods[i]
		generations += p.Generations
		// A sandbox that cannot be killed is counted by its state, and is not inspected any more.
		isSo := s.Phase == p.State || s.Phase != sandbox.PhaseGone && s.Desired == ledger.Gone
		if open := p.EndedAt == 0; open != (i == len(periods)-1 && isSo && !endedItself) {
			m.Fatalf("sandbox %s is %s, and its periods are %+v", s.ID, s.Phase, periods)
		}
		// When the clock is set back, ended usage does not move.
		if i > 0 && !m.steps && periods[i-1].EndedAt > p.StartedAt {
			m.Fatalf("periods of sandbox %s overlap: %+v", s.ID, periods)
		}
	}
	if leased := s.LeaseID != nil && s.ReadyAt != 0; leased && generations != 1 || generations > 1 {
		m.Fatalf("usage of sandbox %s begins %d generations: %+v", s.ID, generations, periods)
	}
}

// TestACommandReportsWhatItsSandboxHasUsed: CPU time is counted at a command's end, without a request to the backend.
func TestACommandReportsWhatItsSandboxHasUsed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		l := w.acquire(ann)
		w.backend.Burn(l.SandboxID, 3*time.Second)
		asked := 0
		w.backend.Fault(fake.OpUsage, func(context.Context) error {
			asked++
			return nil
		})
		for range 2 { // it counts once
			w.exec(annLease, "true")
			later(time.Second)
		}
		report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Total.CPUSeconds; got != 3 || asked != 0 {
			t.Errorf("%v s of CPU time are counted, want 3; the backend was asked %d times", got, asked)
		}
	})
}

// A resync reads the CPU time of a sandbox while a step ends it: after the reading of the step, and before the step is
// settled.
func TestCPUTimeIsNotCountedTwice(t *testing.T) {
	for op, step := range map[fake.Op]func(w *world) error{
		fake.OpSleep: func(w *world) error {
			_, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: annLease})
			return err
		},
		fake.OpKill: func(w *world) error {
			_, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease})
			return err
		},
	} {
		t.Run(string(op), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment(awakeFor(72 * time.Hour))
				id := w.acquire(ann).SandboxID
				later(24 * time.Hour)
				w.backend.Burn(id, 10*time.Hour)
				w.resyncNow()
				begun, release := make(chan struct{}), make(chan struct{})
				w.backend.Fault(op, func(context.Context) error { close(begun); <-release; return nil })
				done := make(chan error)
				go func() { done <- step(w) }()
				<-begun
				later(time.Second)
				w.backend.Burn(id, time.Second)
				w.resyncNow()
				close(release)
				if err := <-done; err != nil {
					w.Error(err)
				}
				if got := w.costs().CPUSeconds; got > 36_001 {
					w.Errorf("of 36001 s of CPU time %v s are billed", got)
				}
			})
		})
	}
}

// A resync has read the CPU time of one sandbox and waits for another. Meanwhile both crash and are started again.
func TestAReadingFromBeforeARestartIsNotCountedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(awakeFor(72 * time.Hour))
		w.startSlowLoop()
		both := []sandbox.Lease{w.acquire(ann), w.acquire(bob)}
		later(24*time.Hour + time.Minute)
		for _, l := range both {
			w.backend.Burn(l.SandboxID, 10*time.Hour)
		}
		w.resyncNow()
		var calls atomic.Int32
		w.backend.Fault(fake.OpUsage, func(context.Context) error {
			if calls.Add(1) == 2 { // the second sandbox answers slowly
				time.Sleep(1500 * time.Millisecond)
			}
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- w.engine.Resync(w.Context(), sandbox.Docker) }()
		later(100 * time.Millisecond)
		for _, l := range both {
			w.crash(l.SandboxID, false) // the loop starts it again at once
		}
		if err := <-done; err != nil {
			w.Error(err)
		}
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		if got := w.costs().CPUSeconds; got != 72_000 {
			w.Errorf("of 72000 s of CPU time %v s are billed", got)
		}
	})
}

// A lease lives across the end of a month and is busy after it: the budget of the new month counts that, and a report of
// the old one does not change.
func TestCPUTimeBelongsToTheDayOfItsReading(t *testing.T) {
	inWorld(t, func(w *world) {
		w.close()
		later(time.Until(time.Date(2000, 1, 29, 0, 0, 0, 0, time.UTC)))
		w.open()
		w.startSlowLoop()
		w.environment(awakeFor(40*24*time.Hour), func(p *sandbox.PutEnvironment) {
			p.Budget = &sandbox.Budget{Monthly: sandbox.USD}
		})
		l := w.acquire(ann)
		feb := time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC)
		later(time.Until(feb))
		report := func() sandbox.NanoUSD {
			r, err := w.engine.Costs(w.Context(), sandbox.CostQuery{To: feb})
			if err != nil {
				t.Fatal(err)
			}
			return r.Total.Gross
		}
		january := report()
		const hour = sandbox.NanoUSD(3600 * (1_250 + 717 + 10_000)) // with all of its CPU
		var really sandbox.NanoUSD
		for n := 0; n < 36 && w.lease(annLease).Status == sandbox.LeaseActive; n++ {
			w.backend.Burn(l.SandboxID, 30*time.Minute)
			later(time.Hour)
			really += hour
		}
		if really > sandbox.USD+2*hour {
			t.Errorf("a budget of $1 let $%s be spent", really)
		}
		if is := report(); is != january {
			t.Errorf("up to the end of January it cost $%s then, and $%s later", january, is)
		}
	})
}
