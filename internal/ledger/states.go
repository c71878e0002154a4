package ledger

import (
	"cmp"

	"gorm.io/gorm/clause"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Snapshot says where the saving of a sandbox's /data stands. Without a Key none is saved.
type Snapshot struct {
	// Spec holds as it was when the generation began; its scope never changes.
	Spec *sandbox.StateSpec `gorm:"serializer:json"`
	// Key says whose state it is, Role what the sandbox is to it: "" before its first step. Namespace is that of the
	// token that leased.
	Key       string
	Namespace sandbox.StateNamespace `gorm:"serializer:json"`
	Role      sandbox.StateRole
	// Source is the key of the state that it begins with where Key has none yet, "" for none.
	Source string
	// Restored is what it began with.
	Restored *sandbox.SavedState `gorm:"serializer:json"`
	// ChangedAt is the last known change. As of SavedAt it is saved; TriedAt is when the last try
	// to save began that came to an end.
	ChangedAt    Time
	SavedAt      Time
	TriedAt      Time
	FailingSince Time // the first failure in a row
	Error        string
	ErrorCode    sandbox.Code
}

// NewSnapshot returns the snapshot of a new generation, which belongs to the namespace of the token that leased. A nil
// spec saves nothing.
func NewSnapshot(spec *sandbox.StateSpec, agentDID, environmentID string, n sandbox.StateNamespace) Snapshot {
	if spec == nil {
		return Snapshot{}
	}
	return Snapshot{Spec: spec, Namespace: n, Key: spec.Key(agentDID, environmentID, n)}
}

// Follow applies an environment's changed limits, also after the lease has ended: a larger size limit, or discard, ends
// a wait. The scope was fixed when the generation began.
func (s *Snapshot) Follow(spec *sandbox.StateSpec) {
	if spec == nil || s.Key == "" {
		return
	}
	changed := *spec
	changed.Scope = s.Spec.Scope
	s.Spec = &changed
}

// Holds reports whether the sandbox is the one that saves under its key.
func (s *Snapshot) Holds() bool { return s.Role == sandbox.RoleHolder }

// Unsaved reports whether changes are known that are not saved.
func (s *Snapshot) Unsaved() bool { return s.Holds() && s.ChangedAt > s.SavedAt }

// Untried reports whether no save was tried since the last known change.
func (s *Snapshot) Untried() bool { return s.Unsaved() && s.ChangedAt > s.TriedAt }

// Change notes that /data may have changed. That is later than every save so far, however coarse the clock is. saving
// says that another one may be under way.
func (s *Snapshot) Change(now Time, saving bool) {
	if !s.Holds() {
		return
	}
	s.ChangedAt = max(now, s.TriedAt+1)
	if saving {
		s.ChangedAt++
	}
}

// Save notes that the changes up to a moment are saved.
func (s *Snapshot) Save(at Time) {
	s.SavedAt, s.TriedAt, s.FailingSince, s.Error, s.ErrorCode = at, at, 0, "", ""
}

// Fail notes that a save failed that began at a moment.
func (s *Snapshot) Fail(cause error, began, now Time) {
	if s.FailingSince == 0 {
		s.FailingSince = now
	}
	s.TriedAt, s.Error, s.ErrorCode = began, cause.Error(), sandbox.CodeOf(cause)
}

// Wait makes the sandbox wait for another one's last save.
func (s *Snapshot) Wait(why string) { s.Role, s.Error = sandbox.RoleWaiting, why }

// SavedState is a row of saved_states: the last published state of a key.
type SavedState struct {
	Key           string `gorm:"primaryKey"`
	AgentDID      string `gorm:"column:agent_did"`
	EnvironmentID string
	SandboxID     string
	Generation    int64
	SavedAt       Time
	Object        string
	SHA256        string `gorm:"column:sha256"`
	Bytes         int64
	UnpackedBytes int64
	Files         int64
	Skipped       int64
}

// Domain returns the state as the domain knows it.
func (s *SavedState) Domain() sandbox.SavedState {
	return sandbox.SavedState{
		Key: s.Key, AgentDID: s.AgentDID, EnvironmentID: s.EnvironmentID, Generation: s.Generation, SandboxID: s.SandboxID,
		SavedAt: s.SavedAt.Time(), SHA256: s.SHA256, Bytes: s.Bytes, UnpackedBytes: s.UnpackedBytes, Files: s.Files, Skipped: s.Skipped,
	}
}

// DoomedObject is a row of doomed_objects: an object that is to be deleted unless it is published.
type DoomedObject struct {
	Object   string `gorm:"primaryKey"`
	DeleteAt Time
}

// StateHolder returns the sandbox that holds the state of a key, nil when none does.
func (repo Snapshots) StateHolder(key string) (*Sandbox, error) {
	return first[Sandbox](repo.tx, "state_role = 'holder' AND state_key = ?", key)
}

// Awaited is the key whose holder a sandbox waits for that is waiting.
func (s *Snapshot) Awaited() string { return cmp.Or(s.Source, s.Key) }

// WakeStateWaiters makes the sandboxes due that wait for the state of a key.
func (repo Snapshots) WakeStateWaiters(key string) error {
	_, err := rowCount("waking who waits for a state", repo.tx.db.Model(&Sandbox{}).
		Where("state_role = 'waiting' AND (state_key = ? OR state_source = ?) AND desired = 'present'", key, key).Update("due_at", repo.tx.Now))
	return err
}

// SavedState returns the last published state of a key, nil when there is none.
func (repo Snapshots) SavedState(key string) (*SavedState, error) {
	return first[SavedState](repo.tx, "key = ?", key)
}

// SavedStates returns the saved states that a filter selects, by key.
func (repo Snapshots) SavedStates(f sandbox.StateFilter) ([]SavedState, error) {
	q := repo.tx.db.Order("key").Limit(pageSize(f.Limit))
	if f.AgentDID != "" {
		q = q.Where("agent_did = ?", f.AgentDID)
	}
	if f.EnvironmentID != "" {
		q = q.Where("environment_id = ?", f.EnvironmentID)
	}
	if f.After != "" {
		q = q.Where("key > ?", f.After)
	}
	return find[SavedState](q)
}

// PublishState makes a state, whose object is doomed until then, the last one of its key. What it
// replaces is doomed from retireAt on. Errors: Conflict when the object may be deleted already.
func (repo Snapshots) PublishState(s *SavedState, retireAt Time) error {
	saved, err := rowCount("publishing a state", repo.tx.db.Delete(&DoomedObject{}, "object = ? AND delete_at > ?", s.Object, repo.tx.Now))
	if err != nil {
		return err
	}
	if saved == 0 {
		return sandbox.Errorf(sandbox.Conflict, "object %s took too long to be saved and may be deleted by now", s.Object)
	}
	if err := repo.tx.Snapshots().RemoveSavedState(s.Key, retireAt); err != nil {
		return err
	}
	return repo.tx.create(s)
}

// RemoveSavedState forgets the last state of a key, if there is one, and dooms its object.
func (repo Snapshots) RemoveSavedState(key string, deleteAt Time) error {
	old, err := repo.tx.Snapshots().SavedState(key)
	if err != nil || old == nil {
		return err
	}
	if err := repo.tx.Snapshots().DoomObject(old.Object, deleteAt); err != nil {
		return err
	}
	_, err = rowCount("forgetting a saved state", repo.tx.db.Delete(&SavedState{}, "key = ?", key))
	return err
}

// DoomObject has an object deleted at a time, unless it is published before.
func (repo Snapshots) DoomObject(object string, deleteAt Time) error {
	return unavailable("writing to the ledger", repo.tx.db.Clauses(clause.OnConflict{UpdateAll: true}).
		Create(&DoomedObject{Object: object, DeleteAt: deleteAt}).Error)
}

// DueObjects returns objects that are to be deleted now, the longest due first.
func (repo Snapshots) DueObjects(limit int) ([]string, error) {
	var objects []string
	err := repo.tx.db.Model(&DoomedObject{}).Where("delete_at <= ?", repo.tx.Now).Order("delete_at").Limit(limit).Pluck("object", &objects).Error
	return objects, unavailable("looking for objects to delete", err)
}

// ForgetObjects records that objects exist no more.
func (repo Snapshots) ForgetObjects(objects []string) error {
	_, err := rowCount("forgetting deleted objects", repo.tx.db.Delete(&DoomedObject{}, "object IN ?", objects))
	return err
}
