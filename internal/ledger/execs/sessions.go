package execs

import (
	"fmt"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
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
	// SealedEnv are its variables with values, nil if it has none or is closed.
	SealedEnv    []byte
	Cwd          string
	RunAs        string
	State        sandbox.SessionState
	CreatedAt    micro.Time `gorm:"autoCreateTime:false"`
	ClosedAt     micro.Time
	LastSequence int64
	// Recorded counts in the same way as sandbox.MaxSessionRecording. IsFull: something was not recorded.
	Recorded int64
	IsFull   ledger.Flag
	// DroppedAt is when its recording was deleted.
	DroppedAt micro.Time

	counted int64 // value of Recorded when the row was read
}

// AfterFind implements gorm's hook.
func (s *Session) AfterFind(*gorm.DB) error {
	s.counted = s.Recorded
	return nil
}

// SessionAsked are the parameters of a session's creation, without values.
type SessionAsked struct {
	EnvNames []string `json:"env_names"`
	Cwd      string   `json:"cwd"`
	User     string   `json:"user"`
}

// Domain returns the session. execID is the running command, "" if there is none.
func (s *Session) Domain(execID string) sandbox.Session {
	return sandbox.Session{
		ID: s.ID, LeaseID: s.LeaseID, Generation: s.Generation, SandboxID: s.SandboxID, EnvNames: s.EnvNames,
		Cwd: s.Cwd, User: s.RunAs, State: s.State, CreatedAt: s.CreatedAt.Time(), ClosedAt: s.ClosedAt.Time(),
		ExecID: execID, LastSequence: s.LastSequence, RecordedBytes: s.Recorded, Full: bool(s.IsFull),
		DroppedAt: s.DroppedAt.Time(),
	}
}

// SessionEvent is a row of session_events.
type SessionEvent struct {
	SandboxID string
	SessionID string
	Sequence  int64
	At        micro.Time
	Type      sandbox.SessionEventType
	Source    sandbox.EventSource
	ExecID    string
	Data      []byte
}

// Domain converts the event to the domain type.
func (e *SessionEvent) Domain() sandbox.SessionEvent {
	return sandbox.SessionEvent{
		Sequence: e.Sequence,
		At:       e.At.Time(),
		Type:     e.Type,
		Source:   e.Source,
		ExecID:   e.ExecID,
		Data:     e.Data,
	}
}

// Session returns a session of a sandbox, nil if it does not exist.
func (repo Rows) Session(sandboxID, id string) (*Session, error) {
	return storage.First[Session](repo.tx, "sandbox_id = ? AND id = ?", sandboxID, id)
}

// SessionOf returns a session of a lease, in a given generation or the latest one that has it; nil if it does
// not exist.
func (repo Rows) SessionOf(r sandbox.SessionRef) (*Session, error) {
	q := repo.db.Where("lease_id = ? AND id = ?", r.LeaseID, r.ID).Order("generation DESC").Limit(1)
	if r.Generation != 0 {
		q = q.Where("generation = ?", r.Generation)
	}
	rows, err := storage.Find[Session](q)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// ListSessions returns the sessions of a lease, newest first. A session is open as long as its lease has not
// ended.
func (repo Rows) ListSessions(f sandbox.SessionFilter) ([]Session, error) {
	q := repo.db.Where("lease_id = ?", f.LeaseID).Order("generation DESC, created_at DESC, id").
		Limit(storage.PageSize(f.Limit))
	const isOpen = "state = 'open' AND EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = sandbox_id AND " +
		"desired = 'present')"
	switch f.State {
	case sandbox.SessionOpen:
		q = q.Where(isOpen)
	case sandbox.SessionClosed:
		q = q.Where("NOT (" + isOpen + ")")
	}
	return storage.Find[Session](q)
}

// OpenSessions returns the open sessions of a sandbox.
func (repo Rows) OpenSessions(sandboxID string) ([]Session, error) {
	return storage.Find[Session](repo.db.Where("sandbox_id = ? AND state = 'open'", sandboxID).Order("id"))
}

// SealedSessions returns all sessions that have sealed variables.
func (repo Rows) SealedSessions() ([]Session, error) {
	return storage.Find[Session](repo.db.Where("sealed_env IS NOT NULL").Order("sandbox_id, id"))
}

// CreateSession stores a new session.
func (repo Rows) CreateSession(s *Session) error { return storage.Create(repo.tx, s) }

// SaveSession stores a changed session, and counts its recording.
func (repo Rows) SaveSession(s *Session) error {
	if err := storage.Save(repo.tx, s); err != nil || s.DroppedAt != 0 {
		return err
	}
	counted := s.counted
	s.counted = s.Recorded
	return repo.countKept(
		&KeptOutput{SandboxID: s.SandboxID, Kind: keptSession, ID: s.ID, LeaseID: s.LeaseID, Bytes: s.Recorded}, counted)
}

// RunningInSession returns the id of the session's running command, "" if there is none.
func (repo Rows) RunningInSession(sandboxID, id string) (string, error) {
	var ids []string
	err := repo.db.Model(&Exec{}).Where("sandbox_id = ? AND session_id = ? AND state = 'running' AND session_id <> ''",
		sandboxID, id).Limit(1).Pluck("id", &ids).Error
	if err != nil || len(ids) == 0 {
		return "", storage.Error("looking for commands", err)
	}
	return ids[0], nil
}

var appendSessionEvents = storage.InsertInto("session_events", "sandbox_id", "session_id", "sequence", "at", "type",
	"source", "exec_id", "data")

// AppendSessionEvents adds events to a session's recording until it is full; then it records that. It adds nothing to a
// recording that was dropped. It numbers the events and changes s: call SaveSession after it.
func (repo Rows) AppendSessionEvents(s *Session, events ...SessionEvent) error {
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
				Data: fmt.Appendf(nil,
					"the recording is full (%d bytes): nothing more is recorded; the output of each command is still kept (execs)",
					s.Recorded)}
		}
		s.LastSequence++
		s.Recorded += sessionEventSize(&e)
		e.SandboxID, e.SessionID, e.Sequence = s.SandboxID, s.ID, s.LastSequence
		fitting = append(fitting, e)
	}
	_, err := storage.BulkExec(repo.tx, "recording a session", appendSessionEvents, fitting,
		func(list []any, e *SessionEvent) []any {
			return append(list, e.SandboxID, e.SessionID, e.Sequence, e.At, e.Type, e.Source, e.ExecID, e.Data)
		})
	return err
}

func sessionEventSize(e *SessionEvent) int64 { return int64(len(e.Data)) + sandbox.SessionEventCost }

// SessionEvents returns events of a session after a sequence.
func (repo Rows) SessionEvents(s *Session, after int64, limit int) ([]SessionEvent, error) {
	if limit <= 0 || limit > sandbox.MaxSessionPage {
		limit = sandbox.MaxSessionPage
	}
	return storage.Find[SessionEvent](repo.db.Where("sandbox_id = ? AND session_id = ? AND sequence > ?", s.SandboxID,
		s.ID,
		after).Order("sequence").Limit(limit))
}

// RecordedOf returns the recorded bytes of each stream of a command, by event type.
func (repo Rows) RecordedOf(x *Exec) (map[sandbox.SessionEventType]int64, error) {
	var sums []struct {
		Type  sandbox.SessionEventType
		Bytes int64
	}
	err := repo.db.Model(&SessionEvent{}).Select("type, sum(length(data)) AS bytes").
		Where("sandbox_id = ? AND session_id = ? AND exec_id = ?", x.SandboxID, x.SessionID, x.ID).
		Where("type IN ('output', 'error')").Group("type").Scan(&sums).Error
	by := make(map[sandbox.SessionEventType]int64, len(sums))
	for _, s := range sums {
		by[s.Type] = s.Bytes
	}
	return by, storage.Error("reading a recording", err)
}

// PurgeSessionEvents removes up to limit events of the sandboxes' sessions and returns the number.
func (repo Rows) PurgeSessionEvents(sandboxIDs []string, limit int) (int64, error) {
	old := repo.db.Model(&SessionEvent{}).Select("sandbox_id, session_id, sequence").
		Where("sandbox_id IN ?", sandboxIDs).Limit(limit)
	return storage.RowCount("removing recordings",
		repo.db.Where("(sandbox_id, session_id, sequence) IN (?)", old).Delete(&SessionEvent{}))
}

// purgeSessions removes the sessions of purged sandboxes. Their recordings are already purged.
func (repo Rows) purgeSessions(sandboxIDs []string) error {
	_, err := storage.RowCount("purging sessions", repo.db.Where("sandbox_id IN ?", sandboxIDs).Delete(&Session{}))
	return err
}
