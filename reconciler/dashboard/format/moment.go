package format

import "time"

// Moment is a time on a page: relative to now, with the exact time as a tooltip.
type Moment struct {
	At  time.Time
	Now time.Time
}

// Known reports whether the time is set.
func (m Moment) Known() bool { return !m.At.IsZero() }

// ISO formats the time for programs.
func (m Moment) ISO() string { return m.At.Format(time.RFC3339) }

// Exact formats the exact time for people.
func (m Moment) Exact() string { return m.At.Format("2 January 2006, 15:04:05 MST") }

// Relative formats the time relative to now.
func (m Moment) Relative() string {
	d := m.At.Sub(m.Now)
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return Span(d) + " ago"
	default:
		return "in " + Span(d)
	}
}
