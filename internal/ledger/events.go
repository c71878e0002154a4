package ledger

import (
	"encoding/json"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// AppendSandboxEvent appends an event to a sandbox's sequence. It changes s.LastSequence, which
// its caller saves in the same transaction.
func (tx *Tx) AppendSandboxEvent(s *Sandbox, t sandbox.EventType, data any) error {
	s.LastSequence++
	return tx.append(&Event{
		EnvironmentID: s.EnvironmentID, LeaseID: s.Lease(), SandboxID: s.ID,
		Generation: s.Generation, Sequence: s.LastSequence, Type: t,
	}, data)
}

// AppendEnvironmentEvent appends an event of an environment.
func (tx *Tx) AppendEnvironmentEvent(environmentID string, t sandbox.EventType, data any) error {
	return tx.append(&Event{EnvironmentID: environmentID, Type: t}, data)
}

func (tx *Tx) append(e *Event, data any) error {
	e.At = tx.Now
	if data != nil {
		b, err := json.Marshal(data)
		if err != nil {
			return sandbox.Errorf(sandbox.Internal, "encoding event %s: %w", e.Type, err)
		}
		e.Data = string(b)
	}
	tx.events = append(tx.events, *e)
	return nil
}

var appendEvents = insertInto("events", "environment_id", "lease_id", "sandbox_id", "generation", "sequence", "type", "at", "data")

// flushEvents stores the events of a whole commit together: they are never read in the transaction
// that appends them.
func (tx *Tx) flushEvents() error {
	_, err := bulkExec(tx, "appending events", appendEvents, tx.events, func(list []any, e *Event) []any {
		return append(list, e.EnvironmentID, e.LeaseID, e.SandboxID, e.Generation, e.Sequence, e.Type, e.At, e.Data)
	})
	return err
}

// Events returns events in ascending order; see sandbox.EventFilter for the errors.
func (tx *Tx) Events(f sandbox.EventFilter) ([]sandbox.Event, error) {
	q := tx.db.Where("id > ?", f.AfterID).Order("id").Limit(pageSize(f.Limit))
	if f.FromSequence != 0 && f.SandboxID == "" {
		return nil, sandbox.InvalidFields("event filter", []sandbox.Field{{Name: "from_sequence", Problem: "needs sandbox_id: sequences belong to one sandbox"}})
	}
	if f.SandboxID != "" {
		if err := tx.checkSequence(f.SandboxID, f.FromSequence); err != nil {
			return nil, err
		}
		q = q.Where("sandbox_id = ? AND sequence > ?", f.SandboxID, f.FromSequence)
	}
	if f.EnvironmentID != "" {
		q = q.Where("environment_id = ?", f.EnvironmentID)
	}
	if f.LeaseID != "" {
		q = q.Where("lease_id = ?", f.LeaseID)
	}
	rows, err := find[Event](q)
	if err != nil {
		return nil, err
	}
	events := make([]sandbox.Event, len(rows))
	for i := range rows {
		events[i] = rows[i].Domain()
	}
	return events, nil
}

// checkSequence refuses an anchor that was never issued, or whose successor is not retained.
func (tx *Tx) checkSequence(sandboxID string, from int64) error {
	s, err := tx.Sandbox(sandboxID)
	if err != nil {
		return err
	}
	if s == nil {
		return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s on this ledger", sandboxID).WithReason(sandbox.ReasonSandboxNotFound)
	}
	if from < 0 || from > s.LastSequence {
		return sandbox.Errorf(sandbox.Invalid, "sandbox %s has issued sequences 1 to %d, and %d is not one of them", sandboxID, s.LastSequence, from)
	}
	var oldest int64
	if err := tx.db.Model(&Event{}).Select("coalesce(min(sequence), 0)").Where("sandbox_id = ?", sandboxID).Scan(&oldest).Error; err != nil {
		return unavailable("reading events", err)
	}
	if from < s.LastSequence && from+1 < oldest || oldest == 0 && from < s.LastSequence {
		return sandbox.Errorf(sandbox.EventSequenceExpired, "the events of sandbox %s after sequence %d are no longer retained: read the lease, then follow from sequence %d", sandboxID, from, s.LastSequence)
	}
	return nil
}
