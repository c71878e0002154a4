package chart

import "math"

// Meter is a bar with two parts, drawn by the template part "meter", 100 units wide.
type Meter struct {
	Used, Also float64 // widths; together at most 100
	// Percent is the used share, which may exceed 100.
	Percent int
	neutral bool
}

// NewMeter returns the meter of two amounts and their whole.
func NewMeter(used, also, whole float64) Meter {
	if whole <= 0 {
		return Meter{}
	}
	m := Meter{Used: max(0, min(100, 100*used/whole)), Percent: int(100 * used / whole)}
	m.Also = max(0, min(100-m.Used, 100*also/whole))
	return m
}

// From is the start of the second part.
func (m Meter) From() float64 { return m.Used }

// Tone is the colour of the meter.
func (m Meter) Tone() string {
	switch {
	case m.neutral:
		return "good"
	case m.Percent >= 100:
		return "bad"
	case m.Percent >= 80:
		return "warn"
	default:
		return "good"
	}
}

// NewShare returns a meter of a share, without a colour.
func NewShare(part, whole float64) Meter {
	m := NewMeter(part, 0, whole)
	m.Percent, m.neutral = int(math.Round(m.Used)), true
	return m
}
