package chart

import (
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Spent shows the costs of a month by day against its budget: 620 by 140 units.
type Spent struct {
	Path, Area string
	// Limit is the height of the budget. Pace is the line of even spending over the month.
	Limit float64
	Pace  string
	// Even is the amount of even spending up to now.
	Even   sandbox.NanoUSD
	Labels []Label
}

// NewSpent draws the days of the current month up to now. The scale ends at the budget or at the costs beyond it.
func NewSpent(month, now time.Time, days []sandbox.CostRow, budget sandbox.NanoUSD) *Spent {
	cost := map[string]sandbox.NanoUSD{}
	var total sandbox.NanoUSD
	for _, r := range days {
		cost[r.Day] = r.Spent()
		total += r.Spent()
	}
	length := month.AddDate(0, 1, 0).Sub(month)
	x := func(t time.Time) float64 { return chartWidth * float64(t.Sub(month)) / float64(length) }
	y := func(n sandbox.NanoUSD) float64 {
		return chartHeight - chartHeight*float64(n)/(1.1*float64(max(budget, total)))
	}
	points, spent := []point2{{0, chartHeight}}, sandbox.NanoUSD(0)
	for day := month; day.Before(now); day = day.AddDate(0, 0, 1) {
		spent += cost[day.Format(time.DateOnly)]
		end := day.AddDate(0, 0, 1)
		if end.After(now) {
			end = now
		}
		points = append(points, point2{x(end), y(spent)})
	}
	c := &Spent{
		Path: pathOf(points), Limit: round(y(budget)), Pace: pathOf([]point2{{0, chartHeight}, {chartWidth, y(budget)}}),
		Even: sandbox.NanoUSD(float64(budget) * float64(now.Sub(month)) / float64(length)), Labels: dayLabels(month),
	}
	c.Area = c.Path + fmt.Sprintf("L%.1f %.1fZ", x(now), chartHeight)
	return c
}
