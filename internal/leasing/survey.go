package leasing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Survey compares everything on a backend's instance with the ledger: each living sandbox is
// looked at, what it uses is sampled, and what carries our ledger's label and is wanted by no row is
// destroyed on the second look (see sweep). What sandboxes go out through is mended. Unreachable is an error, and never an
// observation. An environment that does not answer is named by the error, and keeps no other from being looked at.
func (e *Engine) Survey(ctx context.Context, b sandbox.Backend) error {
	v, err := e.takeInventory(ctx, b)
	if err != nil {
		return err
	}
	looked := e.lookAtAll(ctx, v)
	mended := v.mend(ctx)
	_, swept := v.sweep(ctx)
	return errors.Join(v.failure(), looked, mended, swept)
}

// samplers bounds the readings of usage that are waited for at once: an engine answers all who
// ask within a second together.
const samplers = 64

// usageApart is how much younger than another a sample of a sandbox's usage may not be: of surveys at their pace of
// 30 s every second one keeps its samples, whatever their tickers are late, and those of several replicas, or
// after a backend was lost, keep no more.
const usageApart = ledger.Span(50 * time.Second / time.Microsecond)

// survey is one look at everything on an instance.
type survey struct {
	engine  *Engine
	x       *backend
	listed  map[string]driver.Observation
	drifted map[string]bool // has open findings, which may be resolved

	mu         sync.Mutex // guards what follows
	asExpected []string
	readings   []ledger.UsageSample
}

// lookAtAll looks at every living sandbox of an instance.
func (e *Engine) lookAtAll(ctx context.Context, in *inventory) error {
	v := &survey{engine: e, x: in.x, listed: make(map[string]driver.Observation, len(in.listed)), drifted: make(map[string]bool)}
	for _, o := range in.listed {
		v.listed[o.SandboxID] = o
	}
	for _, f := range in.open {
		v.drifted[f.SandboxID] = true
	}
	return in.eachPage(ctx, func(rows []ledger.Sandbox) error { return v.page(ctx, rows) })
}

// page looks at some sandboxes and records what was seen. What was seen does not wait for the readings of
// usage, for which an engine may take a second.
func (v *survey) page(ctx context.Context, rows []ledger.Sandbox) error {
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
		seen = v.engine.store.Write(ctx, func(tx *ledger.Tx) error { return tx.Observed(v.asExpected) })
	}
	_ = parallel.Each(samplers, rows, func(s *ledger.Sandbox) error { // a reading that fails is none
		if !awake[s.ID] {
			return nil
		}
		if out := v.engine.sample(ctx, v.x, v.engine.handle(s)); out.sampled {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.readings = append(v.readings, ledger.UsageSample{
				SandboxID: s.ID, At: ledger.At(v.engine.now()), CPU: ledger.SpanOf(out.reading.CPUTime), MemoryBytes: out.reading.MemoryBytes, PIDs: out.reading.PIDs,
			})
		}
		return nil
	})
	var read error
	if len(v.readings) > 0 {
		read = v.engine.store.Write(ctx, v.recordReadings)
	}
	return errors.Join(failed, seen, read)
}

// recordReadings adds up what was used, and keeps samples of what leases use.
func (v *survey) recordReadings(tx *ledger.Tx) error {
	samples := make([]ledger.UsageSample, 0, len(v.readings))
	for _, r := range v.readings {
		s, err := recordCPU(tx, r.SandboxID, r.CPU)
		if err != nil {
			return err
		}
		if s != nil && s.LeaseID != nil {
			samples = append(samples, r)
		}
	}
	return tx.Accounting().KeepUsageSamples(samples, usageApart)
}

// recordCPU keeps a reading of CPU time, and returns whose it is. It counts only while the sandbox is awake still,
// and only if no later one was kept meanwhile; else nil is returned.
func recordCPU(tx *ledger.Tx, sandboxID string, cpu ledger.Span) (*ledger.Sandbox, error) {
	s, err := mustSandbox(tx, sandboxID)
	if err != nil || s.Phase != sandbox.PhaseAwake || cpu < s.Meter.CPUMark {
		return nil, err
	}
	return s, tx.UpdateRow(s, func(s *ledger.Sandbox) error { return tx.Accounting().AddCPU(s, cpu) })
}

// sampleSoon reads a sandbox's CPU time after a command, without a waiting caller, unless one is
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
			_, err := recordCPU(tx, h.SandboxID, ledger.SpanOf(out.reading.CPUTime))
			return err
		})
		if err != nil && e.life.Err() == nil {
			e.log.Warn("leasing: recording usage", about(s), "error", err)
		}
	})
}

// asListed returns whether a sandbox is as the ledger has it. What the list shows otherwise is looked
// at again, because the list is older than the row.
func (v *survey) asListed(ctx context.Context, s *ledger.Sandbox) (bool, error) {
	o, ok := v.listed[s.ID]
	if ok && o.Hangs {
		return false, v.engine.recordHang(ctx, s, o)
	}
	if ok && observable(s, ledger.At(v.engine.now())) && !v.drifted[s.ID] && len(compare(s, o)) == 0 && !rests(s, o) {
		return true, nil
	}
	if ok && isHalted(s) && o.State == sandbox.StateStopped {
		return true, nil
	}
	return v.engine.look(ctx, s)
}
