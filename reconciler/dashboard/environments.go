package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// overview is the summary of all environments that the caller may see.
type overview struct {
	Environments []sandbox.Environment
	Leases       sandbox.LeaseCounts
	OpenDrift    int64
	// Cost is the cost of the current month at list price, nil for a caller limited to environments.
	Cost *sandbox.NanoUSD
}

// monthCostEvery is how long the cost in the overview is cached: computing it reads all current usage, and the overview
// reloads at each event.
const monthCostEvery = 15 * time.Second

// monthCost caches the cost of a month at list price, for all unlimited callers.
type monthCost struct {
	mu  sync.Mutex // guards the fields below, and lets others wait for one computation
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
		m.at, m.sum = now, report.Total.Spent()
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
	if v.Environments, err = p.caller.Environments(p.ctx); err != nil {
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

// budgetView is the budget of an environment and its use.
type budgetView struct {
	sandbox.BudgetUse
	Meter meter
}

// BudgetOf is budgetOf, for templates.
func (f *frame) BudgetOf(e sandbox.Environment) *budgetView { return budgetOf(e) }

// budgetOf returns the budget of an environment and its use, nil without one.
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
