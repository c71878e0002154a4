package dashboard

import "math"

// meter is a bar of two parts in a whole, as the SVG of the template part "meter" draws it, 100 units wide.
type meter struct {
	Used, Also float64 // widths; together at most 100
	// Percent is what is used of the whole, which may be more than 100.
	Percent int
	neutral bool
}

func newMeter(used, also, whole float64) meter {
	if whole <= 0 {
		return meter{}
	}
	m := meter{Used: max(0, min(100, 100*used/whole)), Percent: int(100 * used / whole)}
	m.Also = max(0, min(100-m.Used, 100*also/whole))
	return m
}

// From is where the second part begins.
func (m meter) From() float64 { return m.Used }

// Tone says how the meter is coloured.
func (m meter) Tone() string {
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

// newShare is a meter of a part that is good or bad by nothing.
func newShare(part, whole float64) meter {
	m := newMeter(part, 0, whole)
	m.Percent, m.neutral = int(math.Round(m.Used)), true
	return m
}
