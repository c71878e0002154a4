package ledger

import (
	"time"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const living = "phase <> 'gone'"

// steppedTimes are the columns that move with the clock: times of live sandboxes, times that they are compared with,
// and future times. Ended usage stays, because its length is right. Times within companion_states move too.
var steppedTimes = []struct {
	table, where string
	columns      []string
}{
	{"sandboxes", living, []string{"leased_at", "ready_at", "last_activity", "observed_at", "pooled_at",
		"hard_deadline", "due_at", "claimed_until", "changed_at", "down_since", "ended_at", "kept_until",
		"secrets_owed", "renewal_owed", "renewed_at",
		"state_changed_at", "state_saved_at", "state_tried_at", "state_failing_since"}},
	{"holds", "1 = 1", []string{"until"}},
	{"execs", "state = 'running'", []string{"started_at", "cancel_at", "held_until"}},
	{"kept_outputs", "1 = 1", []string{"kept_at"}},
	{"processes", "state IN ('pending', 'running')", []string{"started_at", "exited_at", "kill_at", "due_at"}},
	{"usage_periods", "rolled_at = 0 AND sandbox_id IN (SELECT id FROM sandboxes WHERE " + living + ")",
		[]string{"started_at", "ended_at"}},
	{"environments", "status IN ('open', 'ended')", []string{"opened_at", "pool_due_at"}},
	{"environments", "claimed_until > 0", []string{"claimed_until"}},
	{"doomed_objects", "1 = 1", []string{"delete_at"}},
	{"drift_findings", "resolved_at = 0", []string{"first_seen_at", "last_seen_at"}},
	{"ledgers", "restored_at > 0", []string{"restored_at"}},
}

// moveClock converts times of the old clock to the stepped clock.
func (tx *Tx) moveClock(step micro.Span) error {
	for _, m := range steppedTimes {
		set := make(map[string]any, len(m.columns))
		for _, column := range m.columns { // 0 means "not yet" and stays
			set[column] = gorm.Expr("CASE WHEN "+column+" = 0 THEN 0 ELSE "+column+" + ? END", int64(step))
		}
		if err := tx.db.Table(m.table).Where(m.where).Updates(set).Error; err != nil {
			return storage.Error("moving "+m.table+" by a step of the clock", err)
		}
	}
	if err := tx.moveCompanions(step.Duration().D()); err != nil {
		return err
	}
	return tx.append(&Event{Type: sandbox.EventClockStepped}, ClockStep{Seconds: step.Duration().D().Seconds()})
}

// moveCompanions converts the times of companions.
func (tx *Tx) moveCompanions(step time.Duration) error {
	rows, err := storage.Find[Sandbox](tx.db.Select("id", "companion_states").
		Where(living + " AND companion_states NOT IN ('{}', 'null')"))
	if err != nil {
		return err
	}
	for i := range rows {
		for name, is := range rows[i].CompanionStates {
			for _, at := range []*time.Time{&is.Since, &is.RestartAt, &is.CheckAt} {
				if !at.IsZero() {
					*at = at.Add(step)
				}
			}
			rows[i].CompanionStates[name] = is
		}
		if err := tx.db.Select("companion_states").Updates(&rows[i]).Error; err != nil {
			return storage.Error("moving companions by a step of the clock", err)
		}
	}
	return nil
}

// ClockStep is the data of sandbox.EventClockStepped.
type ClockStep struct {
	Seconds float64 `json:"seconds"`
}
