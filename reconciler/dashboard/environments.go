package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// overview is all that the caller may see, in a line and by environment.
type overview struct {
	Environments []sandbox.Environment
	Leases       sandbox.LeaseCounts
	OpenDrift    int64
	// Cost is that of the month that goes on, at list price, nil for who may not see all environments.
	Cost *sandbox.NanoUSD
}

// monthCostEvery is how old the overview's cost may be: adding it up reads all that is in use, and the overview is
// read again whenever anything happens.
const monthCostEvery = 15 * time.Second

// monthCost is what a month has cost at list price, for all who may see all environments.
type monthCost struct {
	mu  sync.Mutex // guards what follows, and has others wait for who adds it up
	at  time.Time
	sum sandbox.NanoUSD
}

func (m *monthCost) cost(ctx context.Context, service service.Reports, now time.Time) (sandbox.NanoUSD, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	month := sandbox.MonthOf(now)
	if age := now.Sub(m.at); m.at.Before(month) || age < 0 || age >= monthCostEvery {
		report, err := service.Costs(ctx, sandbox.CostQuery{From: month, GroupBy: sandbox.CostByMonth})
		if err != nil {
			return 0, err
		}
		m.at, m.sum = now, report.Total.Gross
	}
	return m.sum, nil
}

// environments shows the environments that the caller may see.
func environments(p *page) error {
	live, err := p.liveAddress("", "")
	if err != nil {
		return err
	}
	var v overview
	if v.Environments, err = p.service.ListEnvironments(p.ctx); err != nil {
		return err
	}
	for _, e := range v.Environments {
		v.Leases, v.OpenDrift = v.Leases.Plus(e.Leases), v.OpenDrift+e.OpenDrift
	}
	if p.caller.Allows("") && p.may("get-costs") {
		cost, err := p.month.cost(p.ctx, p.service, p.now())
		if err != nil {
			return err
		}
		v.Cost = &cost
	}
	return p.show("environments", "Environments", "environments", live, v)
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
