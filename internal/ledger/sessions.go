package ledger

import (
	"fmt"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Session is a row of sessions.
type Session struct {
	SandboxID  string `gorm:"primaryKey"`
	ID         string `gorm:"primaryKey"`
	LeaseID    string
	Generation int64
	Asked      SessionAsked `gorm:"serializer:json"`
	EnvNames   []string     `gorm:"serializer:json"`
	// SealedEnv are its variables with their values, nil when it has none or is closed.
	SealedEnv    []byte
	Cwd          string
	RunAs        string
	State        sandbox.SessionState
	CreatedAt    Time `gorm:"autoCreateTime:false"`
	ClosedAt     Time
	LastSequence int64
	// Recorded counts as sandbox.MaxSessionRecording does; IsFull: something was left out.
	Recorded int64
	IsFull   Flag
	// DroppedAt is since when its recording is no longer kept.
	DroppedAt Time

	counted int64 // of Recorded, as the row was read
}

// AfterFind implements gorm's hook.
func (s *Session) AfterFind(*gorm.DB) error {
	s.counted = s.Recorded
	return nil
}

// SessionAsked is what a session was made with, but for values.
type SessionAsked struct {
	EnvNames []string `json:"env_names"`
	Cwd      string   `json:"cwd"`
	User     string   `json:"user"`
}

// Domain returns the session, in which the given command runs, "" when none does.
func (s *Session) Domain(execID string) sandbox.Session {
	return sandbox.Session{
		ID: s.ID, LeaseID: s.LeaseID, Generation: s.Generation, SandboxID: s.SandboxID, EnvNames: s.EnvNames,
		Cwd: s.Cwd, User: s.RunAs, State: s.State, CreatedAt: s.CreatedAt.Time(), ClosedAt: s.ClosedAt.Time(),
		ExecID: execID, LastSequence: s.LastSequence, RecordedBytes: s.Recorded, Full: bool(s.IsFull), DroppedAt: s.DroppedAt.Time(),
	}
}

// SessionEvent is a row of session_events.
type SessionEvent struct {
	SandboxID string
	SessionID string
	Sequence  int64
	At        Time
	Type      sandbox.SessionEventType
	Source    sandbox.EventSource
	ExecID    string
	Data      []byte
}

// Domain returns the event as the domain knows it.
func (e *SessionEvent) Domain() sandbox.SessionEvent {
	return sandbox.SessionEvent{Sequence: e.Sequence, At: e.At.Time(), Type: e.Type, Source: e.Source, ExecID: e.ExecID, Data: e.Data}
}

// Session returns a session of a sandbox, nil when there is none of that id.
func (repo Commands) Session(sandboxID, id string) (*Session, error) {
	return first[Session](repo.tx, "sandbox_id = ? AND id = ?", sandboxID, id)
}

// SessionOf returns a session of a lease, of a generation or else of the latest that has had it; nil when
// there is none.
func (repo Commands) SessionOf(r sandbox.SessionRef) (*Session, error) {
	q := repo.tx.db.Where("lease_id = ? AND id = ?", r.LeaseID, r.ID).Order("generation DESC").Limit(1)
	if r.Generation != 0 {
		q = q.Where("generation = ?", r.Generation)
	}
	rows, err := find[Session](q)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// ListSessions returns the sessions of a lease, the latest first. One is open while its lease has not ended.
func (repo Commands) ListSessions(f sandbox.SessionFilter) ([]Session, error) {
	q := repo.tx.db.Where("lease_id = ?", f.LeaseID).Order("generation DESC, created_at DESC, id").Limit(pageSize(f.Limit))
	const isOpen = "state = 'open' AND EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = sandbox_id AND desired = 'present')"
	switch f.State {
	case "":
	case sandbox.SessionOpen:
		q = q.Where(isOpen)
	default:
		q = q.Where("NOT (" + isOpen + ")")
	}
	return find[Session](q)
}

// OpenSessions returns the open sessions of a sandbox.
func (repo Commands) OpenSessions(sandboxID string) ([]Session, error) {
	return find[Session](repo.tx.db.Where("sandbox_id = ? AND state = 'open'", sandboxID).Order("id"))
}

// SealedSessions returns all sessions that have sealed variables.
func (repo Commands) SealedSessions() ([]Session, error) {
	return find[Session](repo.tx.db.Where("sealed_env IS NOT NULL").Order("sandbox_id, id"))
}

// CreateSession stores a new session.
func (repo Commands) CreateSession(s *Session) error { return repo.tx.create(s) }

// SaveSession stores a changed session, and counts its recording.
func (repo Commands) SaveSession(s *Session) error {
	if err := repo.tx.save(s); err != nil || s.DroppedAt != 0 {
		return err
	}
	counted := s.counted
	s.counted = s.Recorded
	return repo.tx.Commands().countKept(&KeptOutput{SandboxID: s.SandboxID, Kind: keptSession, ID: s.ID, LeaseID: s.LeaseID, Bytes: s.Recorded}, counted)
}

// RunningInSession returns the id of the command that runs in a session, "" when none does.
func (repo Commands) RunningInSession(sandboxID, id string) (string, error) {
	var ids []string
	err := repo.tx.db.Model(&Exec{}).Where("sandbox_id = ? AND session_id = ? AND state = 'running' AND session_id <> ''", sandboxID, id).Limit(1).Pluck("id", &ids).Error
	if err != nil || len(ids) == 0 {
		return "", unavailable("looking for commands", err)
	}
	return ids[0], nil
}

var appendSessionEvents = insertInto("session_events", "sandbox_id", "session_id", "sequence", "at", "type", "source", "exec_id", "data")

// AppendSessionEvents adds events to a session's recording, as long as there is room; then it says that
// there is no more, and nothing else is added; nor is anything to a recording that was dropped. It gives them their sequences, and changes the session,
// which its caller stores.
func (repo Commands) AppendSessionEvents(s *Session, events ...SessionEvent) error {
	if s.DroppedAt != 0 {
		return nil
	}
	var fitting []SessionEvent
	for i := range events {
		if s.IsFull {
			break
		}
		e := events[i]
		if s.Recorded+sessionEventSize(&e) > sandbox.MaxSessionRecording {
			s.IsFull = true
			e = SessionEvent{At: e.At, Type: sandbox.SessionSystem, Source: sandbox.SourceSystem, ExecID: e.ExecID,
				Data: fmt.Appendf(nil, "the recording has %d bytes and is full: no more is recorded; what commands write is kept with each (execs)", s.Recorded)}
		}
		s.LastSequence++
		s.Recorded += sessionEventSize(&e)
		e.SandboxID, e.SessionID, e.Sequence = s.SandboxID, s.ID, s.LastSequence
		fitting = append(fitting, e)
	}
	_, err := bulkExec(repo.tx, "recording a session", appendSessionEvents, fitting, func(list []any, e *SessionEvent) []any {
		return append(list, e.SandboxID, e.SessionID, e.Sequence, e.At, e.Type, e.Source, e.ExecID, e.Data)
	})
	return err
}

func sessionEventSize(e *SessionEvent) int64 { return int64(len(e.Data)) + sandbox.SessionEventCost }

// SessionEvents returns events of a session after a sequence.
func (repo Commands) SessionEvents(s *Session, after int64, limit int) ([]SessionEvent, error) {
	if limit <= 0 || limit > sandbox.MaxSessionPage {
		limit = sandbox.MaxSessionPage
	}
	return find[SessionEvent](repo.tx.db.Where("sandbox_id = ? AND session_id = ? AND sequence > ?", s.SandboxID, s.ID, after).Order("sequence").Limit(limit))
}

// RecordedOf returns how many bytes of each stream of a command are recorded, by the type of its events.
func (repo Commands) RecordedOf(x *Exec) (map[sandbox.SessionEventType]int64, error) {
	var sums []struct {
		Type  sandbox.SessionEventType
		Bytes int64
	}
	err := repo.tx.db.Model(&SessionEvent{}).Select("type, sum(length(data)) AS bytes").
		Where("sandbox_id = ? AND session_id = ? AND exec_id = ?", x.SandboxID, x.SessionID, x.ID).
		Where("type IN ('output', 'error')").Group("type").Scan(&sums).Error
	by := make(map[sandbox.SessionEventType]int64, len(sums))
	for _, s := range sums {
		by[s.Type] = s.Bytes
	}
	return by, unavailable("reading a recording", err)
}

// PurgeSessionEvents removes up to limit events of the sessions of sandboxes, and returns how many.
func (repo Commands) PurgeSessionEvents(sandboxIDs []string, limit int) (int64, error) {
	old := repo.tx.db.Model(&SessionEvent{}).Select("sandbox_id, session_id, sequence").Where("sandbox_id IN ?", sandboxIDs).Limit(limit)
	return rowCount("removing recordings", repo.tx.db.Where("(sandbox_id, session_id, sequence) IN (?)", old).Delete(&SessionEvent{}))
}

// retireSessions removes the sessions of sandboxes that are retired, whose recordings were purged.
func (repo Commands) retireSessions(sandboxIDs []string) error {
	_, err := rowCount("retiring sessions", repo.tx.db.Where("sandbox_id IN ?", sandboxIDs).Delete(&Session{}))
	return err
}
