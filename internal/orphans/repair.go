package orphans

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Resolutions of findings about the shared resources of an environment.
const (
	resolvedRepaired = "the resync repaired it"
	resolvedWell     = "it works again"
)

// sharedField names the shared resource of an environment's sandboxes, its gateway, in a finding.
func sharedField(environmentID string) string { return "gateway of environment " + environmentID }

// Repair makes the backend repair the shared resources of each environment, and records the problems. timeout limits
// the repair of one environment. If not all rows were read, it repairs the environments of those that were. A repair
// that fails does not stop the others. A backend without gateways has nothing to repair.
func (v *Inventory) Repair(ctx context.Context, timeout time.Duration) error {
	if !v.x.Capabilities().Gateway {
		return nil
	}
	var environments map[string]*ledger.Environment
	err := v.service.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		environments, err = tx.EnvironmentsOf(slices.Collect(maps.Keys(v.uses)))
		return err
	})
	if err != nil {
		return err
	}
	return parallel.Each(repairs, slices.Collect(maps.Values(environments)), func(env **ledger.Environment) error {
		serves := (*env).Status == sandbox.EnvironmentOpen || (*env).Status == sandbox.EnvironmentClosed
		if !serves || (*env).Instance != v.instance || !(*env).Spec.UsesGateway() {
			return nil
		}
		return v.repairOne(ctx, *env, timeout)
	})
}

// repairs limits concurrent repairs.
const repairs = 8

func (v *Inventory) repairOne(ctx context.Context, env *ledger.Environment, timeout time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := v.x.Repair(bounded,
		driver.EnvironmentRef{LedgerID: v.service.store.ID(), EnvironmentID: env.ID, Instance: v.instance}, env.Spec)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	field := sharedField(env.ID)
	open := slices.IndexFunc(v.open,
		func(f drift.Finding) bool { return f.Kind == sandbox.DriftStopped && f.Field == field })
	if err == nil && found == "" && open < 0 {
		return nil
	}
	recorded := v.service.store.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
		if err == nil && found == "" {
			return drift.In(tx).Resolve(v.open[open].ID, resolvedWell)
		}
		f := drift.Finding{
			Kind:          sandbox.DriftStopped,
			EnvironmentID: env.ID,
			Instance:      v.instance,
			Field:         field,
			Expected:      "works",
			Observed:      found,
		}
		if err != nil {
			f.Resolution = fmt.Sprintf("the repair failed and will be retried: %v", err)
		}
		finding, isNew, seeErr := drift.In(tx).See(f)
		if seeErr != nil || err != nil {
			return seeErr
		}
		if isNew {
			v.service.log.Warn("orphans: repaired the gateway of an environment",
				"environment", env.ID, "found", found)
		}
		return drift.In(tx).Resolve(finding.ID, resolvedRepaired)
	})
	if err != nil {
		err = fmt.Errorf("repairing the gateway of environment %s: %w", env.ID, err)
	}
	return errors.Join(err, recorded)
}
