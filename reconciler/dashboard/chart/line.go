package chart

import (
	"fmt"
	"time"
)

// Point is one value over time.
type Point struct {
	At    time.Time
	Value float64
	// Apart means that there is a gap before the point.
	Apart bool
}

// Line is a chart of values over time, 300 by 60 units. A table beside it shows the same values.
type Line struct {
	Name string
	// Highest is the formatted maximum with the limit; "" without values.
	Highest string
	// Path is the path of the line, with gaps. Area is the same path closed at the bottom.
	Path, Area string
	// Limit is the height of the limit. Above means that the limit is above the chart, or not set.
	Limit float64
	Above bool
}

const (
	lineWidth  = 300.0
	lineHeight = 60.0
)

// NewLine draws points between two times, from 0 to the maximum. write formats a value.
func NewLine(name string, points []Point, from, to time.Time, limit int64, write func(int64) string) Line {
	highest := 0.0
	for _, p := range points {
		highest = max(highest, p.Value)
	}
	top := highest * 1.25
	if top == 0 {
		top = 1
	}
	l := Line{Name: name, Limit: lineHeight - lineHeight*float64(limit)/top, Above: float64(limit) > top || limit <= 0}
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
func (l *Line) add(piece []point2) {
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
