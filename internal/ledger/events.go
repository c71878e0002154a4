package ledger

import (
	"encoding/json"
	"strings"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Event is a row of events.
type Event struct {
	ID            int64 `gorm:"primaryKey"`
	EnvironmentID string
	LeaseID       string
	SandboxID     string
	Generation    int64
	Sequence      int64
	Type          sandbox.EventType
	At            micro.Time
	Actor         string
	Address       string
	Data          string
}

// Domain converts the event to the domain type.
func (e *Event) Domain() sandbox.Event {
	return sandbox.Event{
		ID:            e.ID,
		Sequence:      e.Sequence,
		SandboxID:     e.SandboxID,
		LeaseID:       e.LeaseID,
		Generation:    e.Generation,
		EnvironmentID: e.EnvironmentID,
		Type:          e.Type,
		At:            e.At.Time(),
		Actor:         e.Actor,
		Address:       e.Address,
		Data:          json.RawMessage(e.Data),
	}
}

// AppendSandboxEvent appends an event to a sandbox's sequence, within an update of the sandbox. If the event leads to
// another state, the sandbox enters that state.
func (tx *Tx) AppendSandboxEvent(s *Sandbox, t sandbox.EventType, data any) error {
	if !tx.isUpdated(s) {
		return sandbox.Errorf(sandbox.Internal, "event %s of sandbox %s is appended outside of an update", t, s.ID)
	}
	s.LastSequence++
	s.Status.Follow(t, tx.Now)
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
	actor := storage.ActorOf(tx)
	e.At, e.Actor, e.Address = tx.Now, actor.Name, actor.Address
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

var appendEvents = storage.InsertInto("events", "environment_id", "lease_id", "sandbox_id", "generation", "sequence",
	"type",
	"at", "actor", "address", "data")

// flushEvents stores the events of a whole commit together: they are never read in the transaction
// that appends them.
func (tx *Tx) flushEvents() error {
	_, err := storage.BulkExec(tx, "appending events", appendEvents, tx.events, func(list []any, e *Event) []any {
		return append(list, e.EnvironmentID, e.LeaseID, e.SandboxID, e.Generation, e.Sequence, string(e.Type), int64(e.At),
			e.Actor, e.Address, e.Data)
	})
	return err
}

// Feed says where the ledger's events begin and end, as of a transaction that reads.
type Feed struct {
	// Last is the id of the latest event.
	Last int64
	// Purged: not all events up to this id are retained.
	Purged int64
}

// Feed returns where the ledger's events begin and end, without those that its own transaction has appended.
func (tx *Tx) Feed() (Feed, error) {
	var f Feed
	err := tx.db.Raw("SELECT coalesce((SELECT max(id) FROM events), 0) AS last, purged_event_id AS purged FROM ledgers").
		Scan(&f).Error
	f.Last = max(f.Last, f.Purged)
	return f, storage.Error("reading events", err)
}

// Events returns events in the order of the filter; see sandbox.EventFilter for the errors.
func (tx *Tx) Events(f sandbox.EventFilter) ([]sandbox.Event, error) {
	if err := tx.checkAnchor(f); err != nil {
		return nil, err
	}
	rows, err := storage.Find[Event](tx.selectEvents(f))
	if err != nil {
		return nil, err
	}
	events := make([]sandbox.Event, len(rows))
	for i := range rows {
		events[i] = rows[i].Domain()
	}
	return events, nil
}

// selectEvents names its columns so that each filter has an index on SQLite.
func (tx *Tx) selectEvents(f sandbox.EventFilter) *gorm.DB {
	q, order := tx.db.Where("id > ?", f.AfterID).Limit(storage.PageSize(f.Limit)), "id"
	if f.BeforeID != 0 {
		q = q.Where("id < ?", f.BeforeID)
	}
	if f.SandboxID != "" {
		// Ids are in the same order.
		q, order = q.Where("sandbox_id = ? AND sandbox_id <> '' AND sequence > ?", f.SandboxID, f.FromSequence), "sequence"
	}
	if f.LeaseID != "" {
		q = q.Where("lease_id = ?", f.LeaseID)
		if _, environment, err := sandbox.ParseLeaseID(f.LeaseID); err == nil && f.EnvironmentID == "" {
			f.EnvironmentID = environment
		}
	}
	if f.EnvironmentID != "" {
		q = q.Where("environment_id = ?", f.EnvironmentID)
	}
	if f.Labels != "" {
		q = q.Where(tx.db.
			Where("sandbox_id IN (?)", tx.whereLabels(tx.db.Table("sandboxes").Select("id"), sandboxLabels, f.Labels)).
			Or("sandbox_id = '' AND environment_id IN (?)",
				tx.whereLabels(tx.db.Table("environments").Select("id"), environmentLabels, f.Labels)))
	}
	if prefix, all := strings.CutSuffix(f.Type, "*"); all {
		q = q.Where("substr(type, 1, ?) = ?", len(prefix), prefix)
	} else if f.Type != "" {
		q = q.Where("type = ?", f.Type)
	}
	if f.Latest {
		order += " DESC"
	}
	return q.Order(order)
}

// checkAnchor refuses an anchor that was never issued, or after which not all events are retained.
func (tx *Tx) checkAnchor(f sandbox.EventFilter) error {
	if err := f.Labels.Validate(); err != nil {
		return err
	}
	if f.FromSequence != 0 && f.SandboxID == "" {
		return sandbox.InvalidFields("event filter",
			[]sandbox.Field{{Name: "from_sequence", Problem: "needs sandbox_id: sequences belong to one sandbox"}})
	}
	if f.Latest && (f.FromSequence != 0 || f.AfterID != 0) {
		return sandbox.InvalidFields("event filter", []sandbox.Field{{
			Name:    "latest",
			Problem: "goes back from the latest event, or from before_id: leave out from_sequence and after_id",
		}})
	}
	if f.BeforeID < 0 || f.BeforeID != 0 && !f.Latest {
		return sandbox.InvalidFields("event filter",
			[]sandbox.Field{{Name: "before_id", Problem: "must be the id of an event, and needs latest"}})
	}
	feed, err := tx.Feed()
	switch {
	case err != nil:
		return err
	case f.AfterID < 0 || f.AfterID > feed.Last:
		return sandbox.Errorf(sandbox.Invalid,
			"this ledger has issued event ids up to %d, and %d is not one of them: is it of another ledger?",
			feed.Last, f.AfterID)
	case f.SandboxID != "":
		return tx.checkSequence(f)
	case f.AfterID != 0 && f.AfterID < feed.Purged:
		return sandbox.Errorf(sandbox.EventSequenceExpired, "the events after id %d are no longer all retained: read "+
			"leases and environments again, then follow from the last_event_id that they carry (now %d)", f.AfterID, feed.Last)
	}
	return nil
}

// checkSequence refuses an anchor in a sandbox's sequence that was never issued, or whose successor
// is not retained.
func (tx *Tx) checkSequence(f sandbox.EventFilter) error {
	s, err := tx.KnownSandbox(f.SandboxID)
	if err != nil {
		return err
	}
	from := f.FromSequence
	if from < 0 || from > s.LastSequence {
		return sandbox.Errorf(sandbox.Invalid, "sandbox %s has issued sequences 1 to %d, and %d is not one of them",
			s.ID, s.LastSequence, from)
	}
	if from == s.LastSequence || s.Tombstone != nil && f.AfterID >= s.Tombstone.LastEventID {
		return nil
	}
	var oldest int64
	err = tx.db.Model(&Event{}).Select("coalesce(min(sequence), 0)").
		Where("sandbox_id = ? AND sandbox_id <> ''", s.ID).Scan(&oldest).Error
	if err != nil {
		return storage.Error("reading events", err)
	}
	if oldest == 0 || from+1 < oldest {
		return sandbox.Errorf(sandbox.EventSequenceExpired,
			"the events of sandbox %s after sequence %d are no longer retained: read the lease, then follow from sequence %d",
			s.ID, from, s.LastSequence)
	}
	return nil
}
