package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
)

// Meter says how much of a sandbox's CPU time is counted. Backends count it from the last start of a sandbox.
type Meter struct {
	// Incarnation is the backend's number of the start that usage was counted from last, 0 when none was.
	Incarnation int64
	// CPUMark is the last reading that is counted.
	CPUMark Span
}

// Read counts a reading, and returns what was used since the last one. A lower reading is of a new start.
func (m *Meter) Read(reading Span) (used Span) {
	if used = reading - m.CPUMark; used < 0 {
		used = reading
	}
	m.CPUMark = reading
	return used
}

// Restart notes that the backend counts from zero again. Where it numbers its starts, its record tells that.
func (m *Meter) Restart() {
	if m.Incarnation == 0 {
		m.CPUMark = 0
	}
}

// Begins notes a start that the backend has recorded, and reports whether it is a new one.
func (m *Meter) Begins(i driver.Incarnation) bool {
	if i.Number <= m.Incarnation {
		return false
	}
	*m = Meter{Incarnation: i.Number}
	return true
}
