package chart

import (
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Days shows the days of a month as stacked bars: 620 by 160 units.
type Days struct {
	Bars []Bar
	// Highest is the value of the highest day.
	Highest sandbox.NanoUSD
	Labels  []Label
	Parts   []Part
}

// Bar is a part of one day. Class is its colour.
type Bar struct {
	X, Y, Width, Height float64
	Class, Title        string
}

// Label is a day's number below the chart.
type Label struct {
	X    float64
	Text string
}

// Part has the amounts of the bars of one colour, by day.
type Part struct {
	Name, Class string
	Total       sandbox.NanoUSD
	days        map[string]sandbox.NanoUSD
}

// NewPart adds up the rows of a part.
func NewPart(name, class string, rows []sandbox.CostRow, amount func(sandbox.CostRow) sandbox.NanoUSD) Part {
	one := Part{Name: name, Class: class, days: map[string]sandbox.NanoUSD{}}
	for _, r := range rows {
		one.days[r.Day] += amount(r)
		one.Total += amount(r)
	}
	return one
}

// Remove subtracts the amounts of another part.
func (p *Part) Remove(other Part) {
	for day, amount := range other.days {
		p.days[day] -= amount
	}
	p.Total -= other.Total
}

// NewDays draws a month. It returns nil without costs.
func NewDays(month time.Time, rows []sandbox.CostRow, parts []Part) *Days {
	c := &Days{}
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
			cost := one.days[day.Format(time.DateOnly)]
			if cost <= 0 {
				continue
			}
			h := max(chartHeight*float64(cost)/float64(c.Highest), 1)
			y -= h
			c.Bars = append(c.Bars, Bar{X: round(step*float64(i) + 2), Y: round(y), Width: round(step - 4), Height: round(h),
				Class: one.Class, Title: day.Format("2 January") + ", " + one.Name + ": " + format.USD(cost)})
		}
	}
	c.Labels = dayLabels(month)
	return c
}

// dayLabels returns the numbers below a chart of days.
func dayLabels(month time.Time) (labels []Label) {
	n := month.AddDate(0, 1, -1).Day()
	step := chartWidth / float64(n)
	for i := range n {
		if i == 0 || (i+1)%5 == 0 {
			labels = append(labels, Label{round(step * (float64(i) + .5)), strconv.Itoa(i + 1)})
		}
	}
	return labels
}
