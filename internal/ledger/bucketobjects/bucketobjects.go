// Package bucketobjects keeps the rows of the latest snapshots of /data, and of objects in the bucket to delete.
package bucketobjects

import (
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Rows are the package's rows in a transaction.
type Rows struct {
	tx *ledger.Tx
	db *gorm.DB
}

// In returns the rows in a transaction.
func In(tx *ledger.Tx) Rows { return Rows{tx, storage.DB(tx)} }

// Snapshot is a row of saved_states: the latest published snapshot of a key.
type Snapshot struct {
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
func (Snapshot) TableName() string { return "saved_states" }

// Domain converts the snapshot to the domain type.
func (s *Snapshot) Domain() sandbox.Snapshot {
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
func (repo Rows) Holder(key string) (*ledger.Sandbox, error) {
	return storage.First[ledger.Sandbox](repo.tx, "state_role = 'holder' AND state_key = ?", key)
}

// WakeWaiters makes the sandboxes due that wait for the snapshot of a key.
func (repo Rows) WakeWaiters(key string) error {
	_, err := storage.RowCount("waking sandboxes that wait for a snapshot", repo.db.Model(&ledger.Sandbox{}).
		Where("state_role = 'waiting' AND (state_key = ? OR state_source = ?) AND desired = 'present'", key, key).
		Update("due_at", repo.tx.Now))
	return err
}

// Saved returns the latest published snapshot of a key, nil if there is none.
func (repo Rows) Saved(key string) (*Snapshot, error) {
	return storage.First[Snapshot](repo.tx, "key = ?", key)
}

// List returns the snapshots that a filter selects, by key.
func (repo Rows) List(f sandbox.SnapshotFilter) ([]Snapshot, error) {
	q := repo.db.Order("key").Limit(storage.PageSize(f.Limit))
	if f.AgentDID != "" {
		q = q.Where("agent_did = ?", f.AgentDID)
	}
	if f.EnvironmentID != "" {
		q = q.Where("environment_id = ?", f.EnvironmentID)
	}
	if f.After != "" {
		q = q.Where("key > ?", f.After)
	}
	return storage.Find[Snapshot](q)
}

// Publish makes a snapshot the latest of its key; until then its object is marked for deletion. The replaced
// object is deleted at deleteAt. Errors: Conflict if the object may already be deleted.
func (repo Rows) Publish(s *Snapshot, deleteAt micro.Time) error {
	saved, err := storage.RowCount("publishing a snapshot",
		repo.db.Delete(&MarkedObject{}, "object = ? AND delete_at > ?", s.Object, repo.tx.Now))
	if err != nil {
		return err
	}
	if saved == 0 {
		return sandbox.Errorf(sandbox.Conflict, "the save of object %s took too long, and the object may already be "+
			"deleted", s.Object)
	}
	if err := repo.Remove(s.Key, deleteAt); err != nil {
		return err
	}
	return storage.Create(repo.tx, s)
}

// Remove deletes the latest snapshot of a key, if any, and marks its object for deletion.
func (repo Rows) Remove(key string, deleteAt micro.Time) error {
	old, err := repo.Saved(key)
	if err != nil || old == nil {
		return err
	}
	if err := repo.MarkForDeletion(old.Object, deleteAt); err != nil {
		return err
	}
	_, err = storage.RowCount("forgetting a snapshot", repo.db.Delete(&Snapshot{}, "key = ?", key))
	return err
}

// MarkForDeletion marks an object for deletion at a time, unless it is published before.
func (repo Rows) MarkForDeletion(object string, deleteAt micro.Time) error {
	return storage.Error("writing to the ledger", repo.db.Clauses(clause.OnConflict{UpdateAll: true}).
		Create(&MarkedObject{Object: object, DeleteAt: deleteAt}).Error)
}

// DueObjects returns objects that are due for deletion, the longest due first.
func (repo Rows) DueObjects(limit int) ([]string, error) {
	var objects []string
	err := repo.db.Model(&MarkedObject{}).Where("delete_at <= ?", repo.tx.Now).Order("delete_at").Limit(limit).
		Pluck("object", &objects).Error
	return objects, storage.Error("looking for objects to delete", err)
}

// ForgetObjects records that objects no longer exist.
func (repo Rows) ForgetObjects(objects []string) error {
	_, err := storage.RowCount("forgetting deleted objects", repo.db.Delete(&MarkedObject{}, "object IN ?", objects))
	return err
}
