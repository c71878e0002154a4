package billing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Admit rejects a new generation if its environment's budget of this month does not cover it. expires is when
// the generation expires if it is not used. It runs in the transaction that stores the generation, so that
// two generations never share the same rest. Errors: BudgetExceeded.
func (b *Service) Admit(tx *ledger.Tx, env *ledger.Environment, s *ledger.Sandbox, expires ledger.Time) error {
	use, err := b.BudgetUse(tx, env)
	if err != nil || use == nil {
		return err
	}
	if err := noteThresholds(tx, env.ID, use); err != nil {
		return err
	}
	asked := b.reservation(s, expires, tx.Now)
	if asked <= use.Left() {
		return nil
	}
	return sandbox.Errorf(sandbox.BudgetExceeded, "lease %s: the budget of environment %s for %s is $%s: $%s is spent, "+
		"$%s is reserved for live leases, and this lease may cost $%s until it expires or the month ends, but $%s is "+
		"left: release leases, use a shorter ttl, raise the budget, or wait for the next month",
		s.Lease(), env.ID, use.Month, use.Monthly, use.Spent, use.Reserved, asked, use.Left())
}

// budgetSpent returns an environment's budget use in a month, without Reserved; nil without a budget.
func budgetSpent(tx *ledger.Tx, env *ledger.Environment, month stretch) (*sandbox.BudgetUse, error) {
	if env.Spec.Budget == nil {
		return nil, nil
	}
	sum, calls, err := spent(tx, env.ID, month)
	return &sandbox.BudgetUse{
		Month:   month.from.Time().Format("2006-01"),
		Monthly: env.Spec.Budget.Monthly,
		Spent:   sum + calls,
		LLM:     calls,
	}, err
}

// BudgetUse returns the spent and reserved part of an environment's budget of this month, nil without a
// budget.
func (b *Service) BudgetUse(tx *ledger.Tx, env *ledger.Environment) (*sandbox.BudgetUse, error) {
	use, err := budgetSpent(tx, env, monthOf(tx.Now))
	if err != nil || use == nil {
		return nil, err
	}
	sizes, err := tx.Accounting().TimeLeft(env.ID, monthOf(tx.Now).to)
	for _, l := range sizes { // each with the average duration, plus the rest of the division
		each, rest := l.Remaining/ledger.Span(l.N), l.Remaining%ledger.Span(l.N)
		size := sandbox.Resources{MemoryMB: l.MemoryMB, CPUMillis: l.CPUMillis, DiskMB: l.DiskMB}
		use.Reserved += b.atMost(l.Backend, size, each)*sandbox.NanoUSD(l.N) + b.atMost(l.Backend, size, rest)
	}
	if err != nil {
		return nil, err
	}
	calls, err := tx.LLM().Reserved(env.ID)
	use.Reserved += calls
	return use, err
}

// spent returns the gross cost of an environment's sandboxes in a month so far, and that of its calls of models.
func spent(tx *ledger.Tx, environmentID string, month stretch) (sum, calls sandbox.NanoUSD, err error) {
	if sum, err = tx.Accounting().SpentInMonth(environmentID, monthName(dayOf(month.from))); err != nil {
		return 0, 0, err
	}
	books, err := tx.Accounting().PriceBooks()
	if err != nil {
		return 0, 0, err
	}
	periods, err := tx.Accounting().UnrolledUse(environmentID)
	for i := range periods {
		p := &periods[i]
		for x := range partsIn(p, month, tx.Now) {
			sum += x.cost(p, books[p.PriceBookID])
		}
	}
	if err != nil {
		return 0, 0, err
	}
	routes, err := tx.LLM().Months(environmentID, monthName(dayOf(month.from)))
	for _, route := range routes {
		calls += route.Cost
	}
	return sum, calls, err
}

// reservation is the most that a lease can cost until it expires or the month ends.
func (b *Service) reservation(s *ledger.Sandbox, expires, now ledger.Time) sandbox.NanoUSD {
	return b.atMost(s.Backend, s.Size(), ledger.Span(max(min(expires, monthOf(now).to)-now, 0)))
}

// atMost is the cost of a sandbox that is awake all the time and uses its whole CPU limit.
func (b *Service) atMost(backend sandbox.Backend, size sandbox.Resources, span ledger.Span) sandbox.NanoUSD {
	awake := span.Duration().D()
	return pricing.Cost(b.books[backend], size, awake, 0, time.Duration(int64(awake/1000)*size.CPUMillis))
}

// monthOf returns the UTC month that contains t.
func monthOf(t ledger.Time) stretch {
	at := t.Time()
	first := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	return stretch{from: ledger.At(first), to: ledger.At(first.AddDate(0, 1, 0))}
}
