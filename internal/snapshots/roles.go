package snapshots

import (
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// waiterPoll is the fallback if the holder's wake-up does not reach a waiting sandbox.
const waiterPoll = 30 * time.Second

// takeRole gives a sandbox its role before its first step, and returns false if it must wait.
func (v *Service) takeRole(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
	st := &s.Snapshot
	if st.Key == "" || st.Role != "" && st.Role != sandbox.RoleWaiting {
		return true, nil
	}
	st.Error = ""
	holder, isLive, err := holderOf(tx, st.Key)
	if err != nil {
		return false, err
	}
	var ending *ledger.Sandbox
	if st.Source, ending, err = sourceOf(tx, s); err != nil {
		return false, err
	}
	switch {
	case isLive:
		st.Role = sandbox.RoleCopy
	case holder != nil:
		st.Source = ""
		waitFor(tx, s, holder)
	case ending != nil:
		waitFor(tx, s, ending)
	default:
		st.Role = sandbox.RoleHolder
	}
	return st.Role != sandbox.RoleWaiting, nil
}

// holderOf returns the sandbox that holds the snapshot of a key, nil if none does, and whether its lease is
// live. A sandbox that has ended without ever being ready no longer holds it.
func holderOf(tx *ledger.Tx, key string) (holder *ledger.Sandbox, isLive bool, err error) {
	if holder, err = bucketobjects.In(tx).Holder(key); err != nil || holder == nil {
		return nil, false, err
	}
	held, err := tx.Holds().Until(holder.ID)
	if err != nil || holder.Live(held, tx.Now) {
		return holder, err == nil, err
	}
	if holder.Desired == ledger.Gone && holder.ReadyAt == 0 {
		return nil, false, tx.UpdateRow(holder, func(holder *ledger.Sandbox) error {
			holder.Snapshot.Role = sandbox.RoleDone
			return nil
		})
	}
	return holder, false, nil
}

// sourceOf returns the key of the snapshot that a sandbox starts from if its own key has none, "" if there is
// no source. ending is the ended sandbox that has yet to save that snapshot, nil if there is none.
func sourceOf(tx *ledger.Tx, s *ledger.Sandbox) (key string, ending *ledger.Sandbox, err error) {
	st := &s.Snapshot
	own, err := bucketobjects.In(tx).Saved(st.Key)
	if err != nil || own != nil {
		return "", nil, err
	}
	for _, key := range st.Spec.Sources(s.AgentDID, s.EnvironmentID, st.Namespace) {
		holder, err := bucketobjects.In(tx).Holder(key)
		if err != nil {
			return "", nil, err
		}
		if holder != nil && holder.Desired == ledger.Gone && mustSave(holder) && st.Namespace.Allows(holder.EnvironmentID) {
			return key, holder, nil
		}
		saved, err := allowed(tx, key, st.Namespace)
		if err != nil || saved != nil {
			return key, nil, err
		}
	}
	return "", nil, nil
}

// allowed returns the snapshot of a key. It returns nil if there is none, or if it was saved in an
// environment that the tokens of the namespace may not touch.
func allowed(tx *ledger.Tx, key string, n sandbox.SnapshotNamespace) (*bucketobjects.Snapshot, error) {
	saved, err := bucketobjects.In(tx).Saved(key)
	if err != nil || saved == nil || !n.Allows(saved.EnvironmentID) {
		return nil, err
	}
	return saved, nil
}

// beginsWith returns the snapshot that a sandbox starts from, nil for none. It checks again, because an
// environment outside of the namespace may have saved to the source since it was chosen.
func beginsWith(tx *ledger.Tx, st *ledger.Snapshot) (*bucketobjects.Snapshot, error) {
	saved, err := bucketobjects.In(tx).Saved(st.Key)
	if err != nil || saved != nil || st.Source == "" {
		return saved, err
	}
	return allowed(tx, st.Source, st.Namespace)
}

// waitFor makes a sandbox wait until the holder's snapshot is saved.
func waitFor(tx *ledger.Tx, s, holder *ledger.Sandbox) {
	why := fmt.Sprintf("it waits for the last snapshot of %s generation %d in sandbox %s",
		holder.Subject(), holder.Generation, holder.ID)
	if holder.Snapshot.FailingSince != 0 {
		why += ", which failed so far: " + holder.Snapshot.Error
	}
	s.Snapshot.Wait(why)
	s.Schedule.DueAt = tx.Now.Add(micro.SpanOf(waiterPoll))
}

// Awaited implements lifecycle.Waiter: it returns the sandbox whose snapshot s waits for, nil if s does not
// wait.
func (v *Service) Awaited(tx *ledger.Tx, s *ledger.Sandbox) (*ledger.Sandbox, error) {
	if s.Snapshot.Role != sandbox.RoleWaiting || s.Desired != ledger.Present || s.Phase != sandbox.PhasePending ||
		s.Claim.Holds(tx.Now) {
		return nil, nil
	}
	return bucketobjects.In(tx).Holder(s.Snapshot.Awaited())
}

// letGo ends a sandbox's hold on its snapshot, and wakes the sandboxes that wait for it.
func letGo(tx *ledger.Tx, s *ledger.Sandbox, role sandbox.SnapshotRole) error {
	if !s.Snapshot.Holds() {
		return nil
	}
	s.Snapshot.Role = role
	return bucketobjects.In(tx).WakeWaiters(s.Snapshot.Key)
}

// lose records that changes of a sandbox since its last snapshot are lost.
func lose(tx *ledger.Tx, s *ledger.Sandbox, why string) error {
	if !s.Snapshot.Holds() {
		return nil
	}
	data := map[string]any{"key": s.Snapshot.Key, "reason": why}
	if s.Snapshot.SavedAt != 0 {
		data["saved_at"] = s.Snapshot.SavedAt.Time()
	}
	if err := tx.AppendSandboxEvent(s, sandbox.EventSnapshotLost, data); err != nil {
		return err
	}
	s.Snapshot.Error = why
	return letGo(tx, s, sandbox.RoleLost)
}

// Vanished implements lifecycle.Vanisher: a sandbox that vanished loses its hold. Its last snapshot stays.
func (v *Service) Vanished(tx *ledger.Tx, s *ledger.Sandbox) error {
	if s.Snapshot.Unsaved() {
		return lose(tx, s, "the sandbox vanished before its data could be saved")
	}
	return letGo(tx, s, sandbox.RoleDone)
}

// Adopt gives an adopted sandbox its role. This ledger has never saved its data.
func (v *Service) Adopt(tx *ledger.Tx, s *ledger.Sandbox) error {
	mayBegin, err := v.takeRole(tx, s)
	if err != nil || s.Snapshot.Key == "" {
		return err
	}
	if !mayBegin { // it already runs
		s.Snapshot.Role, s.Snapshot.Error, s.Schedule.DueAt = sandbox.RoleCopy, "", tx.Now
	}
	s.Snapshot.ChangedAt = tx.Now
	return nil
}

// LeaseSnapshot returns the status of a lease's snapshot, nil if its environment keeps none.
func LeaseSnapshot(s *ledger.Sandbox) *sandbox.LeaseSnapshot {
	st := &s.Snapshot
	if st.Key == "" {
		return nil
	}
	l := &sandbox.LeaseSnapshot{
		Key: st.Key, Role: st.Role, RestoredFrom: st.Restored, SavedAt: st.SavedAt.Time(),
		Error: st.Error, FailingSince: st.FailingSince.Time(),
	}
	if l.Role == "" {
		l.Role = sandbox.RoleWaiting
	}
	if s.Snapshot.Unsaved() {
		l.UnsavedSince = max(st.SavedAt, s.ReadyAt).Time()
	}
	if s.Desired == ledger.Gone && s.Snapshot.Holds() && st.FailingSince != 0 {
		l.GivesUpAt = givesUpAt(s).Time()
	}
	return l
}
