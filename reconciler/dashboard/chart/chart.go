// Package chart draws figures as SVG: lines over time, costs by day, meters and the lives of leases. Templates add the
// elements around them.
package chart

import (
	"fmt"
	"math"
	"strings"
)

// The size of the charts of a month, in units of their SVG.
const (
	chartWidth  = 620.0
	chartHeight = 140.0
)

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

// round rounds to a tenth of a unit.
func round(x float64) float64 { return math.Round(x*10) / 10 }
