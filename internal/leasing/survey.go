package leasing

import (
	"context"
	"errors"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// orphanLooks is how often an orphan must be seen before it is destroyed: the first look may have
// raced with a ledger that is being restored.
const orphanLooks = 2

// Survey compares everything on a backend's instance with the ledger: each living sandbox is
// looked at, its CPU time is sampled, and sandboxes with our ledger's label that no row knows are
// destroyed on the second look. Unreachable is an error, and never an observation.
func (e *Engine) Survey(ctx context.Context, b sandbox.Backend) error {
	x, err := e.backendFor(b)
	if err != nil {
		return err
	}
	instance, err := x.reach(ctx)
	if err != nil {
		return err
	}
	// The list comes before the rows: what was listed then has had its row, so that a sandbox
	// made meanwhile is not taken for an orphan.
	bounded, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	listed, err := x.List(bounded, e.store.ID())
	if err != nil {
		return err
	}
	var open []ledger.DriftFinding
	err = e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		open, err = tx.OpenDrift(instance)
		return err
	})
	if err != nil {
		return err
	}
	known, failed := e.lookAtAll(ctx, x, instance, listed, open)
	if known == nil {
		return failed // without all rows, nothing is known to be an orphan
	}
	return errors.Join(failed, e.sweep(ctx, x, listed, known, open))
}

// surveyPage bounds the rows that a survey holds in memory, and those that it changes at once.
const surveyPage = 500

// samplers bounds the readings of CPU time that are waited for at once: an engine answers all who
// ask within a second together.
const samplers = 64

// survey is one look at everything on an instance.
type survey struct {
	engine  *Engine
	x       *backend
	listed  map[string]sandbox.Observation
	drifted map[string]bool // has open findings, which may be resolved

	mu         sync.Mutex // guards what follows
	asExpected []string
	readings   map[string]ledger.Span
	failed     error
}

// lookAtAll looks at every living sandbox of an instance, and returns the ids of all, nil when they
// could not be read.
func (e *Engine) lookAtAll(ctx context.Context, x *backend, instance string, listed []sandbox.Observation, open []ledger.DriftFinding) (map[string]bool, error) {
	v := &survey{engine: e, x: x, listed: make(map[string]sandbox.Observation, len(listed)), drifted: make(map[string]bool)}
	for _, o := range listed {
		v.listed[o.SandboxID] = o
	}
	for _, f := range open {
		v.drifted[f.SandboxID] = true
	}
	known := make(map[string]bool, len(listed))
	var failed error
	for after := ""; ; {
		var rows []ledger.Sandbox
		err := e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
			rows, err = tx.InstanceSandboxes(instance, after, surveyPage)
			return err
		})
		if err != nil {
			return nil, errors.Join(failed, err)
		}
		for i := range rows {
			known[rows[i].ID] = true
		}
		failed = errors.Join(failed, v.page(ctx, rows))
		if len(rows) < surveyPage {
			return known, failed
		}
		after = rows[len(rows)-1].ID
	}
}

// page looks at some sandboxes and records what was seen.
func (v *survey) page(ctx context.Context, rows []ledger.Sandbox) error {
	v.asExpected, v.readings, v.failed = nil, make(map[string]ledger.Span), nil
	work := make(chan *ledger.Sandbox)
	var wg sync.WaitGroup
	for range min(samplers, len(rows)) {
		wg.Go(func() {
			for s := range work {
				v.one(ctx, s)
			}
		})
	}
	for i := range rows {
		work <- &rows[i]
	}
	close(work)
	wg.Wait()
	if len(v.asExpected)+len(v.readings) == 0 {
		return v.failed
	}
	return errors.Join(v.failed, v.engine.store.Write(ctx, v.record))
}

// one looks at one sandbox. Each is its own: one that cannot be looked at hides no other.
func (v *survey) one(ctx context.Context, s *ledger.Sandbox) {
	ok, err := v.asListed(ctx, s)
	var out outcome
	if err == nil && s.Phase == sandbox.PhaseAwake && s.Desired == ledger.Present {
		out = v.engine.sample(ctx, v.x, v.engine.handle(s))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.failed = err
		return
	}
	if ok {
		v.asExpected = append(v.asExpected, s.ID)
	}
	if out.sampled {
		v.readings[s.ID] = ledger.Span(out.cpu.Microseconds())
	}
}

// record keeps what was seen.
func (v *survey) record(tx *ledger.Tx) error {
	for id, cpu := range v.readings {
		if err := recordCPU(tx, id, cpu); err != nil {
			return err
		}
	}
	return tx.Observed(v.asExpected)
}

// recordCPU keeps a reading of CPU time. It counts only while the sandbox is awake still, and only
// if no later one was kept meanwhile.
func recordCPU(tx *ledger.Tx, sandboxID string, cpu ledger.Span) error {
	s, err := mustSandbox(tx, sandboxID)
	if err != nil || s.Phase != sandbox.PhaseAwake || cpu < s.CPUMark {
		return err
	}
	if err := tx.AddCPU(s, cpu); err != nil {
		return err
	}
	return tx.SaveSandbox(s)
}

// sampleSoon reads a sandbox's CPU time after a command, for nobody to wait for, unless somebody is
// about to.
func (e *Engine) sampleSoon(s *ledger.Sandbox) {
	e.mu.Lock()
	_, already := e.sampling[s.ID]
	e.sampling[s.ID] = struct{}{}
	e.mu.Unlock()
	if already {
		return
	}
	x, h := e.backends[s.Backend], e.handle(s)
	e.background(func() {
		out := e.sample(e.life, x, h)
		e.mu.Lock()
		delete(e.sampling, s.ID)
		e.mu.Unlock()
		if !out.sampled {
			return
		}
		err := e.store.Write(e.life, func(tx *ledger.Tx) error {
			return recordCPU(tx, h.SandboxID, ledger.Span(out.cpu.Microseconds()))
		})
		if err != nil && e.life.Err() == nil {
			e.log.Warn("leasing: recording usage", "sandbox", h.SandboxID, "error", err)
		}
	})
}

// asListed returns whether a sandbox is as the ledger has it. What the list shows otherwise is looked
// at again, because the list is older than the row.
func (v *survey) asListed(ctx context.Context, s *ledger.Sandbox) (bool, error) {
	o, ok := v.listed[s.ID]
	if ok && observable(s, ledger.At(v.engine.now())) && !v.drifted[s.ID] && len(compare(s, o)) == 0 {
		return true, nil
	}
	return v.engine.look(ctx, s)
}

// sweep records and, on the second look, destroys what carries our ledger's label and has no row
// that wants it.
func (e *Engine) sweep(ctx context.Context, x *backend, listed []sandbox.Observation, known map[string]bool, open []ledger.DriftFinding) error {
	present := make(map[string]bool)
	var failed error
	for _, o := range listed {
		if known[o.SandboxID] {
			continue
		}
		present[o.SandboxID] = true
		if err := e.orphan(ctx, x, o); err != nil {
			failed = err
		}
	}
	return errors.Join(failed, e.resolveOrphans(ctx, open, present))
}

// resolveOrphans closes the findings of orphans that went away by themselves.
func (e *Engine) resolveOrphans(ctx context.Context, open []ledger.DriftFinding, present map[string]bool) error {
	var gone []string
	for _, f := range open {
		if f.Kind == sandbox.DriftOrphan && !present[f.SandboxID] {
			gone = append(gone, f.SandboxID)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return e.store.Write(ctx, func(tx *ledger.Tx) error {
		for _, id := range gone {
			if err := tx.ResolveDrift(id, "", "it is no longer there"); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *Engine) orphan(ctx context.Context, x *backend, o sandbox.Observation) error {
	var finding *ledger.DriftFinding
	err := e.store.Write(ctx, func(tx *ledger.Tx) error {
		judges, err := tx.HasSandboxes()
		if err != nil {
			return err
		}
		finding, _, err = tx.SeeDrift(ledger.DriftFinding{
			Kind: sandbox.DriftOrphan, SandboxID: o.SandboxID, EnvironmentID: o.EnvironmentID, Instance: o.Instance,
			Expected: "absent", Observed: string(o.State),
		})
		if !judges {
			finding.Looks = 0 // a ledger that never knew a sandbox was emptied or restored: it judges nothing
		}
		return err
	})
	if err != nil {
		return err
	}
	if finding.Looks < orphanLooks {
		e.log.Warn("leasing: found a sandbox with this ledger's label that the ledger does not know",
			"sandbox", o.SandboxID, "environment", o.EnvironmentID, "state", o.State, "looks", finding.Looks)
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	if err := x.Kill(bounded, o.Handle); err != nil {
		return err
	}
	return e.store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.ResolveDrift(o.SandboxID, "", "destroyed: no row wanted it")
	})
}
