package ledger

import (
	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// moveClock converts the old clock's times of live sandboxes, and future times, to the stepped clock. Ended
// usage stays, because its length is right.
func (tx *Tx) moveClock(step micro.Span) error {
	const living = "phase <> 'gone'"
	moves := []struct {
		table, where string
		columns      []string
	}{
		{"sandboxes", living, []string{"leased_at", "ready_at", "last_activity", "observed_at", "pooled_at",
			"hard_deadline", "due_at", "claimed_until", "changed_at", "down_since", "kept_until",
			"state_changed_at", "state_saved_at", "state_tried_at", "state_failing_since"}},
		{"holds", "1 = 1", []string{"until"}},
		{"execs", "state = 'running'", []string{"started_at", "cancel_at", "held_until"}},
		{"processes", "state IN ('pending', 'running')", []string{"started_at", "exited_at", "kill_at", "due_at"}},
		{"usage_periods", "rolled_at = 0 AND sandbox_id IN (SELECT id FROM sandboxes WHERE " + living + ")",
			[]string{"started_at", "ended_at"}},
		{"environments", "status IN ('open', 'ended')", []string{"opened_at", "pool_due_at"}},
		{"environments", "claimed_until > 0", []string{"claimed_until"}},
		{"doomed_objects", "1 = 1", []string{"delete_at"}},
		{"drift_findings", "resolved_at = 0", []string{"first_seen_at", "last_seen_at"}},
	}
	for _, m := range moves {
		set := make(map[string]any, len(m.columns))
		for _, column := range m.columns { // 0 means "not yet" and stays
			set[column] = gorm.Expr("CASE WHEN "+column+" = 0 THEN 0 ELSE "+column+" + ? END", int64(step))
		}
		if err := tx.db.Table(m.table).Where(m.where).Updates(set).Error; err != nil {
			return storage.Error("moving "+m.table+" by a step of the clock", err)
		}
	}
	return tx.append(&Event{Type: sandbox.EventClockStepped}, ClockStep{Seconds: step.Duration().D().Seconds()})
}

// ClockStep is the data of sandbox.EventClockStepped.
type ClockStep struct {
	Seconds float64 `json:"seconds"`
}
