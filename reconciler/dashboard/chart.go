package dashboard

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// point is one value over time.
type point struct {
	At    time.Time
	Value float64
	// Apart: nothing is known of the time since the point before.
	Apart bool
}

// line is a chart of values over time, 300 by 60 units, beside which the same values stand in a table.
type line struct {
	Name string
	// Highest is the highest value and the limit, as people read them; "" where there is no value.
	Highest string
	// Path is that of the line, interrupted where nothing is known, Area the same closed at the bottom.
	Path, Area string
	// Limit is at what height the limit lies; Above: it is above the chart, or there is none.
	Limit float64
	Above bool
}

const (
	lineWidth  = 300.0
	lineHeight = 60.0
)

// newLine draws points between two moments, from 0 to what is highest. write writes a value for people.
func newLine(name string, points []point, from, to time.Time, limit int64, write func(int64) string) line {
	highest := 0.0
	for _, p := range points {
		highest = max(highest, p.Value)
	}
	top := highest * 1.25
	if top == 0 {
		top = 1
	}
	l := line{Name: name, Limit: lineHeight - lineHeight*float64(limit)/top, Above: float64(limit) > top || limit <= 0}
	if len(points) > 0 {
		l.Highest = "at most " + write(int64(highest)) + " of " + write(limit)
	}
	var piece []point2
	for i, p := range points {
		if i > 0 && p.Apart {
			l.add(piece)
			piece = nil
		}
		x := lineWidth * float64(p.At.Sub(from)) / float64(to.Sub(from))
		piece = append(piece, point2{min(max(x, 0), lineWidth), lineHeight - lineHeight*p.Value/top})
	}
	l.add(piece)
	return l
}

// add draws points that hang together.
func (l *line) add(piece []point2) {
	if len(piece) == 0 {
		return
	}
	if len(piece) == 1 { // something to be seen
		piece = []point2{{max(piece[0].x-1, 0), piece[0].y}, piece[0]}
	}
	path := pathOf(piece)
	l.Path += path
	l.Area += path + fmt.Sprintf("L%.1f %.1fL%.1f %.1fZ", piece[len(piece)-1].x, lineHeight, piece[0].x, lineHeight)
}

// point2 is a point of a chart.
type point2 struct{ x, y float64 }

// pathOf is the SVG path from point to point.
func pathOf(points []point2) string {
	var b strings.Builder
	for i, p := range points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", command, p.x, p.y)
	}
	return b.String()
}

// spentChart shows what a month has cost so far, day by day, against its budget: 620 by 140 units.
type spentChart struct {
	Path, Area string
	// Limit is at what height the budget lies. Pace leads there evenly over the month.
	Limit float64
	Pace  string
	// Even is what would be spent by now at that pace.
	Even   sandbox.NanoUSD
	Labels []label
}

// newSpentChart draws the days of a month up to now, one that has begun, below the budget or what was spent beyond it.
func newSpentChart(month, now time.Time, days []sandbox.CostRow, budget sandbox.NanoUSD) *spentChart {
	cost := map[string]sandbox.NanoUSD{}
	var total sandbox.NanoUSD
	for _, r := range days {
		cost[r.Day] = r.Gross
		total += r.Gross
	}
	length := month.AddDate(0, 1, 0).Sub(month)
	x := func(t time.Time) float64 { return chartWidth * float64(t.Sub(month)) / float64(length) }
	y := func(n sandbox.NanoUSD) float64 {
		return chartHeight - chartHeight*float64(n)/(1.1*float64(max(budget, total)))
	}
	points, spent := []point2{{0, chartHeight}}, sandbox.NanoUSD(0)
	for day := month; day.Before(now); day = day.AddDate(0, 0, 1) {
		spent += cost[day.Format(dayLayout)]
		end := day.AddDate(0, 0, 1)
		if end.After(now) {
			end = now
		}
		points = append(points, point2{x(end), y(spent)})
	}
	c := &spentChart{
		Path: pathOf(points), Limit: round(y(budget)), Pace: pathOf([]point2{{0, chartHeight}, {chartWidth, y(budget)}}),
		Even: sandbox.NanoUSD(float64(budget) * float64(now.Sub(month)) / float64(length)), Labels: dayLabels(month),
	}
	c.Area = c.Path + fmt.Sprintf("L%.1f %.1fZ", x(now), chartHeight)
	return c
}

// round keeps a tenth of a unit: no eye sees less.
func round(x float64) float64 { return math.Round(x*10) / 10 }
