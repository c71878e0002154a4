package lifecycle

import (
	"context"
	"errors"
	"slices"
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

// Listing is what an instance has under the ledger's label; see orphans.Inventory.
type Listing interface {
	// Listed returns the sandboxes that the instance has.
	Listed() []driver.Observation
	// Open returns the findings about the instance that were open when it was listed.
	Open() []drift.Finding
	// EachPage visits the rows of the instance, a page at a time.
	EachPage(ctx context.Context, visit func(rows []ledger.Sandbox) error) error
}

// samplers bounds the concurrent readings of usage. An engine answers all requests of one second together.
const samplers = 64

// usageApart is the least time between two stored samples of a sandbox's usage. Resyncs run every 30 s, so every second
// one stores samples, even if its ticker is late. More resyncs, by several replicas or after a backend was lost, store
// no more.
const usageApart = micro.Span(50 * time.Second / time.Microsecond)

// resync is one look at everything on an instance.
type resync struct {
	core    *Core
	x       *Backend
	listed  map[string]driver.Observation
	drifted map[string]bool // has open findings, which may be resolved

	mu         sync.Mutex // guards the fields below
	asExpected []string
	readings   []reading
}

// LookAtAll compares every living sandbox of the listed instance with its row, and records what it sees.
func (b *Backend) LookAtAll(ctx context.Context, in Listing) error {
	v := &resync{core: b.core, x: b, listed: bySandbox(in.Listed()), drifted: make(map[string]bool)}
	for _, f := range in.Open() {
		v.drifted[f.SandboxID] = true
	}
	return in.EachPage(ctx, func(rows []ledger.Sandbox) error { return v.page(ctx, rows) })
}

// bySandbox returns a backend's list as a map by sandbox id.
func bySandbox(listed []driver.Observation) map[string]driver.Observation {
	by := make(map[string]driver.Observation, len(listed))
	for _, o := range listed {
		by[o.SandboxID] = o
	}
	return by
}

// page looks at some sandboxes and records what it sees. It does so before it reads their usage, for which an engine
// may take a second.
func (v *resync) page(ctx context.Context, rows []ledger.Sandbox) error {
	v.asExpected, v.readings = nil, nil
	reads := make(map[string]bool, len(rows))
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
		o, exists := v.listed[s.ID]
		runs := s.Phase == sandbox.PhaseAwake || s.Phase == sandbox.PhasePending && exists // code may run before it is ready
		reads[s.ID] = runs && s.Desired == ledger.Present && !o.Hangs
		return nil
	})
	var seen error
	if len(v.asExpected) > 0 {
		seen = v.core.store.Write(ctx, func(tx *ledger.Tx) error { return tx.Observed(v.asExpected) })
	}
	_ = parallel.Each(samplers, rows, func(s *ledger.Sandbox) error { // failed readings are left out
		if !reads[s.ID] {
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

// read returns what a sandbox has used. If the backend keeps readings, its list has them; otherwise the sandbox is
// asked.
func (v *resync) read(ctx context.Context, s *ledger.Sandbox) (reading, bool) {
	if v.x.Capabilities().Readings {
		r := v.listed[s.ID].Reading
		return readingOf(s, r, nil), !r.At.IsZero()
	}
	return v.core.Sampler.read(ctx, v.x, s)
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

// asListed returns whether a sandbox is as the ledger has it. The list is older than the row, so it looks again where
// they differ.
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

// listedFrom is the number of sandboxes from which one list of the backend replaces a call for each sandbox.
const listedFrom = 5

// LookAtMany looks at sandboxes of one backend as Look does, with one list of the backend if there are many. drifted
// has the sandboxes with open findings. Errors: as Look.
func (c *Core) LookAtMany(ctx context.Context, b sandbox.Backend, rows []ledger.Sandbox,
	drifted map[string]bool) error {
	look, err := c.lookerAt(ctx, b, rows, drifted)
	if err != nil {
		return err
	}
	return parallel.Each(samplers, rows, func(s *ledger.Sandbox) error { return look(ctx, s) })
}

// lookerAt returns the function that looks at each of the sandboxes of a backend.
func (c *Core) lookerAt(ctx context.Context, b sandbox.Backend, rows []ledger.Sandbox,
	drifted map[string]bool) (func(context.Context, *ledger.Sandbox) error, error) {
	each := func(ctx context.Context, s *ledger.Sandbox) error {
		_, err := c.look(ctx, s)
		return err
	}
	if len(rows) < listedFrom {
		return each, nil
	}
	x, err := c.BackendFor(b)
	if err != nil {
		return nil, err
	}
	instance, err := x.Reach(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, KillTimeout)
	defer cancel()
	if err := x.Recognize(bounded, instance); err != nil {
		return nil, err
	}
	listed, err := c.list(bounded, x, rows)
	var partial *sandbox.PartialError // each sandbox that the list lacks gets its own call
	if err != nil && !errors.As(err, &partial) {
		return nil, err
	}
	v := &resync{core: c, x: x, listed: bySandbox(listed), drifted: drifted}
	return func(ctx context.Context, s *ledger.Sandbox) error {
		if s.Instance != instance {
			return each(ctx, s)
		}
		_, err := v.asListed(ctx, s)
		return err
	}, nil
}

// list lists the sandboxes of a backend, or of one environment if all rows belong to it.
func (c *Core) list(ctx context.Context, x driver.Executor, rows []ledger.Sandbox) ([]driver.Observation, error) {
	of := rows[0].EnvironmentID
	if slices.ContainsFunc(rows, func(s ledger.Sandbox) bool { return s.EnvironmentID != of }) {
		return x.List(ctx, c.store.ID())
	}
	return x.ListEnvironment(ctx, c.EnvironmentRef(of, rows[0].Instance))
}
