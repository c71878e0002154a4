package billing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Admit rejects a new generation if its environment's budget of this month does not cover it. expires is when
// the generation expires if it is not used. It runs in the transaction that stores the generation, so that
// two generations never share the same rest. Errors: BudgetExceeded.
func (b *Service) Admit(tx *ledger.Tx, env *ledger.Environment, s *ledger.Sandbox, expires micro.Time) error {
	use, err := b.BudgetUse(tx, env)
	if err != nil || use == nil {
		return err
	}
	if err := noteThresholds(tx, env.ID, use); err != nil {
		return err
	}
	asked := b.expected(s.Backend, s.Size(), micro.Span(max(min(expires, reserveEnd(tx.Now))-tx.Now, 0)))
	if asked <= use.Left() && !use.Reached(100) { // on a free engine, model calls alone can spend it
		return nil
	}
	return sandbox.Errorf(sandbox.BudgetExceeded, "lease %s: the budget of environment %s for %s is $%s: $%s is spent, "+
		"$%s is reserved for live leases, and this lease reserves $%s for its next hour, but $%s is "+
		"left: release leases, choose a smaller size, raise the budget, or wait for the next month",
		s.Lease(), env.ID, use.Month, use.Monthly, use.Spent, use.Reserved, asked, use.Left())
}

// budgetSpent returns an environment's budget use in a month, without Reserved; nil without a budget.
func budgetSpent(tx *ledger.Tx, env *ledger.Environment, month stretch) (*sandbox.BudgetUse, error) {
	if env.Spec.Budget == nil {
		return nil, nil
	}
	s, err := spent(tx, env.ID, month)
	return s.of(env, month), err
}

func (s spending) of(env *ledger.Environment, month stretch) *sandbox.BudgetUse {
	return &sandbox.BudgetUse{
		Month:   month.from.Time().Format(monthFormat),
		Monthly: env.Spec.Budget.Monthly,
		Spent:   s.sandboxes + s.calls,
		LLM:     s.calls,
	}
}

const monthFormat = "2006-01"

// BudgetUse returns the spent and reserved part of an environment's budget of this month, nil without a
// budget.
func (b *Service) BudgetUse(tx *ledger.Tx, env *ledger.Environment) (*sandbox.BudgetUse, error) {
	use, err := budgetSpent(tx, env, monthOf(tx.Now))
	if err != nil || use == nil {
		return nil, err
	}
	sizes, err := accounting.In(tx).TimeLeft(env.ID, reserveEnd(tx.Now))
	for _, l := range sizes { // each with the average duration, plus the rest of the division
		each, rest := l.Remaining/micro.Span(l.N), l.Remaining%micro.Span(l.N)
		size := sandbox.Resources{MemoryMB: l.MemoryMB, CPUMillis: l.CPUMillis, DiskMB: l.DiskMB}
		use.Reserved += b.expected(l.Backend, size, each)*sandbox.NanoUSD(l.N) + b.expected(l.Backend, size, rest)
	}
	if err != nil {
		return nil, err
	}
	calls, err := modelcalls.In(tx).Reserved(env.ID)
	use.Reserved += calls
	return use, err
}

// spending is the gross cost of an environment in a month so far.
type spending struct {
	sandboxes, calls sandbox.NanoUSD
	// full is what its awake sandboxes cost in nearLimit with their whole CPU limits.
	full sandbox.NanoUSD
}

func spent(tx *ledger.Tx, environmentID string, month stretch) (s spending, err error) {
	if s.sandboxes, err = accounting.In(tx).SpentInMonth(environmentID, monthName(dayOf(month.from))); err != nil {
		return s, err
	}
	books, err := accounting.In(tx).PriceBooks()
	if err != nil {
		return s, err
	}
	periods, err := accounting.In(tx).UnrolledUse(environmentID)
	for i := range periods {
		p := &periods[i]
		for x := range partsIn(p, month, tx.Now) {
			s.sandboxes += x.cost(p, books[p.PriceBookID])
		}
		if p.EndedAt == 0 && p.State == sandbox.PhaseAwake {
			s.full += costAwake(books[p.PriceBookID], p.Resources(), nearLimit, 100)
		}
	}
	if err != nil {
		return s, err
	}
	routes, err := modelcalls.In(tx).Months(environmentID, monthName(dayOf(month.from)))
	for _, route := range routes {
		s.calls += route.Cost
	}
	return s, err
}

// expected is what a budget reserves for a sandbox over a time: see sandbox.BudgetReserve.
func (b *Service) expected(backend sandbox.Backend, size sandbox.Resources, span micro.Span) sandbox.NanoUSD {
	return costAwake(b.books[backend], size, span.Duration().D(), sandbox.BudgetCPUPercent)
}

// reserveEnd is the time up to which the budget now reserves leases that do not expire earlier.
func reserveEnd(now micro.Time) micro.Time {
	return min(now.Add(micro.SpanOf(sandbox.Duration(sandbox.BudgetReserve))), monthOf(now).to)
}

// costAwake is the cost of a sandbox that is awake for a time and uses a part of its CPU limit.
func costAwake(book sandbox.PriceBook, size sandbox.Resources, awake time.Duration, percent int64) sandbox.NanoUSD {
	return pricing.Cost(book, size, awake, 0, time.Duration(int64(awake/1000)*size.CPUMillis/100*percent))
}

// monthOf returns the UTC month that contains t.
func monthOf(t micro.Time) stretch {
	at := t.Time()
	first := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	return stretch{from: micro.At(first), to: micro.At(first.AddDate(0, 1, 0))}
}
