package dashboard

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What the bars of the days can be made of.
const (
	stackEnvironments = "by environment"
	stackKinds        = "sandboxes and models"
)

// stackedEnvironments is how many environments have a colour of their own, by descending costs. Each needs a query.
const stackedEnvironments = 4

// dayChart shows the days of a month as stacked bars: 620 by 160 units.
type dayChart struct {
	Bars []bar
	// Highest is the value of the highest day.
	Highest sandbox.NanoUSD
	Labels  []label
	Parts   []part
}

// bar is a part of one day. Class is its colour.
type bar struct {
	X, Y, Width, Height float64
	Class, Title        string
}

// label is a day's number below the chart.
type label struct {
	X    float64
	Text string
}

// part is what bars of one colour stand for, by day.
type part struct {
	Name, Class string
	Total       sandbox.NanoUSD
	days        map[string]sandbox.NanoUSD
}

const (
	chartWidth  = 620.0
	chartHeight = 140.0
)

// newPart adds up the rows of a part.
func newPart(name, class string, rows []sandbox.CostRow, amount func(sandbox.CostRow) sandbox.NanoUSD) part {
	one := part{Name: name, Class: class, days: map[string]sandbox.NanoUSD{}}
	for _, r := range rows {
		one.days[r.Day] += amount(r)
		one.Total += amount(r)
	}
	return one
}

// stack splits the days of a query: into sandboxes and calls of models, or into the environments that cost most and the
// others.
func (p *page) stack(by string, q sandbox.CostQuery, days []sandbox.CostRow, environments []costRow) ([]part, error) {
	if by != stackEnvironments {
		return []part{
			newPart("Sandboxes", "part-1", days, func(r sandbox.CostRow) sandbox.NanoUSD { return r.Gross }),
			newPart("Calls of models", "part-2", days, func(r sandbox.CostRow) sandbox.NanoUSD { return r.LLM.Cost }),
		}, nil
	}
	var parts []part
	others := newPart("Others", "part-others", days, sandbox.CostRow.Spent)
	q.GroupBy = sandbox.CostByDay
	for i, e := range environments[:min(len(environments), stackedEnvironments)] {
		q.EnvironmentID = e.EnvironmentID
		report, err := p.service.Costs(p.ctx, q)
		if err != nil {
			return nil, err
		}
		one := newPart(e.EnvironmentID, "part-"+itoa(int64(i+1)), report.Rows, sandbox.CostRow.Spent)
		for day, amount := range one.days {
			others.days[day] -= amount
		}
		others.Total -= one.Total
		parts = append(parts, one)
	}
	if len(environments) > stackedEnvironments {
		parts = append(parts, others)
	}
	return parts, nil
}

// newDayChart draws a month. It returns nil without costs.
func newDayChart(month time.Time, rows []sandbox.CostRow, parts []part) *dayChart {
	c := &dayChart{}
	for _, r := range rows {
		c.Highest = max(c.Highest, r.Spent())
	}
	if c.Highest == 0 {
		return nil
	}
	for _, one := range parts {
		if one.Total > 0 {
			c.Parts = append(c.Parts, one)
		}
	}
	n := month.AddDate(0, 1, -1).Day()
	step := chartWidth / float64(n)
	for i := range n {
		day, y := month.AddDate(0, 0, i), chartHeight
		for _, one := range c.Parts {
			cost := one.days[day.Format(dayLayout)]
			if cost <= 0 {
				continue
			}
			h := max(chartHeight*float64(cost)/float64(c.Highest), 1)
			y -= h
			c.Bars = append(c.Bars, bar{X: round(step*float64(i) + 2), Y: round(y), Width: round(step - 4), Height: round(h),
				Class: one.Class, Title: day.Format("2 January") + ", " + one.Name + ": " + usd(cost)})
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
