package dashboard

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/chart"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/list"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// overview lists the environments that the caller may see, with a summary of all of them.
type overview struct {
	Search, Labels, Status string
	Tabs                   []tab
	Sort                   list.Sorting
	Environments           []environmentRow
	// Total is the number of environments without a filter.
	Total     int
	Leases    sandbox.LeaseCounts
	OpenDrift int64
	// Cost is the cost of the current month at list price, nil for a caller limited to environments.
	Cost *sandbox.NanoUSD
}

// environmentRow is an environment in the list.
type environmentRow struct {
	sandbox.Environment
	// Cost is its cost in the current month at list price.
	Cost   sandbox.NanoUSD
	Budget *budgetView // nil without one
}

// environmentStatuses are the filters of environments.
var environmentStatuses = []string{"all", string(sandbox.EnvironmentOpen), string(sandbox.EnvironmentClosed)}

// environmentOrders are the orders of environments.
var environmentOrders = list.Orders[environmentRow]{
	"id":     list.By(func(e environmentRow) string { return e.ID }),
	"leases": list.By(func(e environmentRow) int64 { return e.Leases.Live() }),
	"drift":  list.By(func(e environmentRow) int64 { return e.OpenDrift }),
	"cost":   list.By(func(e environmentRow) sandbox.NanoUSD { return e.Cost }),
}

// environments shows the environments that the caller may see.
func environments(p *page) error {
	live, err := p.liveAddress("", "")
	if err != nil {
		return err
	}
	v := overview{Search: p.query("q"), Labels: p.query("labels"), Status: p.orDefault("status", environmentStatuses[0])}
	if !slices.Contains(environmentStatuses, v.Status) {
		return sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: "status", Problem: "must be all, open or ended"}})
	}
	labels := sandbox.LabelSelector(v.Labels)
	if err := labels.Validate(); err != nil {
		return err
	}
	here := func(status, sort string) string {
		return link.To(link.Root, "q", v.Search, "labels", v.Labels, "status", status, "sort", sort)
	}
	for _, status := range environmentStatuses {
		v.Tabs = append(v.Tabs, tab{status, here(status, p.query("sort")), status == v.Status})
	}
	v.Sort = list.NewSorting(p.orDefault("sort", "id"), func(by string) string { return here(v.Status, by) })
	all, err := p.caller.Environments(p.ctx)
	if err != nil {
		return err
	}
	spent, err := p.spentThisMonth()
	if err != nil {
		return err
	}
	v.Total = len(all)
	for _, e := range all {
		v.Leases, v.OpenDrift = v.Leases.Plus(e.Leases), v.OpenDrift+e.OpenDrift
		if list.Contains(v.Search, e.ID) && labels.Selects(e.Labels) && (v.Status == "all" || string(e.Status) == v.Status) {
			v.Environments = append(v.Environments,
				environmentRow{Environment: e, Cost: spent.byEnvironment[e.ID], Budget: budgetOf(e)})
		}
	}
	if p.caller.Allows("") && p.may("get-costs") {
		v.Cost = &spent.total
	}
	if err := environmentOrders.Sort(v.Environments, v.Sort.By); err != nil {
		return err
	}
	return p.show("environments", "Environments", "environments", live, v)
}

// monthCostEvery is how long the costs of the month are cached: computing them reads all current usage, and pages that
// show them reload at each event.
const monthCostEvery = 15 * time.Second

// monthCost caches the costs of a month at list price, for all callers.
type monthCost struct {
	mu  sync.Mutex // guards the fields below, and lets others wait for one computation
	at  time.Time
	sum spending
}

// spending is the cost of a month at list price.
type spending struct {
	total         sandbox.NanoUSD
	byEnvironment map[string]sandbox.NanoUSD // by id; do not change
}

func (m *monthCost) cost(ctx context.Context, service service.Reports, now time.Time) (spending, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	month := sandbox.MonthOf(now)
	if age := now.Sub(m.at); m.at.Before(month) || age < 0 || age >= monthCostEvery {
		report, err := service.Costs(ctx, sandbox.CostQuery{From: month, GroupBy: sandbox.CostByEnvironment})
		if err != nil {
			return spending{}, err
		}
		m.at, m.sum = now, spending{report.Total.Spent(), map[string]sandbox.NanoUSD{}}
		for _, r := range report.Rows {
			m.sum.byEnvironment[r.EnvironmentID] = r.Spent()
		}
	}
	return m.sum, nil
}

// spentThisMonth returns the costs of the month. Pages must show only those of environments that the caller may see.
func (p *page) spentThisMonth() (spending, error) {
	if !p.may("get-costs") {
		return spending{}, nil
	}
	return p.month.cost(p.ctx, p.service, p.now())
}

// budgetView is the budget of an environment and its use.
type budgetView struct {
	sandbox.BudgetUse
	Meter chart.Meter
}

// budgetOf returns the budget of an environment and its use, nil without one.
func budgetOf(e sandbox.Environment) *budgetView {
	if e.BudgetUse == nil {
		return nil
	}
	u := *e.BudgetUse
	return &budgetView{u, chart.NewMeter(float64(u.Spent), float64(u.Reserved), float64(u.Monthly))}
}
