package lifecycle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Listing is what an instance has with the ledger's label; see orphans.Inventory.
type Listing interface {
	// Listed returns the sandboxes that the instance has.
	Listed() []driver.Observation
	// Open returns the findings about the instance that were open when it was listed.
	Open() []drift.Finding
	// EachPage visits the rows of the instance, a page at a time.
	EachPage(ctx context.Context, visit func(rows []ledger.Sandbox) error) error
}

// samplers bounds the readings of usage that are waited for at once: an engine answers all who
// ask within a second together.
const samplers = 64

// usageApart is how much younger than another a sample of a sandbox's usage may not be: of resyncs at their pace of
// 30 s every second one keeps its samples, whatever their tickers are late, and those of several replicas, or
// after a backend was lost, keep no more.
const usageApart = micro.Span(50 * time.Second / time.Microsecond)

// resync is one look at everything on an instance.
type resync struct {
	core    *Core
	x       *Backend
	listed  map[string]driver.Observation
	drifted map[string]bool // has open findings, which may be resolved

	mu         sync.Mutex // guards what follows
	asExpected []string
	readings   []reading
}

// reading is a sample of the usage of a sandbox in one of its boots; boot is 0 where they are not counted.
type reading struct {
	accounting.UsageSample
	boot int64
	// mark is what was counted of the CPU time before the reading was taken, 0 where that is not known.
	mark       micro.Span
	companions map[string]accounting.CompanionReading
}

// LookAtAll looks at every living sandbox of an instance.
func (c *Core) LookAtAll(ctx context.Context, x *Backend, in Listing) error {
	v := &resync{core: c, x: x, listed: bySandbox(in.Listed()), drifted: make(map[string]bool)}
	for _, f := range in.Open() {
		v.drifted[f.SandboxID] = true
	}
	return in.EachPage(ctx, func(rows []ledger.Sandbox) error { return v.page(ctx, rows) })
}

// bySandbox returns what a backend has listed by the sandboxes' ids.
func bySandbox(listed []driver.Observation) map[string]driver.Observation {
	by := make(map[string]driver.Observation, len(listed))
	for _, o := range listed {
		by[o.SandboxID] = o
	}
	return by
}

// page looks at some sandboxes and records what was seen. What was seen does not wait for the readings of
// usage, for which an engine may take a second.
func (v *resync) page(ctx context.Context, rows []ledger.Sandbox) error {
	v.asExpected, v.readings = nil, nil
	awake := make(map[string]bool, len(rows))
	failed := parallel.Each(samplers, rows, func(s *ledger.Sandbox) error {
		ok, err := v.asListed(ctx, s)
		if err != nil {
			return err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if ok {
			v.asExpected = append(v.asExpected, s.ID)
		}
		awake[s.ID] = s.Phase == sandbox.PhaseAwake && s.Desired == ledger.Present && !v.listed[s.ID].Hangs
		return nil
	})
	var seen error
	if len(v.asExpected) > 0 {
		seen = v.core.store.Write(ctx, func(tx *ledger.Tx) error { return tx.Observed(v.asExpected) })
	}
	_ = parallel.Each(samplers, rows, func(s *ledger.Sandbox) error { // a reading that fails is none
		if !awake[s.ID] {
			return nil
		}
		if r, ok := v.read(ctx, s); ok {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.readings = append(v.readings, r)
		}
		return nil
	})
	var read error
	if len(v.readings) > 0 {
		read = v.core.store.Write(ctx, v.recordReadings)
	}
	return errors.Join(failed, seen, read)
}

// read returns what a sandbox has used. A backend that keeps readings has listed them; another one asks the sandbox.
func (v *resync) read(ctx context.Context, s *ledger.Sandbox) (reading, bool) {
	if v.x.Capabilities().Readings {
		r := v.listed[s.ID].Reading
		return readingOf(s.ID, r, nil), !r.At.IsZero()
	}
	return v.core.read(ctx, v.x, s)
}

// read asks a sandbox and its companions what they have used.
func (c *Core) read(ctx context.Context, x *Backend, s *ledger.Sandbox) (reading, bool) {
	out := c.sample(ctx, x, c.handle(s), s)
	r := readingOf(s.ID, driver.Reading{Usage: out.reading, At: c.now()}, out.companions)
	r.mark = s.Meter.CPUMark
	return r, out.sampled
}

func readingOf(sandboxID string, r driver.Reading, companions map[string]accounting.CompanionReading) reading {
	return reading{boot: r.Boot, companions: companions, UsageSample: accounting.UsageSample{
		SandboxID: sandboxID, At: micro.At(r.At), CPU: micro.SpanOf(r.CPUTime), MemoryBytes: r.MemoryBytes, PIDs: r.PIDs,
	}}
}

// Measure reads what awake sandboxes have used, and adds it up. A reading that fails is none: the next one counts.
func (c *Core) Measure(ctx context.Context, rows []ledger.Sandbox) error {
	var (
		mu   sync.Mutex // guards what follows
		read []reading
	)
	_ = parallel.Each(samplers, rows, func(s *ledger.Sandbox) error {
		x, err := c.BackendFor(s.Backend)
		if err != nil || c.MustReach(ctx, s.Backend, s.Instance) != nil {
			return nil //nolint:nilerr // another process reaches it
		}
		if r, ok := c.read(ctx, x, s); ok {
			mu.Lock()
			defer mu.Unlock()
			read = append(read, r)
		}
		return nil
	})
	if len(read) == 0 {
		return nil
	}
	return c.store.Write(ctx, func(tx *ledger.Tx) error {
		for _, r := range read {
			if _, err := recordCPU(tx, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// recordReadings adds up what was used, and keeps samples of what leases use.
func (v *resync) recordReadings(tx *ledger.Tx) error {
	samples := make([]accounting.UsageSample, 0, len(v.readings))
	for _, r := range v.readings {
		s, err := recordCPU(tx, r)
		if err != nil {
			return err
		}
		if s != nil && s.LeaseID != nil {
			samples = append(samples, r.UsageSample)
		}
	}
	return accounting.In(tx).KeepUsageSamples(samples, usageApart)
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

// SampleSoon reads a sandbox's CPU time after a command in the background, unless such a reading is already under way.
func (c *Core) SampleSoon(s *ledger.Sandbox) {
	c.mu.Lock()
	_, already := c.sampling[s.ID]
	c.sampling[s.ID] = struct{}{}
	c.mu.Unlock()
	if already {
		return
	}
	x, row := c.backends[s.Backend], *s
	c.Background(func() {
		r, ok := c.read(c.life, x, &row)
		c.mu.Lock()
		delete(c.sampling, row.ID)
		c.mu.Unlock()
		if !ok {
			return
		}
		err := c.store.Write(c.life, func(tx *ledger.Tx) error {
			_, err := recordCPU(tx, r)
			return err
		})
		if err != nil && c.life.Err() == nil {
			c.log.Warn("lifecycle: recording usage", About(&row), "error", err)
		}
	})
}

// asListed returns whether a sandbox is as the ledger has it. What the list shows otherwise is looked
// at again, because the list is older than the row.
func (v *resync) asListed(ctx context.Context, s *ledger.Sandbox) (bool, error) {
	o, ok := v.listed[s.ID]
	if ok && o.Hangs {
		return false, v.core.recordHang(ctx, s, o)
	}
	if ok && v.core.observable(s, micro.At(v.core.now())) && !v.drifted[s.ID] &&
		len(compare(s, o)) == 0 && !rests(s, o) && !v.core.hooks.Differs(s, o) {
		return true, nil
	}
	if ok && s.Halted() && o.State == sandbox.StateStopped {
		return true, nil
	}
	return v.core.look(ctx, s)
}
