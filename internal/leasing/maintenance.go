package leasing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Sweep implements service.Maintenance.
func (e *Engine) Sweep(ctx context.Context, r sandbox.SweepRequest) (sandbox.SweepReport, error) {
	report := sandbox.SweepReport{LedgerID: e.store.ID(), DryRun: r.DryRun, Instances: []sandbox.InstanceSweep{}}
	backends := e.Backends()
	slices.Sort(backends)
	var away error
	reached := 0
	for _, b := range backends {
		v, err := e.takeInventory(ctx, b)
		if err != nil {
			away = errors.Join(away, err)
			report.Instances = append(report.Instances, sandbox.InstanceSweep{Backend: b, Findings: []sandbox.SweepFinding{}, Error: err.Error()})
			continue
		}
		reached++
		report.Instances = append(report.Instances, e.sweepInstance(ctx, b, v, r.DryRun))
	}
	if reached == 0 {
		return sandbox.SweepReport{}, asError(fmt.Errorf("sweep: %w", away))
	}
	return report, nil
}

func (e *Engine) sweepInstance(ctx context.Context, b sandbox.Backend, v *inventory, dry bool) sandbox.InstanceSweep {
	found := sandbox.InstanceSweep{Backend: b, Instance: v.instance, Findings: []sandbox.SweepFinding{}}
	drifted, err := v.differences(ctx)
	err = errors.Join(v.failure(), err)
	found.Findings = append(found.Findings, drifted...)
	var strays []swept
	if dry {
		var judged error
		strays, judged = v.preview(ctx)
		err = errors.Join(err, judged)
	} else {
		looked := e.lookAtAll(ctx, v)
		var failed error
		strays, failed = v.sweep(ctx)
		err = errors.Join(err, looked, failed)
	}
	for _, s := range strays {
		found.Findings = append(found.Findings, s.report())
	}
	if err != nil {
		found.Error = err.Error()
	}
	return found
}

// differences looks at the living sandboxes of the instance and writes nothing. One that cannot be
// looked at hides no other.
func (v *inventory) differences(ctx context.Context) ([]sandbox.SweepFinding, error) {
	listed := make(map[string]driver.Observation, len(v.listed))
	for _, o := range v.listed {
		listed[o.SandboxID] = o
	}
	found := []sandbox.SweepFinding{}
	err := v.eachPage(ctx, func(rows []ledger.Sandbox) error {
		var failed []error
		for i := range rows {
			s := &rows[i]
			o, ok := listed[s.ID]
			if !observable(s, ledger.At(v.engine.now())) || ok && len(compare(s, o)) == 0 {
				continue
			}
			if o.Hangs { // looking again would hang
				found = append(found, sweepFinding(s, o, hangs))
				continue
			}
			seen, err := v.differencesOf(ctx, s)
			found, failed = append(found, seen...), append(failed, err)
		}
		return errors.Join(failed...)
	})
	return found, err
}

func (v *inventory) differencesOf(ctx context.Context, s *ledger.Sandbox) ([]sandbox.SweepFinding, error) {
	bounded, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	obs, err := v.x.Inspect(bounded, v.engine.handle(s))
	var differences []difference
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		differences = []difference{{kind: sandbox.DriftVanished, expected: string(s.Phase), observed: "absent"}}
	case err != nil:
		return nil, err
	case obs.State != sandbox.StateRemoving:
		differences = compare(s, obs)
	}
	found := make([]sandbox.SweepFinding, len(differences))
	for i, d := range differences {
		found[i] = sweepFinding(s, obs, d)
	}
	return found, nil
}

func sweepFinding(s *ledger.Sandbox, o driver.Observation, d difference) sandbox.SweepFinding {
	return sandbox.SweepFinding{
		Kind: d.kind, SandboxID: s.ID, LeaseID: s.Lease(), EnvironmentID: s.EnvironmentID,
		Field: d.field, Expected: d.expected, Observed: d.observed, CreatedAt: o.CreatedAt, Action: sandbox.SweepRecord,
	}
}

// preview is sweep without writing or destroying anything.
func (v *inventory) preview(ctx context.Context) ([]swept, error) {
	if err := errors.Join(v.unlisted, v.unread); err != nil {
		return nil, err
	}
	strays, spare, err := v.judge(ctx)
	results := make([]swept, len(strays))
	now := v.engine.now()
	for i, s := range strays {
		s.seen.Looks, s.seen.FirstSeenAt = 1, ledger.At(now)
		for _, f := range v.open {
			if f.Kind == s.seen.Kind && f.SandboxID == s.seen.SandboxID && f.Field == s.seen.Field {
				s.seen.Looks, s.seen.FirstSeenAt = f.Looks+1, f.FirstSeenAt
			}
		}
		results[i] = swept{stray: s, kept: keep(s, spare, now)}
	}
	return results, err
}

func (s swept) report() sandbox.SweepFinding {
	f := sandbox.SweepFinding{
		Kind: s.seen.Kind, SandboxID: s.seen.SandboxID, LeaseID: s.seen.LeaseID, EnvironmentID: s.seen.EnvironmentID,
		Field: s.seen.Field, Expected: s.seen.Expected, Observed: s.seen.Observed,
		CreatedAt: s.createdAt, FirstSeenAt: s.seen.FirstSeenAt.Time(), Action: sandbox.SweepDestroy, Why: s.kept,
	}
	if s.kept != "" {
		f.Action = sandbox.SweepKeep
	}
	return f
}
