package leasing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/environments"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/orphans"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Sweep implements service.Maintenance.
func (e *Service) Sweep(ctx context.Context, r sandbox.SweepRequest) (sandbox.SweepReport, error) {
	report := sandbox.SweepReport{LedgerID: e.store.ID(), DryRun: r.DryRun, Instances: []sandbox.InstanceSweep{}}
	backends := e.Backends()
	slices.Sort(backends)
	var away error
	reached := 0
	for _, b := range backends {
		found, err := e.sweepInstance(ctx, b, r.DryRun)
		if err != nil {
			away = errors.Join(away, err)
			report.Instances = append(report.Instances,
				sandbox.InstanceSweep{Backend: b, Findings: []sandbox.SweepFinding{}, Error: err.Error()})
			continue
		}
		reached++
		report.Instances = append(report.Instances, found)
	}
	if reached == 0 {
		return sandbox.SweepReport{}, lifecycle.AsError(fmt.Errorf("sweep: %w", away))
	}
	return report, nil
}

// Resync compares everything on a backend's instance with the ledger. It inspects each live sandbox, samples its usage,
// repairs gateways, and destroys orphans that it finds a second time (see package orphans). An unreachable backend is
// an error, and not an observation. If an environment does not answer, the error names it, and the others are still
// inspected.
func (e *Service) Resync(ctx context.Context, b sandbox.Backend) error {
	x, err := e.BackendFor(b)
	if err != nil {
		return err
	}
	v, err := e.takeInventory(ctx, x)
	if err != nil {
		return err
	}
	looked := x.LookAtAll(ctx, v)
	repaired := v.Repair(ctx, environments.ProvisionTimeout(x, sandbox.PullNever))
	_, collected := v.Collect(ctx)
	return errors.Join(v.Failure(), looked, repaired, collected)
}

// takeInventory lists the objects on a backend's connected instance, which may have lost its witness since.
func (e *Service) takeInventory(ctx context.Context, x *lifecycle.Backend) (*orphans.Inventory, error) {
	instance, err := x.Reach(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, lifecycle.KillTimeout)
	defer cancel()
	if err := x.Recognize(bounded, instance); err != nil {
		return nil, err
	}
	return e.orphans.Take(ctx, x, instance)
}

// sweepInstance sweeps a backend's connected instance. It fails only if the instance cannot be listed. The report has
// the other errors.
func (e *Service) sweepInstance(ctx context.Context, b sandbox.Backend, dry bool) (sandbox.InstanceSweep, error) {
	x, err := e.BackendFor(b)
	if err != nil {
		return sandbox.InstanceSweep{}, err
	}
	v, err := e.takeInventory(ctx, x)
	if err != nil {
		return sandbox.InstanceSweep{}, err
	}
	found := sandbox.InstanceSweep{Backend: b, Instance: v.Instance(), Findings: []sandbox.SweepFinding{}}
	drifted, err := x.Compare(ctx, v)
	err = errors.Join(v.Failure(), err)
	var unwanted []sandbox.SweepFinding
	if dry {
		var judged error
		unwanted, judged = v.Preview(ctx)
		err = errors.Join(err, judged)
	} else {
		looked := x.LookAtAll(ctx, v)
		var failed error
		unwanted, failed = v.Collect(ctx)
		err = errors.Join(err, looked, failed)
	}
	found.Findings = append(append(found.Findings, drifted...), unwanted...)
	if err != nil {
		found.Error = err.Error()
	}
	return found, nil
}
