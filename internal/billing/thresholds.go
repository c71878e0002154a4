package billing

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// lookBack is how long a month is still checked after its end, because its last costs are only known
// afterwards.
const lookBack = micro.Span(time.Hour / time.Microsecond)

// watchedMonths returns this month and, within lookBack, the previous one.
func watchedMonths(now micro.Time) []stretch {
	this := monthOf(now)
	if now >= this.from.Add(lookBack) {
		return []stretch{this}
	}
	return []stretch{monthOf(this.from - 1), this}
}

// CheckBudgets records an event for each threshold that an environment's budget has reached this month, and ends the
// leases of budgets that are spent. Any number of processes may call it at any time: each threshold has one event, and
// each lease one end.
func (b *Service) CheckBudgets(ctx context.Context) error {
	ctx = lifecycle.Essential(ctx) // leases end even on a full disk
	measured := b.measureNear(ctx)
	var reached []string
	err := b.store.Read(ctx, func(tx *ledger.Tx) error {
		reached = nil
		envs, err := accounting.In(tx).BudgetEnvironments()
		if err != nil {
			return err
		}
		for i := range envs {
			news, err := hasReached(tx, &envs[i])
			if err != nil {
				return err
			}
			if news {
				reached = append(reached, envs[i].ID)
			}
		}
		return nil
	})
	for _, id := range reached {
		err = errors.Join(err, b.CheckBudget(ctx, id))
	}
	return errors.Join(err, measured)
}

// hasReached reports whether an environment's budget has reached a threshold that has no event yet, or is spent while
// leases live.
func hasReached(tx *ledger.Tx, env *ledger.Environment) (bool, error) {
	for _, month := range watchedMonths(tx.Now) {
		use, err := budgetSpent(tx, env, month)
		if err != nil {
			return false, err
		}
		percents, err := newThresholds(tx, env.ID, use)
		if err != nil || len(percents) > 0 {
			return len(percents) > 0, err
		}
		if endsLeases(use, tx.Now) {
			living, err := livingLeases(tx, env.ID)
			return len(living) > 0, err
		}
	}
	return false, nil
}

// CheckBudget records an event for each threshold that one environment's budget has reached, unless it
// exists, and ends the environment's leases if the budget is spent.
func (b *Service) CheckBudget(ctx context.Context, environmentID string) error {
	return b.store.Write(ctx, func(tx *ledger.Tx) error {
		env, err := tx.Environment(environmentID)
		if err != nil || env == nil {
			return err
		}
		for _, month := range watchedMonths(tx.Now) {
			use, err := budgetSpent(tx, env, month)
			if err != nil || use == nil {
				return err
			}
			if err := noteThresholds(tx, env.ID, use); err != nil {
				return err
			}
			if endsLeases(use, tx.Now) {
				return b.endLeases(tx, env.ID, use)
			}
		}
		return nil
	})
}

// newThresholds returns the reached thresholds without an event.
func newThresholds(tx *ledger.Tx, environmentID string, use *sandbox.BudgetUse) (percents []int64, err error) {
	for _, percent := range sandbox.BudgetThresholds {
		if use != nil && use.Reached(percent) {
			percents = append(percents, percent)
		}
	}
	if len(percents) == 0 {
		return nil, nil
	}
	told, err := accounting.In(tx).ThresholdsReached(environmentID, use.Month, use.Monthly)
	return slices.DeleteFunc(percents, func(p int64) bool { return slices.Contains(told, p) }), err
}

// noteThresholds records events for the reached thresholds without one.
func noteThresholds(tx *ledger.Tx, environmentID string, use *sandbox.BudgetUse) error {
	percents, err := newThresholds(tx, environmentID, use)
	if err != nil {
		return err
	}
	for _, percent := range percents {
		told := accounting.BudgetThreshold{
			EnvironmentID: environmentID,
			Month:         use.Month,
			Monthly:       use.Monthly,
			Percent:       percent,
			Spent:         use.Spent,
		}
		if err := accounting.In(tx).KeepThreshold(told); err != nil {
			return err
		}
		data := sandbox.BudgetReached{Month: use.Month, Percent: percent, Monthly: use.Monthly, Spent: use.Spent}
		if err := tx.AppendEnvironmentEvent(environmentID, sandbox.EventBudgetReached, data); err != nil {
			return err
		}
	}
	return nil
}
