package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Sampler reads what sandboxes use, and records readings that are taken outside of steps. It is safe for concurrent
// use.
type Sampler struct {
	core *Core
	// last holds one value for each last reading under way.
	last chan struct{}

	mu sync.Mutex // guards the fields below
	// soon holds the sandboxes whose CPU time is being read after a command.
	soon map[string]struct{}
}

func newSampler(c *Core) *Sampler {
	return &Sampler{core: c, last: make(chan struct{}, lastSamples), soon: make(map[string]struct{})}
}

// sampleTimeout limits a reading of usage.
const sampleTimeout = 2 * time.Second

// Sample reads a sandbox's usage.
func Sample(ctx context.Context, x driver.Executor, h driver.Handle) (driver.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	return x.Usage(ctx, h)
}

// Used is a reading of what a sandbox and its companions have used. The zero value is a reading that failed.
type Used struct {
	reading driver.Usage
	// sampled: the reading succeeded. companions has those companions whose reading succeeded.
	sampled    bool
	companions map[string]accounting.CompanionReading
}

// reading is a sample of a sandbox's usage in one of its boots. boot is 0 if the backend does not count boots.
type reading struct {
	accounting.UsageSample
	boot int64
	// mark is the CPU time that was counted before the reading was taken, 0 if unknown. since is when the sandbox had
	// entered its state.
	mark       micro.Span
	since      micro.Time
	companions map[string]accounting.CompanionReading
}

// sample reads what a sandbox and its companions have used, before that is lost. A failure is not an error: the reading
// of the last heartbeat then stands.
func (m *Sampler) sample(ctx context.Context, x driver.Executor, h driver.Handle, s *ledger.Sandbox) Used {
	var (
		reading    sync.WaitGroup
		mu         sync.Mutex // guards companions
		companions = make(map[string]accounting.CompanionReading)
	)
	for name, is := range s.CompanionStates {
		if is.Measured() {
			reading.Go(func() {
				u, err := Sample(ctx, x, h.Of(name))
				if err != nil {
					return // the next reading counts
				}
				mu.Lock()
				defer mu.Unlock()
				companions[name] = accounting.CompanionReading{CPU: micro.SpanOf(u.CPUTime), Since: is.Since}
			})
		}
	}
	u, err := Sample(ctx, x, h)
	reading.Wait()
	if err != nil {
		m.core.log.DebugContext(ctx, "lifecycle: sampling usage", "environment", h.EnvironmentID,
			"sandbox", h.SandboxID, "error", err)
		return Used{}
	}
	return Used{reading: u, sampled: true, companions: companions}
}

// Sample reads what the sandbox of a step and its companions have used, before the step stops them.
func (m *Sampler) Sample(ctx context.Context, t *Step) Used {
	return m.sample(ctx, t.On, t.Handle, &t.Row)
}

// lastSamples bounds the concurrent last readings of CPU time. When a whole game ends, more of them would delay the
// calls that they run beside.
const lastSamples = 4

// lastSample begins a last reading of CPU time beside the call that ends a sandbox. The returned function ends the
// reading and returns it. The call does not wait for the reading, because an engine may take a second to answer.
// Without it, the reading of the last command or heartbeat stands. This also holds while many sandboxes end at the same
// time.
func (m *Sampler) lastSample(ctx context.Context, t *Task) func() Used {
	none := func() Used { return Used{} }
	if t.Row.Phase != sandbox.PhaseAwake && !m.core.hooks.runsEarly(&t.Row) {
		return none
	}
	select {
	case m.last <- struct{}{}:
	default:
		return none
	}
	ctx, stop := context.WithCancel(ctx)
	reading := make(chan Used, 1)
	go func() { reading <- m.Sample(ctx, &t.Step) }()
	return func() Used {
		defer func() { <-m.last }()
		stop()
		return <-reading
	}
}

// read asks a sandbox and its companions what they have used.
func (m *Sampler) read(ctx context.Context, x *Backend, s *ledger.Sandbox) (reading, bool) {
	out := m.sample(ctx, x, m.core.handle(s), s)
	r := readingOf(s, driver.Reading{Usage: out.reading, At: m.core.now()}, out.companions)
	r.mark = s.Meter.CPUMark
	return r, out.sampled
}

func readingOf(s *ledger.Sandbox, r driver.Reading, companions map[string]accounting.CompanionReading) reading {
	return reading{boot: r.Boot, since: s.Status.Since, companions: companions, UsageSample: accounting.UsageSample{
		SandboxID: s.ID, At: micro.At(r.At), CPU: micro.SpanOf(r.CPUTime), MemoryBytes: r.MemoryBytes, PIDs: r.PIDs,
	}}
}

// Measure reads and adds up what awake sandboxes have used. It ignores a reading that fails, because the next one
// covers it.
func (m *Sampler) Measure(ctx context.Context, rows []ledger.Sandbox) error {
	var (
		mu   sync.Mutex // guards read
		read []reading
	)
	_ = parallel.Each(samplers, rows, func(s *ledger.Sandbox) error {
		x, err := m.core.BackendFor(s.Backend)
		if err != nil || m.core.MustReach(ctx, s.Backend, s.Instance) != nil {
			return nil //nolint:nilerr // another process reaches it
		}
		if r, ok := m.read(ctx, x, s); ok {
			mu.Lock()
			defer mu.Unlock()
			read = append(read, r)
		}
		return nil
	})
	if len(read) == 0 {
		return nil
	}
	return m.core.store.Write(ctx, func(tx *ledger.Tx) error {
		for _, r := range read {
			if _, err := recordCPU(tx, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// recordCPU records a reading of CPU time, and returns its sandbox. It returns nil if the reading does not count: the
// sandbox is not awake and no code runs in it before it is ready, its state has changed, a later reading was recorded,
// or another boot began. A boot that the ledger does not know is detected only by a reading below the last one. A
// higher reading counts for the boot before.
func recordCPU(tx *ledger.Tx, r reading) (*ledger.Sandbox, error) {
	s, err := MustSandbox(tx, r.SandboxID)
	if err != nil || s.Phase != sandbox.PhaseAwake && s.Phase != sandbox.PhasePending ||
		r.boot != 0 && r.boot != s.Meter.Boot {
		return nil, err
	}
	if s.Phase == sandbox.PhasePending { // it counts once code runs in it
		if open, err := accounting.In(tx).OpenPeriod(s.ID); err != nil || open == nil {
			return nil, err
		}
	}
	if r.boot == 0 && r.since != s.Status.Since { // it may have started again, and counts from zero
		return nil, nil
	}
	if late, err := isLate(tx, s, r); err != nil || late {
		return nil, err
	}
	if r.CPU == s.Meter.CPUMark && len(r.companions) == 0 {
		return s, nil
	}
	return s, tx.UpdateRow(s, func(s *ledger.Sandbox) error {
		if err := accounting.In(tx).AddCPU(s, r.CPU, r.At); err != nil {
			return err
		}
		return accounting.In(tx).AddCompanionCPU(s, r.companions, r.At)
	})
}

// isLate reports whether a later reading of the same boot is already counted.
func isLate(tx *ledger.Tx, s *ledger.Sandbox, r reading) (bool, error) {
	if r.CPU >= s.Meter.CPUMark {
		return false, nil
	}
	isNew, err := isOfNewBoot(tx, s, r)
	return !isNew, err
}

// isOfNewBoot reports whether a reading below the mark is of a boot that the ledger does not know, because the answer
// of the wake that began it was lost. This is so if the mark was counted before the reading was taken and before the
// sandbox woke. An engine may answer with a sample that is a little older than the request.
func isOfNewBoot(tx *ledger.Tx, s *ledger.Sandbox, r reading) (bool, error) {
	if s.Meter.Boot != 0 || r.mark != s.Meter.CPUMark {
		return false, nil
	}
	open, err := accounting.In(tx).OpenPeriod(s.ID)
	return open != nil && open.CPU == 0, err
}

// Soon reads a sandbox's CPU time after a command in the background, unless such a reading is already under way.
func (m *Sampler) Soon(s *ledger.Sandbox) {
	m.mu.Lock()
	_, already := m.soon[s.ID]
	m.soon[s.ID] = struct{}{}
	m.mu.Unlock()
	if already {
		return
	}
	x, row := m.core.backends[s.Backend], *s
	m.core.Background(func() {
		r, ok := m.read(m.core.life, x, &row)
		m.mu.Lock()
		delete(m.soon, row.ID)
		m.mu.Unlock()
		if !ok {
			return
		}
		err := m.core.store.Write(m.core.life, func(tx *ledger.Tx) error {
			_, err := recordCPU(tx, r)
			return err
		})
		if err != nil && m.core.life.Err() == nil {
			m.core.log.Warn("lifecycle: recording usage", About(&row), "error", err)
		}
	})
}
