package leasing

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/state"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The state of an environment's /data outlives the generation. Its key says whose it is. Of the
// sandboxes with one key at most one is its holder, and it alone saves: a sandbox becomes it before
// its first step, and ceases to be it when its state is saved for the last time or is lost, after
// which the next one may begin. So what a generation is given is always what the last holder
// published last.

// StateStore keeps archives of /data, and what commands have written; see state.Store, whose contract
// it is.
type StateStore interface {
	Save(ctx context.Context, object string, data io.Reader, limit int64) (state.Archive, error)
	Load(ctx context.Context, a state.Archive) (io.ReadCloser, error)
	Put(ctx context.Context, object string, content io.Reader) error
	Open(ctx context.Context, object string, offset int64) (io.ReadCloser, error)
	Delete(ctx context.Context, object string) error
}

const (
	// waiterPoll is the backstop behind the holder's wake-up of who waits for it.
	waiterPoll = 30 * time.Second
	// failedCheckpointPace is how often at most a checkpoint is tried that failed.
	failedCheckpointPace = 30 * time.Second
)

// uploading is what a save is claimed for once its sandbox is thawed: others may use it again.
const uploading = "upload"

// mustSave reports whether a sandbox that is to go is saved first. Where nothing ever was ready there
// is nothing of anybody's.
func mustSave(s *ledger.Sandbox) bool { return s.Snapshot.Holds() && s.ReadyAt != 0 }

// checkpointAt is when the changes of a living sandbox are saved, Never when none are to be. What was
// refused for good is not tried again before it has changed.
func checkpointAt(s *ledger.Sandbox) ledger.Time {
	st := &s.Snapshot
	if !s.Snapshot.Unsaved() || *st.Spec.CheckpointEvery == 0 {
		return ledger.Never
	}
	pace := ledger.SpanOf(*st.Spec.CheckpointEvery)
	if st.ErrorCode != "" {
		pace = max(pace, ledger.SpanOf(failedCheckpointPace))
		if !s.Snapshot.Untried() && st.ErrorCode == sandbox.Invalid {
			return ledger.Never
		}
	}
	if st.TriedAt == 0 {
		return st.ChangedAt
	}
	return max(st.ChangedAt, st.TriedAt.Add(pace))
}

// restStep is the step by which a sandbox goes to sleep: before its memory is lost, what it changed
// is saved. That is tried once, and a sandbox whose state cannot be saved sleeps nonetheless.
func restStep(s *ledger.Sandbox) action {
	if s.SleepMode == sandbox.SleepStop && s.Snapshot.Untried() {
		return actSave
	}
	return actSleep
}

// interrupted reports whether a reconciler died that had frozen a sandbox which is to be awake.
func interrupted(s *ledger.Sandbox, now ledger.Time) bool {
	return s.Phase == sandbox.PhaseAwake && s.Claim.For == string(actSave) && !s.Claim.Holds(now)
}

// usable reports whether commands can be run in a sandbox now.
func usable(s *ledger.Sandbox, now ledger.Time) bool {
	claimed := s.Claim.Holds(now) && s.Claim.For != uploading
	return s.Phase == sandbox.PhaseAwake && s.Pending.Secrets == 0 && !claimed && !interrupted(s, now)
}

// takeState gives a sandbox its role before its first step, and reports false when it has to wait.
func (e *Engine) takeState(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
	st := &s.Snapshot
	if st.Key == "" || st.Role != "" && st.Role != sandbox.RoleWaiting {
		return true, nil
	}
	st.Error = ""
	holder, isLive, err := stateHolder(tx, st.Key)
	if err != nil {
		return false, err
	}
	var ending *ledger.Sandbox
	if st.Source, ending, err = stateSource(tx, s); err != nil {
		return false, err
	}
	switch {
	case isLive:
		st.Role = sandbox.RoleCopy
	case holder != nil:
		st.Source = ""
		waitForState(tx, s, holder)
	case ending != nil:
		waitForState(tx, s, ending)
	default:
		st.Role = sandbox.RoleHolder
	}
	return st.Role != sandbox.RoleWaiting, nil
}

// stateHolder returns the sandbox that holds the state of a key, nil when none does, and whether its lease lives. One
// that has ended and never had anything of its own holds it no longer.
func stateHolder(tx *ledger.Tx, key string) (holder *ledger.Sandbox, isLive bool, err error) {
	if holder, err = tx.Snapshots().StateHolder(key); err != nil || holder == nil {
		return nil, false, err
	}
	held, err := tx.HeldUntil(holder.ID)
	if err != nil || live(holder, held, tx.Now) {
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

// stateSource returns the key of the state that a sandbox begins with whose own key has none, "" where it begins
// with none; and the ended sandbox that has yet to save it, nil when none has.
func stateSource(tx *ledger.Tx, s *ledger.Sandbox) (key string, ending *ledger.Sandbox, err error) {
	st := &s.Snapshot
	own, err := tx.Snapshots().SavedState(st.Key)
	if err != nil || own != nil {
		return "", nil, err
	}
	for _, key := range st.Spec.Sources(s.AgentDID, s.EnvironmentID, st.Namespace) {
		holder, err := tx.Snapshots().StateHolder(key)
		if err != nil {
			return "", nil, err
		}
		if holder != nil && holder.Desired == ledger.Gone && mustSave(holder) && st.Namespace.Allows(holder.EnvironmentID) {
			return key, holder, nil
		}
		saved, err := allowedState(tx, key, st.Namespace)
		if err != nil || saved != nil {
			return key, nil, err
		}
	}
	return "", nil, nil
}

// allowedState returns what is saved under a key, nil when there is nothing or it was saved in an environment that
// the tokens of a namespace may not touch.
func allowedState(tx *ledger.Tx, key string, n sandbox.StateNamespace) (*ledger.SavedState, error) {
	saved, err := tx.Snapshots().SavedState(key)
	if err != nil || saved == nil || !n.Allows(saved.EnvironmentID) {
		return nil, err
	}
	return saved, nil
}

// beginsWith returns the state that a sandbox begins with, nil for none. Since its source was chosen, an environment
// may have saved there that is not allowed.
func beginsWith(tx *ledger.Tx, st *ledger.Snapshot) (*ledger.SavedState, error) {
	saved, err := tx.Snapshots().SavedState(st.Key)
	if err != nil || saved != nil || st.Source == "" {
		return saved, err
	}
	return allowedState(tx, st.Source, st.Namespace)
}

// waitForState makes a sandbox wait until another one's state is saved.
func waitForState(tx *ledger.Tx, s, holder *ledger.Sandbox) {
	why := fmt.Sprintf("it waits until the state of %s generation %d, in sandbox %s, is saved", subject(holder), holder.Generation, holder.ID)
	if holder.Snapshot.FailingSince != 0 {
		why += ", which fails: " + holder.Snapshot.Error
	}
	s.Snapshot.Wait(why)
	s.Schedule.DueAt = tx.Now.Add(ledger.SpanOf(waiterPoll))
}

// settleRestored records what a generation begins with.
func settleRestored(tx *ledger.Tx, s *ledger.Sandbox, from *sandbox.SavedState) error {
	s.Snapshot.Restored = from
	event := sandbox.EventStateRestored
	if s.Snapshot.Role == sandbox.RoleCopy {
		event = sandbox.EventStateCopied
	} else if from == nil {
		return nil
	}
	return tx.AppendSandboxEvent(s, event, map[string]any{"key": s.Snapshot.Key, "from": from})
}

// holderAwaited returns the sandbox for whose state another one waits, nil when that does not.
func holderAwaited(tx *ledger.Tx, s *ledger.Sandbox) (*ledger.Sandbox, error) {
	if s.Snapshot.Role != sandbox.RoleWaiting || s.Desired != ledger.Present || s.Phase != sandbox.PhasePending || s.Claim.Holds(tx.Now) {
		return nil, nil
	}
	return tx.Snapshots().StateHolder(s.Snapshot.Awaited())
}

// awaitState works toward the moment at which a sandbox may begin that waits for another one's state,
// or waits while others do. Errors: Unavailable once it is known that this takes long.
func (e *Engine) awaitState(ctx context.Context, s, holder *ledger.Sandbox, changed <-chan struct{}) error {
	now := ledger.At(e.now())
	isFree := !holder.Claim.Holds(now)
	switch {
	case isFree && holder.Schedule.DueAt <= now:
		if err := e.Work(ctx, holder.ID); ctx.Err() != nil {
			return err
		}
		return nil // its failure is on its own row
	case isFree && holder.Schedule.Attempts > 0:
		return sandbox.Errorf(sandbox.Unavailable, "lease %s: it begins once the state of generation %d, in sandbox %s, is saved, which fails: %s; it is tried again at %s",
			s.Lease(), holder.Generation, holder.ID, holder.Schedule.LastError, holder.Schedule.DueAt.Time().Format(time.RFC3339))
	default:
		return e.pause(ctx, changed, max(holder.Claim.Until, holder.Schedule.DueAt))
	}
}

// letStateGo ends a sandbox's hold on its state, and wakes the sandboxes that wait for it.
func letStateGo(tx *ledger.Tx, s *ledger.Sandbox, role sandbox.StateRole) error {
	if !s.Snapshot.Holds() {
		return nil
	}
	s.Snapshot.Role = role
	return tx.Snapshots().WakeStateWaiters(s.Snapshot.Key)
}

// loseState records that what a sandbox changed since it was saved last cannot be saved any more.
func loseState(tx *ledger.Tx, s *ledger.Sandbox, why string) error {
	if !s.Snapshot.Holds() {
		return nil
	}
	data := map[string]any{"key": s.Snapshot.Key, "reason": why}
	if s.Snapshot.SavedAt != 0 {
		data["saved_at"] = s.Snapshot.SavedAt.Time()
	}
	if err := tx.AppendSandboxEvent(s, sandbox.EventStateLost, data); err != nil {
		return err
	}
	s.Snapshot.Error = why
	return letStateGo(tx, s, sandbox.RoleLost)
}

// vanishedState ends the hold of a sandbox that is no longer there: what was saved last stands.
func vanishedState(tx *ledger.Tx, s *ledger.Sandbox) error {
	if s.Snapshot.Unsaved() {
		return loseState(tx, s, "the sandbox vanished before it could be saved")
	}
	return letStateGo(tx, s, sandbox.RoleDone)
}

// adoptState gives a sandbox that is adopted its role. What it has was never saved on this ledger.
func (e *Engine) adoptState(tx *ledger.Tx, s *ledger.Sandbox) error {
	mayBegin, err := e.takeState(tx, s)
	if err != nil || s.Snapshot.Key == "" {
		return err
	}
	if !mayBegin { // it runs already
		s.Snapshot.Role, s.Snapshot.Error, s.Schedule.DueAt = sandbox.RoleCopy, "", tx.Now
	}
	s.Snapshot.ChangedAt = tx.Now
	return nil
}

// settleSaved publishes what a save stored.
func settleSaved(tx *ledger.Tx, s *ledger.Sandbox, t *task, a *state.Archive) error {
	st := &s.Snapshot
	if !s.Snapshot.Holds() { // it was given up meanwhile: the object stays doomed
		return nil
	}
	row := &ledger.SavedState{
		Key: st.Key, AgentDID: s.AgentDID, EnvironmentID: s.EnvironmentID, SandboxID: s.ID, Generation: s.Generation,
		SavedAt: t.began, Object: a.Object, SHA256: a.SHA256, Bytes: a.Bytes, UnpackedBytes: a.Size, Files: a.Files, Skipped: a.Skipped,
	}
	if err := tx.Snapshots().PublishState(row, tx.Now.Add(ledger.SpanOf(retiredFor))); err != nil {
		return err
	}
	st.Save(t.began)
	data := map[string]any{"key": st.Key, "sha256": a.SHA256, "bytes": a.Bytes, "unpacked_bytes": a.Size, "files": a.Files, "last": t.last()}
	if a.Skipped > 0 {
		data["skipped"] = a.Skipped
	}
	if err := tx.AppendSandboxEvent(s, sandbox.EventStateSaved, data); err != nil || !t.last() {
		return err
	}
	return letStateGo(tx, s, sandbox.RoleDone)
}

// settleUnsaved records a save that failed. A checkpoint that fails ends no lease; when the last one
// does, the sandbox is kept as its environment wants.
func (e *Engine) settleUnsaved(tx *ledger.Tx, s *ledger.Sandbox, t *task, out outcome) error {
	st, cause := &s.Snapshot, out.err
	if e.life.Err() != nil {
		return nil //nolint:nilerr // broken off to close: the next step does it anew
	}
	code := sandbox.CodeOf(cause)
	isNew := st.FailingSince == 0 || t.last() && s.Schedule.Attempts == 0
	st.Fail(cause, t.began, tx.Now)
	if isNew {
		data := map[string]any{"key": st.Key, "code": code, "error": cause.Error(), "last": t.last()}
		if err := tx.AppendSandboxEvent(s, sandbox.EventStateSaveFailed, data); err != nil {
			return err
		}
	}
	if !t.last() {
		e.log.Warn("leasing: a checkpoint failed", about(s), "error", cause)
		return nil
	}
	s.Schedule.Fail(cause)
	switch {
	case code == sandbox.NotFound:
		s.Schedule.Succeed()
		return vanishedState(tx, s)
	case out.unread && sandbox.IsRetryable(cause): // its backend is away: it could not be destroyed either
	case givesUp(s, tx.Now):
		s.Schedule.Succeed()
		return loseState(tx, s, fmt.Sprintf("it could not be saved (%s) and is given up: %s", st.Spec.OnPersistFailure, cause))
	}
	s.Schedule.DueAt = min(tx.Now.Add(ledger.SpanOf(backoff(s.Schedule.Attempts))), max(givesUpAt(s), tx.Now.Add(ledger.SpanOf(firstRetry))))
	e.log.Warn("leasing: the last save failed and will be tried again", about(s), "attempt", s.Schedule.Attempts, "error", cause)
	return nil
}

// givesUpAt is when the sandbox of an ended lease is destroyed although its state is not saved.
func givesUpAt(s *ledger.Sandbox) ledger.Time {
	return max(s.Snapshot.FailingSince, s.Ending.At).Add(ledger.SpanOf(s.Snapshot.Spec.RetryFor))
}

// givesUp reports whether the last save of an ended lease has been tried for long enough.
func givesUp(s *ledger.Sandbox, now ledger.Time) bool {
	if s.Snapshot.Spec.OnPersistFailure == sandbox.PersistDiscard {
		return s.Schedule.Attempts >= sandbox.DiscardAttempts
	}
	return givesUpAt(s) <= now
}

// leaseState returns where the state of a lease stands, nil where none is kept.
func leaseState(s *ledger.Sandbox) *sandbox.LeaseState {
	st := &s.Snapshot
	if st.Key == "" {
		return nil
	}
	l := &sandbox.LeaseState{
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
