package dashboard

import (
	"fmt"
	"math"
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
	// Limit is at what height the limit lies; Above: it is above the chart, or there is none.
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
	points2 := make([]point2, len(points))
	for i, p := range points {
		x := lineWidth
		if last.After(first) {
			x = lineWidth * float64(p.At.Sub(first)) / float64(last.Sub(first))
		}
		points2[i] = point2{x, lineHeight - lineHeight*p.Value/top}
	}
	if len(points2) == 1 { // a line through the one that there is
		points2 = append([]point2{{0, points2[0].y}}, points2...)
	}
	l := line{Name: name, Path: pathOf(points2), Limit: lineHeight - lineHeight*limit/top, Above: limit > top || limit <= 0}
	l.Area = l.Path + fmt.Sprintf("L%.1f %.1fL0 %.1fZ", lineWidth, lineHeight, lineHeight)
	return l
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

// round keeps a tenth of a unit: no eye sees less.
func round(x float64) float64 { return math.Round(x*10) / 10 }
