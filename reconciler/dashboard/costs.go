package dashboard

import (
	"cmp"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// agentsPerPage is how many agents a page lists, by descending costs.
	agentsPerPage = 20
	monthLayout   = "2006-01"
	dayLayout     = "2006-01-02"
)

// costsPage shows the costs of one calendar month, UTC.
type costsPage struct {
	scope
	Month    time.Time
	Previous string
	Next     string // "" for the current month
	Total    sandbox.CostRow
	Days     *dayChart // nil without usage
	ByDay    []costRow
	// Budget is the budget of the chosen environment in the current month.
	Budget        *budgetView
	Spent         *spentChart // against Budget; nil without one
	Environments  []costRow   // empty if one is chosen
	Agents        []costRow
	MoreAgents    int
	PriceBooks    []sandbox.PriceBook
	CurrentlyOnly bool // it is the current month
}

// costRow is a row of costs.
type costRow struct {
	sandbox.CostRow
	Name  string
	Share meter // of the total
	// Budget is the budget of the environment in the current month, nil without one.
	Budget *budgetView
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
	here := func(month time.Time) string {
		return address(Root+"costs", "environment", s.Environment, "month", month.Format(monthLayout))
	}
	v.Previous = here(v.Month.AddDate(0, -1, 0))
	if v.Month.Before(sandbox.MonthOf(now)) {
		v.Next = here(v.Month.AddDate(0, 1, 0))
	}
	if s.Any && !v.Month.After(now) {
		if err := p.addCosts(&v, now); err != nil {
			return err
		}
	}
	return p.show("costs", "Costs", "costs", "", v)
}

// addCosts adds the costs of the page's month.
func (p *page) addCosts(v *costsPage, now time.Time) error {
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
	v.Days = newDayChart(v.Month, days.Rows)
	if v.Budget != nil {
		v.Spent = newSpentChart(v.Month, now, days.Rows, v.Budget.Monthly)
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
	byAgent, err := report(sandbox.CostByAgent)
	if err != nil {
		return err
	}
	v.Agents = sharesOf(byAgent.Rows, func(r sandbox.CostRow) string { return r.AgentDID })
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
		all[i].Share = newShare(float64(all[i].Spent()), float64(total))
	}
	return all
}

// dayChart shows the days of a month as bars: 620 by 160 units.
type dayChart struct {
	Bars []bar
	// Highest is the value of the highest bar.
	Highest sandbox.NanoUSD
	Labels  []label
}

// bar is one day.
type bar struct{ X, Y, Width, Height float64 }

// label is a day's number below the chart.
type label struct {
	X    float64
	Text string
}

const (
	chartWidth  = 620.0
	chartHeight = 140.0
)

// newDayChart draws a month. It returns nil without costs.
func newDayChart(month time.Time, rows []sandbox.CostRow) *dayChart {
	c, byDay := &dayChart{}, map[string]sandbox.NanoUSD{}
	for _, r := range rows {
		byDay[r.Day] = r.Spent()
		c.Highest = max(c.Highest, r.Spent())
	}
	if c.Highest == 0 {
		return nil
	}
	n := month.AddDate(0, 1, -1).Day()
	step := chartWidth / float64(n)
	for i := range n {
		x, cost := step*float64(i), byDay[month.AddDate(0, 0, i).Format(dayLayout)]
		if h := chartHeight * float64(cost) / float64(c.Highest); cost > 0 {
			c.Bars = append(c.Bars,
				bar{X: round(x + 2), Y: round(chartHeight - max(h, 1)), Width: round(step - 4), Height: round(max(h, 1))})
		}
	}
	c.Labels = dayLabels(month)
	return c
}

// dayLabels returns the numbers below a chart of days.
func dayLabels(month time.Time) (labels []label) {
	n := month.AddDate(0, 1, -1).Day()
	step := chartWidth / float64(n)
	for i := range n {
		if i == 0 || (i+1)%5 == 0 {
			labels = append(labels, label{round(step * (float64(i) + .5)), itoa(int64(i + 1))})
		}
	}
	return labels
}
