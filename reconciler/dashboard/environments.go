package dashboard

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// environments shows the environments that the caller may see.
func environments(p *page) error {
	live, err := p.liveAddress("", "")
	if err != nil {
		return err
	}
	list, err := p.service.ListEnvironments(p.ctx)
	if err != nil {
		return err
	}
	return p.show("environments", "Environments", "environments", live, list)
}

// budgetView is where an environment stands in its budget.
type budgetView struct {
	sandbox.BudgetUse
	Meter meter
}

// BudgetOf is budgetOf, for templates.
func (f *frame) BudgetOf(e sandbox.Environment) *budgetView { return budgetOf(e) }

// budgetOf returns where an environment stands in its budget, nil without one.
func budgetOf(e sandbox.Environment) *budgetView {
	if e.BudgetUse == nil {
		return nil
	}
	u := *e.BudgetUse
	return &budgetView{u, newMeter(float64(u.Spent), float64(u.Reserved), float64(u.Monthly))}
}

// environment shows one environment.
func environment(p *page) error {
	e, err := p.service.GetEnvironment(p.ctx, p.r.PathValue("id"))
	if err != nil {
		return err
	}
	live, err := p.liveAddress(e.ID, "")
	if err != nil {
		return err
	}
	return p.show("environment", e.ID, "environments", live, e)
}
