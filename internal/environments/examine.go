package environments

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// examineTimeout limits the comparison of a deployment, which takes several requests to the backend.
const examineTimeout = 10 * time.Second

// resolvedDeployed is the resolution of findings about a deployment.
const resolvedDeployed = "it is as configured again"

// deploymentField names a setting of an environment's deployment in a finding.
func deploymentField(environmentID, setting string) string {
	return "deployment of environment " + environmentID + ": " + setting
}

// examineDeployment makes the backend compare an environment's deployment with its settings, and returns the open
// findings about it. If the backend does not answer, it returns the earlier findings.
func (v *Service) examineDeployment(ctx context.Context, env sandbox.Environment) ([]sandbox.DriftFinding, error) {
	serves := env.Status == sandbox.EnvironmentOpen || env.Status == sandbox.EnvironmentClosed
	if !serves || env.Instance == "" {
		return nil, nil
	}
	x, err := v.Core.BackendFor(env.Backend)
	if err != nil {
		return nil, nil //nolint:nilerr // an engine without this backend reads, and knows nothing of it
	}
	bounded, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	found, lookErr := x.Differences(bounded, v.Core.EnvironmentRef(env.ID, env.Instance), env.EnvironmentSpec)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var open []drift.Finding
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		all, err := drift.In(tx).Open(env.Instance)
		open = slices.DeleteFunc(all, func(f drift.Finding) bool {
			return f.Kind != sandbox.DriftChanged || !strings.HasPrefix(f.Field, deploymentField(env.ID, ""))
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if lookErr != nil {
		v.Log.WarnContext(ctx, "environments: could not read an environment's deployment",
			"environment", env.ID, "error", lookErr)
		return findingsOf(open), nil
	}
	if len(found) == 0 && len(open) == 0 {
		return nil, nil
	}
	return v.recordDeployment(ctx, env, found, open)
}

// remedyOf says how to resolve a difference.
func remedyOf(d driver.Difference) string {
	if d.Kept {
		return "the environment keeps it; to change it, replace the environment"
	}
	return "the next terraform apply deploys it again"
}

// recordDeployment records the differences that were found, and resolves findings whose settings match again.
func (v *Service) recordDeployment(ctx context.Context, env sandbox.Environment, found []driver.Difference,
	open []drift.Finding) (all []sandbox.DriftFinding, err error) {
	err = v.Store.Write(ctx, func(tx *ledger.Tx) error {
		all = nil
		seen := make(map[string]bool)
		for _, d := range found {
			f, _, err := drift.In(tx).See(drift.Finding{
				Kind: sandbox.DriftChanged, EnvironmentID: env.ID, Instance: env.Instance,
				Field: deploymentField(env.ID, d.Setting), Expected: d.Wanted, Observed: d.Found,
				Resolution: remedyOf(d),
			})
			if err != nil {
				return err
			}
			seen[f.Field] = true
			all = append(all, f.Domain())
		}
		for i := range open {
			if seen[open[i].Field] {
				continue
			}
			if err := drift.In(tx).Resolve(open[i].ID, resolvedDeployed); err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}

func findingsOf(rows []drift.Finding) (all []sandbox.DriftFinding) {
	for i := range rows {
		all = append(all, rows[i].Domain())
	}
	return all
}
