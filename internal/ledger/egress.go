package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// EgressCursor is a row of egress_cursors: how far the log of an environment's gateway is recorded as events.
type EgressCursor struct {
	Instance      string `gorm:"primaryKey"`
	EnvironmentID string `gorm:"primaryKey"`
	Run           int64
	Line          int64
}

// Position returns the last recorded line.
func (c EgressCursor) Position() sandbox.GatewayPosition {
	return sandbox.GatewayPosition{Run: c.Run, Line: c.Line}
}

// EgressCursor returns how far the log of an environment's gateway is recorded; the zero position if nothing
// is.
func (tx *Tx) EgressCursor(instance, environmentID string) (EgressCursor, error) {
	c, err := storage.First[EgressCursor](tx, "instance = ? AND environment_id = ?", instance, environmentID)
	if err != nil || c == nil {
		return EgressCursor{Instance: instance, EnvironmentID: environmentID}, err
	}
	return *c, nil
}

// SaveEgressCursor stores how far it is recorded.
func (tx *Tx) SaveEgressCursor(c EgressCursor) error { return storage.Save(tx, &c) }
