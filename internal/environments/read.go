package environments

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/counts"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// GetEnvironment implements service.Environments.
func (v *Service) GetEnvironment(ctx context.Context, id string) (sandbox.Environment, error) {
	env, err := v.read(ctx, id)
	if err == nil {
		env.Drift, err = v.examineDeployment(ctx, env)
	}
	return env, err
}

// read reads one environment from the ledger.
func (v *Service) read(ctx context.Context, id string) (env sandbox.Environment, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		row, err := tx.KnownEnvironment(id)
		if err != nil {
			return err
		}
		views, err := v.views(tx, []ledger.Environment{*row})
		if err == nil {
			env = views[0]
		}
		return err
	})
	return env, err
}

// ListEnvironments implements service.Environments.
func (v *Service) ListEnvironments(ctx context.Context) (envs []sandbox.Environment, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := tx.Environments()
		if err == nil {
			envs, err = v.views(tx, rows)
		}
		return err
	})
	return envs, err
}

// views returns environments as readers see them, with leases, drift, budget and pool. Only transactions that read may
// call it, because others do not know the position of the events.
func (v *Service) views(tx *ledger.Tx, rows []ledger.Environment) ([]sandbox.Environment, error) {
	feed, err := tx.Feed()
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	leases, err := counts.In(tx).Leases(ids)
	if err != nil {
		return nil, err
	}
	found, err := drift.In(tx).CountOf(ids)
	if err != nil {
		return nil, err
	}
	envs := make([]sandbox.Environment, len(rows))
	for i := range rows {
		envs[i] = view(&rows[i])
		envs[i].LastEventID, envs[i].Leases, envs[i].OpenDrift = feed.Last, leases[ids[i]], found[ids[i]]
		if envs[i].BudgetUse, err = v.Billing.BudgetUse(tx, &rows[i]); err != nil {
			return nil, err
		}
		if envs[i].Pool, err = v.Pools.Status(tx, &rows[i]); err != nil {
			return nil, err
		}
	}
	return envs, nil
}

func view(row *ledger.Environment) sandbox.Environment {
	return sandbox.Environment{
		ID: row.ID, Owner: row.Owner, EnvironmentSpec: row.Spec, Instance: row.Instance, Status: row.Status, Epoch: row.Epoch,
		EndedBy: row.Ended.By, EndConditions: row.Ended.Conditions, EndedAt: row.Ended.At.Time(),
		CreatedAt: row.CreatedAt.Time(), UpdatedAt: row.UpdatedAt.Time(),
		PurgedAt: row.PurgedAt.Time(),
	}
}
