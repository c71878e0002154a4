package ledger

import (
	"cmp"

	"gorm.io/gorm/clause"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Snapshot is the state of saving a sandbox's /data. Without a Key nothing is saved.
type Snapshot struct {
	// Spec is that of the start of the generation; its scope never changes.
	Spec *sandbox.SnapshotSpec `gorm:"serializer:json"`
	// Key names the snapshot. Role is the sandbox's role for it, "" before its first step. Namespace is that
	// of the leasing token.
	Key       string
	Namespace sandbox.SnapshotNamespace `gorm:"serializer:json"`
	Role      sandbox.SnapshotRole
	// Source is the key of the snapshot to start from if Key has none yet, "" for none.
	Source string
	// Restored is the snapshot that it started from.
	Restored *sandbox.Snapshot `gorm:"serializer:json"`
	// ChangedAt is the last known change. SavedAt is the time whose state is saved. TriedAt is the start of
	// the last completed attempt to save.
	ChangedAt    micro.Time
	SavedAt      micro.Time
	TriedAt      micro.Time
	FailingSince micro.Time // the first failure in a row
	Error        string
	ErrorCode    sandbox.Code
}

// NewSnapshot returns the snapshot state of a new generation in the namespace of the leasing token. A nil
// spec saves nothing.
func NewSnapshot(spec *sandbox.SnapshotSpec, agentDID, environmentID string, n sandbox.SnapshotNamespace) Snapshot {
	if spec == nil {
		return Snapshot{}
	}
	return Snapshot{Spec: spec, Namespace: n, Key: spec.Key(agentDID, environmentID, n)}
}

// Follow applies an environment's changed limits, even after the end of the lease: a larger size limit, or
// discard, ends a wait. The scope is fixed at the start of the generation.
func (s *Snapshot) Follow(spec *sandbox.SnapshotSpec) {
	if spec == nil || s.Key == "" {
		return
	}
	changed := *spec
	changed.Scope = s.Spec.Scope
	s.Spec = &changed
}

// Holds reports whether the sandbox is the holder of its key.
func (s *Snapshot) Holds() bool { return s.Role == sandbox.RoleHolder }

// Unsaved reports whether there are known changes that are not saved.
func (s *Snapshot) Unsaved() bool { return s.Holds() && s.ChangedAt > s.SavedAt }

// Untried reports whether there was no attempt to save since the last known change.
func (s *Snapshot) Untried() bool { return s.Unsaved() && s.ChangedAt > s.TriedAt }

// Change records that /data may have changed, later than every save so far, however coarse the clock is.
// saving means that another save may be running.
func (s *Snapshot) Change(now micro.Time, saving bool) {
	if !s.Holds() {
		return
	}
	s.ChangedAt = max(now, s.TriedAt+1)
	if saving {
		s.ChangedAt++
	}
}

// Save records that the changes up to a time are saved.
func (s *Snapshot) Save(at micro.Time) {
	s.SavedAt, s.TriedAt, s.FailingSince, s.Error, s.ErrorCode = at, at, 0, "", ""
}

// Fail records the failure of a save that began at a time.
func (s *Snapshot) Fail(cause error, began, now micro.Time) {
	if s.FailingSince == 0 {
		s.FailingSince = now
	}
	s.TriedAt, s.Error, s.ErrorCode = began, cause.Error(), sandbox.CodeOf(cause)
}

// Wait makes the sandbox wait for another one's last save.
func (s *Snapshot) Wait(why string) { s.Role, s.Error = sandbox.RoleWaiting, why }

// SavedSnapshot is a row of saved_states: the latest published snapshot of a key.
type SavedSnapshot struct {
	Key           string `gorm:"primaryKey"`
	AgentDID      string `gorm:"column:agent_did"`
	EnvironmentID string
	SandboxID     string
	Generation    int64
	SavedAt       micro.Time
	Object        string
	SHA256        string `gorm:"column:sha256"`
	Bytes         int64
	UnpackedBytes int64
	Files         int64
	Skipped       int64
}

// TableName implements gorm's Tabler.
func (SavedSnapshot) TableName() string { return "saved_states" }

// Domain converts the snapshot to the domain type.
func (s *SavedSnapshot) Domain() sandbox.Snapshot {
	return sandbox.Snapshot{
		Key:           s.Key,
		AgentDID:      s.AgentDID,
		EnvironmentID: s.EnvironmentID,
		Generation:    s.Generation,
		SandboxID:     s.SandboxID,
		SavedAt:       s.SavedAt.Time(),
		SHA256:        s.SHA256,
		Bytes:         s.Bytes,
		UnpackedBytes: s.UnpackedBytes,
		Files:         s.Files,
		Skipped:       s.Skipped,
	}
}

// MarkedObject is a row of doomed_objects: an object to delete unless it is published.
type MarkedObject struct {
	Object   string `gorm:"primaryKey"`
	DeleteAt micro.Time
}

// TableName implements gorm's Tabler.
func (MarkedObject) TableName() string { return "doomed_objects" }

// Holder returns the sandbox that holds the snapshot of a key, nil if there is none.
func (repo Snapshots) Holder(key string) (*Sandbox, error) {
	return storage.First[Sandbox](repo.tx, "state_role = 'holder' AND state_key = ?", key)
}

// Awaited is the key whose holder a waiting sandbox waits for.
func (s *Snapshot) Awaited() string { return cmp.Or(s.Source, s.Key) }

// WakeWaiters makes the sandboxes due that wait for the snapshot of a key.
func (repo Snapshots) WakeWaiters(key string) error {
	_, err := storage.RowCount("waking sandboxes that wait for a snapshot", repo.tx.db.Model(&Sandbox{}).
		Where("state_role = 'waiting' AND (state_key = ? OR state_source = ?) AND desired = 'present'", key, key).
		Update("due_at", repo.tx.Now))
	return err
}

// Saved returns the latest published snapshot of a key, nil if there is none.
func (repo Snapshots) Saved(key string) (*SavedSnapshot, error) {
	return storage.First[SavedSnapshot](repo.tx, "key = ?", key)
}

// List returns the snapshots that a filter selects, by key.
func (repo Snapshots) List(f sandbox.SnapshotFilter) ([]SavedSnapshot, error) {
	q := repo.tx.db.Order("key").Limit(storage.PageSize(f.Limit))
	if f.AgentDID != "" {
		q = q.Where("agent_did = ?", f.AgentDID)
	}
	if f.EnvironmentID != "" {
		q = q.Where("environment_id = ?", f.EnvironmentID)
	}
	if f.After != "" {
		q = q.Where("key > ?", f.After)
	}
	return storage.Find[SavedSnapshot](q)
}

// Publish makes a snapshot the latest of its key; until then its object is marked for deletion. The replaced
// object is deleted at deleteAt. Errors: Conflict if the object may already be deleted.
func (repo Snapshots) Publish(s *SavedSnapshot, deleteAt micro.Time) error {
	saved, err := storage.RowCount("publishing a snapshot",
		repo.tx.db.Delete(&MarkedObject{}, "object = ? AND delete_at > ?", s.Object, repo.tx.Now))
	if err != nil {
		return err
	}
	if saved == 0 {
		return sandbox.Errorf(sandbox.Conflict, "the save of object %s took too long, and the object may already be "+
			"deleted", s.Object)
	}
	if err := repo.tx.Snapshots().Remove(s.Key, deleteAt); err != nil {
		return err
	}
	return storage.Create(repo.tx, s)
}

// Remove deletes the latest snapshot of a key, if any, and marks its object for deletion.
func (repo Snapshots) Remove(key string, deleteAt micro.Time) error {
	old, err := repo.tx.Snapshots().Saved(key)
	if err != nil || old == nil {
		return err
	}
	if err := repo.tx.Snapshots().MarkForDeletion(old.Object, deleteAt); err != nil {
		return err
	}
	_, err = storage.RowCount("forgetting a snapshot", repo.tx.db.Delete(&SavedSnapshot{}, "key = ?", key))
	return err
}

// MarkForDeletion marks an object for deletion at a time, unless it is published before.
func (repo Snapshots) MarkForDeletion(object string, deleteAt micro.Time) error {
	return storage.Error("writing to the ledger", repo.tx.db.Clauses(clause.OnConflict{UpdateAll: true}).
		Create(&MarkedObject{Object: object, DeleteAt: deleteAt}).Error)
}

// DueObjects returns objects that are due for deletion, the longest due first.
func (repo Snapshots) DueObjects(limit int) ([]string, error) {
	var objects []string
	err := repo.tx.db.Model(&MarkedObject{}).Where("delete_at <= ?", repo.tx.Now).Order("delete_at").Limit(limit).
		Pluck("object", &objects).Error
	return objects, storage.Error("looking for objects to delete", err)
}

// ForgetObjects records that objects no longer exist.
func (repo Snapshots) ForgetObjects(objects []string) error {
	_, err := storage.RowCount("forgetting deleted objects", repo.tx.db.Delete(&MarkedObject{}, "object IN ?", objects))
	return err
}
