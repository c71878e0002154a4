package leasing

import (
	"context"
	"errors"

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
		x.forget()
		return err
	}
	var rows []ledger.Sandbox
	err = e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		rows, err = tx.InstanceSandboxes(instance)
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(e.lookAtAll(ctx, x, listed, rows), e.sweep(ctx, x, instance, listed, rows))
}

func (e *Engine) lookAtAll(ctx context.Context, x *backend, listed []sandbox.Observation, rows []ledger.Sandbox) error {
	observations := make(map[string]sandbox.Observation, len(listed))
	for _, o := range listed {
		observations[o.SandboxID] = o
	}
	var asExpected []string
	type reading struct {
		id  string
		cpu ledger.Span
	}
	var readings []reading
	var failed error
	for i := range rows {
		ok, err := e.surveyOne(ctx, &rows[i], observations)
		if err != nil {
			failed = err // each sandbox is its own; one that cannot be looked at hides no other
			continue
		}
		if ok {
			asExpected = append(asExpected, rows[i].ID)
		}
		if rows[i].Phase == sandbox.PhaseAwake && rows[i].Desired == ledger.Present {
			if out := e.sample(ctx, x, e.handle(&rows[i])); out.sampled {
				readings = append(readings, reading{rows[i].ID, ledger.Span(out.cpu.Microseconds())})
			}
		}
	}
	if len(asExpected)+len(readings) == 0 {
		return failed
	}
	return errors.Join(failed, e.store.Write(ctx, func(tx *ledger.Tx) error {
		for _, r := range readings {
			s, err := mustSandbox(tx, r.id)
			if err != nil {
				return err
			}
			if s.Phase != sandbox.PhaseAwake {
				continue
			}
			if err := tx.AddCPU(s, r.cpu); err != nil {
				return err
			}
			if err := tx.SaveSandbox(s); err != nil {
				return err
			}
		}
		return tx.Observed(asExpected)
	}))
}

// surveyOne returns whether a sandbox is as the ledger has it. What the list shows otherwise is looked
// at again, because the list is older than the row.
func (e *Engine) surveyOne(ctx context.Context, s *ledger.Sandbox, listed map[string]sandbox.Observation) (bool, error) {
	o, ok := listed[s.ID]
	if ok && observable(s) && len(compare(s, o)) == 0 {
		open, err := e.hasOpenDrift(ctx, s.ID)
		if err != nil || !open {
			return err == nil, err
		}
	}
	return e.look(ctx, s)
}

// sweep records and, on the second look, destroys what carries our ledger's label and has no row
// that wants it.
func (e *Engine) sweep(ctx context.Context, x *backend, instance string, listed []sandbox.Observation, rows []ledger.Sandbox) error {
	known := make(map[string]bool, len(rows))
	for i := range rows {
		known[rows[i].ID] = true
	}
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
	return errors.Join(failed, e.resolveOrphans(ctx, instance, present))
}

// resolveOrphans closes the findings of orphans that went away by themselves.
func (e *Engine) resolveOrphans(ctx context.Context, instance string, present map[string]bool) error {
	var gone []string
	err := e.store.Read(ctx, func(tx *ledger.Tx) error {
		open, err := tx.OpenDrift(instance)
		for _, f := range open {
			if f.Kind == sandbox.DriftOrphan && !present[f.SandboxID] {
				gone = append(gone, f.SandboxID)
			}
		}
		return err
	})
	if err != nil || len(gone) == 0 {
		return err
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
		any, err := tx.HasSandboxes()
		if err != nil {
			return err
		}
		finding, _, err = tx.SeeDrift(ledger.DriftFinding{
			Kind: sandbox.DriftOrphan, SandboxID: o.SandboxID, EnvironmentID: o.EnvironmentID, Instance: o.Instance,
			Expected: "absent", Observed: string(o.State),
		})
		if !any {
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
