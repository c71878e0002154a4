package dashboard

import (
	"cmp"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// agentsPerPage is how many agents a page of costs lists, those that cost most.
	agentsPerPage = 20
	monthLayout   = "2006-01"
	dayLayout     = "2006-01-02"
)

// costsPage is what sandboxes cost in one calendar month, UTC.
type costsPage struct {
	scope
	Month    time.Time
	Previous string
	Next     string // "" for the month that goes on
	Total    sandbox.CostRow
	Days     *dayChart // nil where there was no use
	ByDay    []costRow
	// Budget is the chosen environment's in the month that goes on.
	Budget        *budgetView
	Spent         *spentChart // against Budget; nil without one
	Environments  []costRow   // none where one is chosen
	Agents        []costRow
	MoreAgents    int
	PriceBooks    []sandbox.PriceBook
	CurrentlyOnly bool // the month goes on
}

// costRow is a line of costs.
type costRow struct {
	sandbox.CostRow
	Name  string
	Share meter // of the total
	// Budget is the environment's in the month that goes on, nil where it has none.
	Budget *budgetView
}

// costs shows what a month has cost: by day, environment and agent.
func costs(p *page) error {
	s, ok, err := p.scope()
	if err != nil {
		return err
	}
	v := costsPage{scope: s, Month: sandbox.MonthOf(p.now())}
	if text := p.query("month"); text != "" {
		if v.Month, err = time.Parse(monthLayout, text); err != nil {
			return sandbox.InvalidFields("the page's address", []sandbox.Field{{Name: "month", Problem: "must be a month such as 2026-11"}})
		}
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
	if ok && !v.Month.After(now) {
		if err := p.addCosts(&v, now); err != nil {
			return err
		}
	}
	return p.show("costs", "Costs", "costs", "", v)
}

// addCosts adds the figures of the page's month.
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

// budgets returns where environments stand in the budgets of the month that goes on, by id.
func (p *page) budgets(v *costsPage) (map[string]*budgetView, error) {
	all := map[string]*budgetView{}
	if !v.CurrentlyOnly {
		return all, nil
	}
	list, err := p.service.ListEnvironments(p.ctx)
	for _, e := range list {
		if b := budgetOf(e); b != nil {
			all[e.ID] = b
		}
	}
	return all, err
}

// sharesOf returns lines of costs, the highest first.
func sharesOf(rows []sandbox.CostRow, name func(sandbox.CostRow) string) []costRow {
	all := make([]costRow, len(rows))
	for i, r := range rows {
		all[i] = costRow{CostRow: r, Name: name(r)}
	}
	slices.SortStableFunc(all, func(a, b costRow) int { return cmp.Compare(b.Gross, a.Gross) })
	var total sandbox.NanoUSD
	for _, r := range rows {
		total += r.Gross
	}
	for i := range all {
		all[i].Share = newShare(float64(all[i].Gross), float64(total))
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

// newDayChart draws a month, nil where nothing cost anything.
func newDayChart(month time.Time, rows []sandbox.CostRow) *dayChart {
	c, byDay := &dayChart{}, map[string]sandbox.NanoUSD{}
	for _, r := range rows {
		byDay[r.Day] = r.Gross
		c.Highest = max(c.Highest, r.Gross)
	}
	if c.Highest == 0 {
		return nil
	}
	n := month.AddDate(0, 1, -1).Day()
	step := chartWidth / float64(n)
	for i := range n {
		x, cost := step*float64(i), byDay[month.AddDate(0, 0, i).Format(dayLayout)]
		if h := chartHeight * float64(cost) / float64(c.Highest); cost > 0 {
			c.Bars = append(c.Bars, bar{X: round(x + 2), Y: round(chartHeight - max(h, 1)), Width: round(step - 4), Height: round(max(h, 1))})
		}
	}
	c.Labels = dayLabels(month)
	return c
}

// dayLabels are the numbers below a chart of a month's days.
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
