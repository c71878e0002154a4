package leasing

import (
	"context"
	"errors"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// CheckBudgets tells of thresholds that budgets have reached in this month, by an event each. It may
// be called at any time, by any number of engines: each threshold is told of once.
func (e *Engine) CheckBudgets(ctx context.Context) error {
	var reached []string
	err := e.store.Read(ctx, func(tx *ledger.Tx) error {
		reached = nil
		envs, err := tx.BudgetEnvironments()
		for i := range envs {
			use, err := budgetSpent(tx, &envs[i])
			if err != nil {
				return err
			}
			percents, err := newThresholds(tx, envs[i].ID, use)
			if err != nil {
				return err
			}
			if len(percents) > 0 {
				reached = append(reached, envs[i].ID)
			}
		}
		return err
	})
	for _, id := range reached {
		err = errors.Join(err, e.checkBudget(ctx, id))
	}
	return err
}

// checkBudget tells of the thresholds that one environment's budget has reached.
func (e *Engine) checkBudget(ctx context.Context, environmentID string) error {
	return e.store.Write(ctx, func(tx *ledger.Tx) error {
		env, err := mustEnvironment(tx, environmentID)
		if err != nil {
			return err
		}
		use, err := budgetSpent(tx, env)
		if err != nil || use == nil {
			return err
		}
		return noteThresholds(tx, env.ID, use)
	})
}

// newThresholds returns the thresholds that are reached and not told of yet.
func newThresholds(tx *ledger.Tx, environmentID string, use *sandbox.BudgetUse) (percents []int64, err error) {
	for _, percent := range sandbox.BudgetThresholds {
		if use != nil && use.Reached(percent) {
			percents = append(percents, percent)
		}
	}
	if len(percents) == 0 {
		return nil, nil
	}
	told, err := tx.ThresholdsReached(environmentID, use.Month, use.Monthly)
	return slices.DeleteFunc(percents, func(p int64) bool { return slices.Contains(told, p) }), err
}

// noteThresholds tells of the thresholds that are reached and not told of yet.
func noteThresholds(tx *ledger.Tx, environmentID string, use *sandbox.BudgetUse) error {
	percents, err := newThresholds(tx, environmentID, use)
	if err != nil {
		return err
	}
	for _, percent := range percents {
		told := ledger.BudgetThreshold{EnvironmentID: environmentID, Month: use.Month, Monthly: use.Monthly, Percent: percent, Spent: use.Spent}
		if err := tx.KeepThreshold(told); err != nil {
			return err
		}
		data := sandbox.BudgetReached{Month: use.Month, Percent: percent, Monthly: use.Monthly, Spent: use.Spent}
		if err := tx.AppendEnvironmentEvent(environmentID, sandbox.EventBudgetReached, data); err != nil {
			return err
		}
	}
	return nil
}
