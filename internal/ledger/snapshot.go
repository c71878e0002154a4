package ledger

import (
	"cmp"
	"reflect"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
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
// discard, ends a wait. The scope is fixed at the start of the generation. It reports whether anything has changed.
func (s *Snapshot) Follow(spec *sandbox.SnapshotSpec) bool {
	if spec == nil || s.Key == "" {
		return false
	}
	was, is := *s.Spec, *spec
	is.Scope = was.Scope
	s.Spec = &is
	return !reflect.DeepEqual(was, is)
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

// Awaited is the key whose holder a waiting sandbox waits for.
func (s *Snapshot) Awaited() string { return cmp.Or(s.Source, s.Key) }
