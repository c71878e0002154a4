package leasing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// How findings about what an environment's sandboxes share are resolved.
const (
	resolvedMended = "the survey mended it"
	resolvedWell   = "it is well again"
)

// sharedField names, in a finding, what the sandboxes of an environment share: their way out.
func sharedField(environmentID string) string { return "gateway of environment " + environmentID }

// mend has the backend see to what the sandboxes of each environment share, and records what was found
// wrong. Where not all rows were read, it is those that were. Each environment is its own: one that cannot be mended keeps no other.
func (v *inventory) mend(ctx context.Context) error {
	var environments map[string]*ledger.Environment
	err := v.engine.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		environments, err = tx.EnvironmentsOf(slices.Collect(maps.Keys(v.uses)))
		return err
	})
	if err != nil {
		return err
	}
	return parallel.Each(menders, slices.Collect(maps.Values(environments)), func(env **ledger.Environment) error {
		serves := (*env).Status == sandbox.EnvironmentOpen || (*env).Status == sandbox.EnvironmentClosed
		if !serves || (*env).Instance != v.instance || (*env).Spec.Network != sandbox.NetworkRestricted {
			return nil
		}
		return v.mendOne(ctx, *env)
	})
}

// menders bounds the environments that are mended at once.
const menders = 8

func (v *inventory) mendOne(ctx context.Context, env *ledger.Environment) error {
	bounded, cancel := context.WithTimeout(ctx, provisionTimeout(v.x))
	defer cancel()
	found, err := v.x.Mend(bounded, v.engine.environmentRef(env.ID, v.instance), env.Spec)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	field := sharedField(env.ID)
	open := slices.IndexFunc(v.open, func(f ledger.DriftFinding) bool { return f.Kind == sandbox.DriftStopped && f.Field == field })
	if err == nil && found == "" && open < 0 {
		return nil
	}
	recorded := v.engine.store.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
		if err == nil && found == "" {
			return tx.Findings().ResolveFinding(v.open[open].ID, resolvedWell)
		}
		f := ledger.DriftFinding{Kind: sandbox.DriftStopped, EnvironmentID: env.ID, Instance: v.instance, Field: field, Expected: "works", Observed: found}
		if err != nil {
			f.Resolution = fmt.Sprintf("it could not be mended, and is tried again: %v", err)
		}
		finding, isNew, seeErr := tx.Findings().SeeDrift(f)
		if seeErr != nil || err != nil {
			return seeErr
		}
		if isNew {
			v.engine.log.Warn("leasing: mended what an environment's sandboxes go out through", "environment", env.ID, "found", found)
		}
		return tx.Findings().ResolveFinding(finding.ID, resolvedMended)
	})
	if err != nil {
		err = fmt.Errorf("mending the gateway of environment %s: %w", env.ID, err)
	}
	return errors.Join(err, recorded)
}
