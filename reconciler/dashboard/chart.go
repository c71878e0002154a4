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
	// Apart means that there is a gap before the point.
	Apart bool
}

// line is a chart of values over time, 300 by 60 units. A table beside it shows the same values.
type line struct {
	Name string
	// Highest is the formatted maximum with the limit; "" without values.
	Highest string
	// Path is the path of the line, with gaps. Area is the same path closed at the bottom.
	Path, Area string
	// Limit is the height of the limit. Above means that the limit is above the chart, or that there is none.
	Limit float64
	Above bool
}

const (
	lineWidth  = 300.0
	lineHeight = 60.0
)

// newLine draws points between two times, from 0 to the maximum. write formats a value.
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

// add draws points without a gap.
func (l *line) add(piece []point2) {
	if len(piece) == 0 {
		return
	}
	if len(piece) == 1 { // a visible dot
		piece = []point2{{max(piece[0].x-1, 0), piece[0].y}, piece[0]}
	}
	path := pathOf(piece)
	l.Path += path
	l.Area += path + fmt.Sprintf("L%.1f %.1fL%.1f %.1fZ", piece[len(piece)-1].x, lineHeight, piece[0].x, lineHeight)
}

// point2 is a point of a chart.
type point2 struct{ x, y float64 }

// pathOf returns the SVG path through points.
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

// spentChart shows the costs of a month by day against its budget: 620 by 140 units.
type spentChart struct {
	Path, Area string
	// Limit is the height of the budget. Pace is the line of even spending over the month.
	Limit float64
	Pace  string
	// Even is the amount of even spending up to now.
	Even   sandbox.NanoUSD
	Labels []label
}

// newSpentChart draws the days of the current month up to now. The scale ends at the budget or at the costs beyond it.
func newSpentChart(month, now time.Time, days []sandbox.CostRow, budget sandbox.NanoUSD) *spentChart {
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

// round rounds to a tenth of a unit.
func round(x float64) float64 { return math.Round(x*10) / 10 }
