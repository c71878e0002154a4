package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
)

// Meter tracks how much of a sandbox's CPU time is counted. Backends count it from the sandbox's last start.
type Meter struct {
	// Boot is the backend's number of the boot that usage was last counted for, 0 if none.
	Boot int64 `gorm:"column:incarnation"`
	// CPUMark is the last counted reading.
	CPUMark micro.Span
}

// Read counts a reading, and returns the usage since the last one. A lower reading belongs to a new boot.
func (m *Meter) Read(reading micro.Span) (used micro.Span) {
	if used = reading - m.CPUMark; used < 0 {
		used = reading
	}
	m.CPUMark = reading
	return used
}

// Restart records that the backend counts from zero again. If the backend numbers boots, its record shows
// that.
func (m *Meter) Restart() {
	if m.Boot == 0 {
		m.CPUMark = 0
	}
}

// Begins records a boot that the backend reported, and returns whether it is new.
func (m *Meter) Begins(i driver.Boot) bool {
	if i.Number <= m.Boot {
		return false
	}
	*m = Meter{Boot: i.Number}
	return true
}
