package dashboard

import (
	"fmt"
	"strings"
	"time"
)

// point is one value over time.
type point struct {
	At    time.Time
	Value float64
}

// line is a chart of values over time, 300 by 60 units, beside which the same values stand in a table.
type line struct {
	Name string
	// Path is that of the line, Area the same closed at the bottom.
	Path, Area string
	// Limit is at what height the limit lies; Over: it is above the chart.
	Limit float64
	Above bool
}

const (
	lineWidth  = 300.0
	lineHeight = 60.0
)

// newLine draws points, of which there is one at least, from 0 to what is highest.
func newLine(name string, points []point, limit float64) line {
	highest := 0.0
	for _, p := range points {
		highest = max(highest, p.Value)
	}
	top := highest * 1.25
	if top == 0 {
		top = 1
	}
	first, last := points[0].At, points[len(points)-1].At
	var b strings.Builder
	var x, y float64
	for i, p := range points {
		x = lineWidth
		if last.After(first) {
			x = lineWidth * float64(p.At.Sub(first)) / float64(last.Sub(first))
		}
		y = lineHeight - lineHeight*p.Value/top
		if i == 0 && len(points) == 1 {
			fmt.Fprintf(&b, "M0 %.1f", y)
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[b.Len() == 0], x, y)
	}
	l := line{Name: name, Path: b.String(), Limit: lineHeight - lineHeight*limit/top, Above: limit > top || limit <= 0}
	l.Area = l.Path + fmt.Sprintf("L%.1f %.1fL0 %.1fZ", lineWidth, lineHeight, lineHeight)
	return l
}
