package dashboard

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/chart"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/list"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// agentsPerPage is how many agents a page lists.
	agentsPerPage = 20
	monthLayout   = "2006-01"
)

// The ways to split the bars of the days.
const (
	stackEnvironments = "by environment"
	stackKinds        = "sandboxes and models"
)

// stackedEnvironments is how many environments have their own colour, by descending costs. Each needs a query.
const stackedEnvironments = 4

// costsPage shows the costs of one calendar month, UTC.
type costsPage struct {
	scope
	Month    time.Time
	Previous string
	Next     string // "" for the current month
	Total    sandbox.CostRow
	// Forecast is the cost of the whole month at the rate since its first usage, nil unless it is the current month.
	Forecast *forecast
	Days     *chart.Days // nil without usage
	Stacks   []tab       // ways to split the bars of the days
	ByDay    []costRow
	Sort     list.Sorting // of Agents
	// Budget is the budget of the chosen environment in the current month.
	Budget        *budgetView
	Spent         *chart.Spent // against Budget; nil without one
	Environments  []costRow    // empty if one is chosen
	Agents        []costRow
	MoreAgents    int
	PriceBooks    []sandbox.PriceBook
	CurrentlyOnly bool // it is the current month
	// Accounts are what the accounts owe for the month after allotments and plan fees. Only the page of all environments
	// has them.
	Accounts []sandbox.AccountMonth
}

// forecast is the projected cost of a month.
type forecast struct {
	Amount sandbox.NanoUSD
	Since  time.Time // the first usage of the month
	// Over means that it exceeds the budget of the chosen environment.
	Over bool
}

// costRow is a row of costs.
type costRow struct {
	sandbox.CostRow
	Name  string
	Share chart.Meter // of the total
	// Budget is the budget of the environment in the current month, nil without one.
	Budget *budgetView
}

// agentOrders are the orders of agents.
var agentOrders = list.Orders[costRow]{
	"agent": list.By(func(r costRow) string { return r.Name }),
	"cost":  list.By(func(r costRow) sandbox.NanoUSD { return r.Spent() }),
	"llm":   list.By(func(r costRow) sandbox.NanoUSD { return r.LLM.Cost }),
	"awake": list.By(func(r costRow) float64 { return r.AwakeSeconds }),
}

// costs shows the costs of a month by day, environment and agent.
func costs(p *page) error {
	s := p.scope
	v := costsPage{scope: s, Month: sandbox.MonthOf(p.now())}
	if text := p.query("month"); text != "" {
		month, err := time.Parse(monthLayout, text)
		if err != nil {
			return sandbox.InvalidFields("the page's URL",
				[]sandbox.Field{{Name: "month", Problem: "must be a month such as 2026-11"}})
		}
		v.Month = month
	}
	now := p.now()
	v.CurrentlyOnly = v.Month.Equal(sandbox.MonthOf(now))
	here := func(month time.Time, stack, sort string) string {
		return link.To(link.Root+"costs", "environment", s.Environment, "month", month.Format(monthLayout), "stack", stack,
			"sort", sort)
	}
	v.Previous = here(v.Month.AddDate(0, -1, 0), p.query("stack"), p.query("sort"))
	if v.Month.Before(sandbox.MonthOf(now)) {
		v.Next = here(v.Month.AddDate(0, 1, 0), p.query("stack"), p.query("sort"))
	}
	v.Sort = list.NewSorting(p.orDefault("sort", "-cost"),
		func(by string) string { return here(v.Month, p.query("stack"), by) })
	stack := p.orDefault("stack", stackEnvironments)
	if s.Environment != "" {
		stack = stackKinds
	} else {
		for _, t := range []string{stackEnvironments, stackKinds} {
			v.Stacks = append(v.Stacks, tab{t, here(v.Month, t, p.query("sort")), t == stack})
		}
	}
	if s.Any && !v.Month.After(now) {
		if err := p.addCosts(&v, stack, now); err != nil {
			return err
		}
	}
	return p.show("costs", "Costs", "costs", "", v)
}

// addCosts adds the costs of the page's month.
func (p *page) addCosts(v *costsPage, stack string, now time.Time) error {
	q := sandbox.CostQuery{EnvironmentID: v.Environment, From: v.Month, To: v.Month.AddDate(0, 1, 0)}
	if q.To.After(now) {
		q.To = time.Time{}
	}
	report := func(by sandbox.CostGroup) (sandbox.CostReport, error) {
		q.GroupBy = by
		return p.service.Costs(p.ctx, q)
	}
	days, err := report(sandbox.CostByDay)
	if err != nil {
		return err
	}
	v.Total = days.Total
	for _, r := range days.Rows {
		v.ByDay = append(v.ByDay, costRow{CostRow: r, Name: r.Day})
	}
	for _, b := range days.PriceBooks {
		v.PriceBooks = append(v.PriceBooks, b)
	}
	slices.SortFunc(v.PriceBooks, func(a, b sandbox.PriceBook) int { return cmp.Compare(a.Name, b.Name) })
	budgets, err := p.budgets(v)
	if err != nil {
		return err
	}
	v.Budget = budgets[v.Environment]
	if v.All && v.Environment == "" {
		v.Accounts = days.Accounts
	}
	if v.CurrentlyOnly {
		v.Forecast = forecastOf(days.Rows, v.Total.Spent(), now, v.Budget)
	}
	if v.Budget != nil {
		v.Spent = chart.NewSpent(v.Month, now, days.Rows, v.Budget.Monthly)
	}
	if v.Environment == "" {
		byEnvironment, err := report(sandbox.CostByEnvironment)
		if err != nil {
			return err
		}
		v.Environments = sharesOf(byEnvironment.Rows, func(r sandbox.CostRow) string { return r.EnvironmentID })
		for i := range v.Environments {
			v.Environments[i].Budget = budgets[v.Environments[i].EnvironmentID]
		}
	}
	parts, err := p.stack(stack, q, days.Rows, v.Environments)
	if err != nil {
		return err
	}
	v.Days = chart.NewDays(v.Month, days.Rows, parts)
	byAgent, err := report(sandbox.CostByAgent)
	if err != nil {
		return err
	}
	v.Agents = sharesOf(byAgent.Rows, func(r sandbox.CostRow) string { return r.AgentDID })
	if err := agentOrders.Sort(v.Agents, v.Sort.By); err != nil {
		return err
	}
	v.MoreAgents = max(len(v.Agents)-agentsPerPage, 0)
	v.Agents = v.Agents[:len(v.Agents)-v.MoreAgents]
	return nil
}

// budgets returns the budgets of environments in the current month by id.
func (p *page) budgets(v *costsPage) (map[string]*budgetView, error) {
	all := map[string]*budgetView{}
	if !v.CurrentlyOnly {
		return all, nil
	}
	list, err := p.caller.Environments(p.ctx)
	for _, e := range list {
		if b := budgetOf(e); b != nil {
			all[e.ID] = b
		}
	}
	return all, err
}

// sharesOf returns rows by descending costs.
func sharesOf(rows []sandbox.CostRow, name func(sandbox.CostRow) string) []costRow {
	all := make([]costRow, len(rows))
	for i, r := range rows {
		all[i] = costRow{CostRow: r, Name: name(r)}
	}
	slices.SortStableFunc(all, func(a, b costRow) int { return cmp.Compare(b.Spent(), a.Spent()) })
	var total sandbox.NanoUSD
	for _, r := range rows {
		total += r.Spent()
	}
	for i := range all {
		all[i].Share = chart.NewShare(float64(all[i].Spent()), float64(total))
	}
	return all
}

// forecastOf projects the cost of the current month: what was spent, and for the rest of the month the mean rate since
// the first day with usage. It returns nil before there is any usage.
func forecastOf(days []sandbox.CostRow, spent sandbox.NanoUSD, now time.Time, budget *budgetView) *forecast {
	if len(days) == 0 || spent == 0 {
		return nil
	}
	first := slices.MinFunc(days, func(a, b sandbox.CostRow) int { return cmp.Compare(a.Day, b.Day) })
	since, err := time.Parse(time.DateOnly, first.Day)
	if err != nil { // cannot happen: the service returns dates
		return nil
	}
	f := &forecast{Amount: sandbox.ProjectMonth(spent, since, now), Since: since}
	f.Over = budget != nil && f.Amount > budget.Monthly
	return f
}

// stack splits the days of a query: into sandboxes and model calls, or into the most expensive environments and the
// others.
func (p *page) stack(by string, q sandbox.CostQuery, days []sandbox.CostRow, environments []costRow) ([]chart.Part,
	error) {
	if by != stackEnvironments {
		return []chart.Part{
			chart.NewPart("Sandboxes", "part-1", days, func(r sandbox.CostRow) sandbox.NanoUSD { return r.Gross }),
			chart.NewPart("Model calls", "part-2", days, func(r sandbox.CostRow) sandbox.NanoUSD { return r.LLM.Cost }),
		}, nil
	}
	var parts []chart.Part
	others := chart.NewPart("Others", "part-others", days, sandbox.CostRow.Spent)
	q.GroupBy = sandbox.CostByDay
	for i, e := range environments[:min(len(environments), stackedEnvironments)] {
		q.EnvironmentID = e.EnvironmentID
		report, err := p.service.Costs(p.ctx, q)
		if err != nil {
			return nil, err
		}
		one := chart.NewPart(e.EnvironmentID, "part-"+strconv.Itoa(i+1), report.Rows, sandbox.CostRow.Spent)
		others.Remove(one)
		parts = append(parts, one)
	}
	if len(environments) > stackedEnvironments {
		parts = append(parts, others)
	}
	return parts, nil
}
