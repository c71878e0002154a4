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
func (v *Service) Sweep(ctx context.Context, r sandbox.SweepRequest) (sandbox.SweepReport, error) {
	report := sandbox.SweepReport{LedgerID: v.store.ID(), DryRun: r.DryRun, Instances: []sandbox.InstanceSweep{}}
	backends := v.Backends()
	slices.Sort(backends)
	var away error
	reached := 0
	for _, b := range backends {
		found, err := v.sweepInstance(ctx, b, r.DryRun)
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
func (v *Service) Resync(ctx context.Context, b sandbox.Backend) error {
	x, err := v.BackendFor(b)
	if err != nil {
		return err
	}
	inventory, err := v.takeInventory(ctx, x)
	if err != nil {
		return err
	}
	looked := x.LookAtAll(ctx, inventory)
	repaired := inventory.Repair(ctx, environments.ProvisionTimeout(x, sandbox.PullNever))
	_, collected := inventory.Collect(ctx)
	return errors.Join(inventory.Failure(), looked, repaired, collected)
}

// takeInventory lists the objects on a backend's connected instance, which may have lost its witness since.
func (v *Service) takeInventory(ctx context.Context, x *lifecycle.Backend) (*orphans.Inventory, error) {
	instance, err := x.Reach(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, lifecycle.KillTimeout)
	defer cancel()
	if err := x.Recognize(bounded, instance); err != nil {
		return nil, err
	}
	return v.orphans.Take(ctx, x, instance)
}

// sweepInstance sweeps a backend's connected instance. It fails only if the instance cannot be listed. The report has
// the other errors.
func (v *Service) sweepInstance(ctx context.Context, b sandbox.Backend, dry bool) (sandbox.InstanceSweep, error) {
	x, err := v.BackendFor(b)
	if err != nil {
		return sandbox.InstanceSweep{}, err
	}
	inventory, err := v.takeInventory(ctx, x)
	if err != nil {
		return sandbox.InstanceSweep{}, err
	}
	found := sandbox.InstanceSweep{Backend: b, Instance: inventory.Instance(), Findings: []sandbox.SweepFinding{}}
	drifted, err := x.Compare(ctx, inventory)
	err = errors.Join(inventory.Failure(), err)
	var unwanted []sandbox.SweepFinding
	if dry {
		var judged error
		unwanted, judged = inventory.Preview(ctx)
		err = errors.Join(err, judged)
	} else {
		looked := x.LookAtAll(ctx, inventory)
		var failed error
		unwanted, failed = inventory.Collect(ctx)
		err = errors.Join(err, looked, failed)
	}
	found.Findings = append(append(found.Findings, drifted...), unwanted...)
	if err != nil {
		found.Error = err.Error()
	}
	return found, nil
}
