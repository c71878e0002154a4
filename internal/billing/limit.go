package billing

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The leases of an environment end when its budget is spent. Memory and disk are known to the microsecond. CPU time
// is known only from readings, which a resync takes every 30 s, so near the limit each check takes readings first. The
// limit is near if the awake sandboxes could reach it within nearLimit: a resync, a check, and a margin for both.
const nearLimit = time.Minute

// measureNear reads the usage of environments whose limit is near.
func (b *Service) measureNear(ctx context.Context) error {
	var awake []ledger.Sandbox
	err := b.store.Read(ctx, func(tx *ledger.Tx) error {
		awake = nil
		envs, err := accounting.In(tx).BudgetEnvironments()
		if err != nil {
			return err
		}
		month := monthOf(tx.Now)
		for i := range envs {
			s, err := spent(tx, envs[i].ID, month)
			if err != nil {
				return err
			}
			use := s.of(&envs[i], month)
			if s.full == 0 || use.Reached(100) || use.Spent+s.full < use.Monthly {
				continue
			}
			rows, err := tx.LiveSandboxes(envs[i].ID)
			if err != nil {
				return err
			}
			awake = append(awake, slices.DeleteFunc(rows, func(s ledger.Sandbox) bool {
				return s.Phase == sandbox.PhaseAsleep || s.Desired != ledger.Present // code may run before it is ready
			})...)
		}
		return nil
	})
	if err != nil || len(awake) == 0 {
		return err
	}
	return b.measure(ctx, awake)
}

// endsLeases reports whether a budget is spent and belongs to the current month.
func endsLeases(use *sandbox.BudgetUse, now micro.Time) bool {
	return use.Reached(100) && use.Month == now.Time().Format(monthFormat)
}

// IsSpent reports whether the environment's budget of this month is spent, and its leases have been ended.
func IsSpent(tx *ledger.Tx, env *ledger.Environment) (bool, error) {
	if env.Spec.Budget == nil {
		return false, nil
	}
	told, err := accounting.In(tx).ThresholdsReached(env.ID, tx.Now.Time().Format(monthFormat), env.Spec.Budget.Monthly)
	return slices.Contains(told, 100), err
}

func livingLeases(tx *ledger.Tx, environmentID string) ([]ledger.Sandbox, error) {
	rows, err := tx.LeasedSandboxes(environmentID)
	return slices.DeleteFunc(rows, func(s ledger.Sandbox) bool { return s.Desired != ledger.Present }), err
}

// endLeases ends all leases of an environment. The sandboxes of its warm pool end with the pool.
func (b *Service) endLeases(tx *ledger.Tx, environmentID string, use *sandbox.BudgetUse) error {
	living, err := livingLeases(tx, environmentID)
	if err != nil {
		return err
	}
	why := fmt.Sprintf("the budget of environment %s for %s is spent: $%s of $%s",
		environmentID, use.Month, use.Spent, use.Monthly)
	return tx.UpdateRows(living, func(s *ledger.Sandbox) error {
		return b.end(tx, s, lifecycle.Ending{By: sandbox.EndedByBudget, Reason: why, At: tx.Now})
	})
}
