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

// Sampler reads what sandboxes use, and records what was read outside of steps. It is safe for concurrent use.
type Sampler struct {
	core *Core
	// last holds one value for each last reading under way.
	last chan struct{}

	mu sync.Mutex // guards what follows
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

// usage is a reading of what a sandbox has used.
type usage struct {
	reading driver.Usage
	// sampled: there is a reading. companions are those of its companions that could be read.
	sampled    bool
	companions map[string]accounting.CompanionReading
}

// reading is a sample of the usage of a sandbox in one of its boots; boot is 0 where they are not counted.
type reading struct {
	accounting.UsageSample
	boot int64
	// mark is what was counted of the CPU time before the reading was taken, 0 where that is not known.
	mark       micro.Span
	companions map[string]accounting.CompanionReading
}

// sample reads what a sandbox and its companions have used before that is lost. Failing to is not an error: the last
// heartbeat's reading then stands.
func (m *Sampler) sample(ctx context.Context, x driver.Executor, h driver.Handle, s *ledger.Sandbox) usage {
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
		return usage{}
	}
	return usage{reading: u, sampled: true, companions: companions}
}

// lastSamples bounds the last readings of CPU time that are taken at once. While a whole game ends, more
// of them would hold up what they stand beside.
const lastSamples = 4

// lastSample begins a last reading of CPU time beside the call that ends a sandbox. The returned function ends the
// reading and returns it. The call does not wait for it: an engine may take a second to answer, and the reading of the
// last command or heartbeat then stands, as it does where many sandboxes end at once.
func (m *Sampler) lastSample(ctx context.Context, t *Task) func() usage {
	none := func() usage { return usage{} }
	if t.Row.Phase != sandbox.PhaseAwake {
		return none
	}
	select {
	case m.last <- struct{}{}:
	default:
		return none
	}
	ctx, stop := context.WithCancel(ctx)
	reading := make(chan usage, 1)
	go func() { reading <- m.sample(ctx, t.On, t.Handle, &t.Row) }()
	return func() usage {
		defer func() { <-m.last }()
		stop()
		return <-reading
	}
}

// read asks a sandbox and its companions what they have used.
func (m *Sampler) read(ctx context.Context, x *Backend, s *ledger.Sandbox) (reading, bool) {
	out := m.sample(ctx, x, m.core.handle(s), s)
	r := readingOf(s.ID, driver.Reading{Usage: out.reading, At: m.core.now()}, out.companions)
	r.mark = s.Meter.CPUMark
	return r, out.sampled
}

func readingOf(sandboxID string, r driver.Reading, companions map[string]accounting.CompanionReading) reading {
	return reading{boot: r.Boot, companions: companions, UsageSample: accounting.UsageSample{
		SandboxID: sandboxID, At: micro.At(r.At), CPU: micro.SpanOf(r.CPUTime), MemoryBytes: r.MemoryBytes, PIDs: r.PIDs,
	}}
}

// Measure reads what awake sandboxes have used, and adds it up. A reading that fails is none: the next one counts.
func (m *Sampler) Measure(ctx context.Context, rows []ledger.Sandbox) error {
	var (
		mu   sync.Mutex // guards what follows
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

// recordCPU keeps a reading of CPU time, and returns whose it is. It counts only while the sandbox is awake still,
// and only if no later one was kept meanwhile, nor another boot was begun; else nil is returned. A boot that the ledger
// does not know of is found only by a reading below the last one; a higher one counts as of the boot before.
func recordCPU(tx *ledger.Tx, r reading) (*ledger.Sandbox, error) {
	s, err := MustSandbox(tx, r.SandboxID)
	if err != nil || s.Phase != sandbox.PhaseAwake || r.boot != 0 && r.boot != s.Meter.Boot {
		return nil, err
	}
	if r.CPU < s.Meter.CPUMark {
		if isNew, err := isOfNewBoot(tx, s, r); err != nil || !isNew {
			return nil, err
		}
	}
	if r.CPU == s.Meter.CPUMark && len(r.companions) == 0 {
		return s, nil
	}
	return s, tx.UpdateRow(s, func(s *ledger.Sandbox) error {
		if err := accounting.In(tx).AddCPU(s, r.CPU); err != nil {
			return err
		}
		return accounting.In(tx).AddCompanionCPU(s, r.companions)
	})
}

// isOfNewBoot reports whether a reading below the mark is of a boot that the ledger does not know of, because the
// answer of the wake that began it was lost. It is if the mark was counted before the reading was taken and before the
// sandbox woke: an engine may answer with a sample that is a little older than the request.
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
