package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits of the work on /data and the store.
const (
	saveTimeout   = 10 * time.Minute
	deleteTimeout = 30 * time.Second
	freezeTimeout = 30 * time.Second
	// abandonedFor is the age at which the object of an unfinished save is deleted; no save takes that long.
	// KeepReplaced is how long a replaced object is kept for its readers.
	abandonedFor = time.Hour
	KeepReplaced = 2 * restoreTimeout
	// savers limits concurrent saves per process, so that a hanging store leaves most of the loop's workers
	// free.
	savers = 6
	// startLimit is the longest time between the grant of a use and the start of its command. elsewherePoll
	// is the interval of checks whether another process still uses a sandbox.
	startLimit    = 5 * time.Second
	elsewherePoll = time.Second
	// collectBatch limits the deletions before they are recorded.
	collectBatch = 100
	// failedCheckpointPace is the shortest interval between attempts of a failed checkpoint.
	failedCheckpointPace = 30 * time.Second
)

// admitFreeze reports whether a sandbox may be frozen. It must wait while another process may be starting a command. It
// waits for no save: an ended lease runs nothing, however many saves hang.
func (v *Service) admitFreeze(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
	elsewhere, err := v.usedElsewhere(tx, s)
	if err != nil || elsewhere {
		s.Schedule.DueAt = tx.Now.Add(micro.SpanOf(elsewherePoll))
		return false, err
	}
	return true, nil
}

// admitSave reports whether a save may begin. It must wait while too many saves run, and while a checkpoint may not
// freeze the sandbox.
func (v *Service) admitSave(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
	if ok, err := v.admitFreeze(tx, s); err != nil || !ok {
		return false, err
	}
	select {
	case v.saving <- struct{}{}:
		return true, nil
	default:
		s.Schedule.DueAt = tx.Now.Add(micro.SpanOf(lifecycle.FirstRetry))
		return false, nil
	}
}

// Claimed implements lifecycle.Admitter. It marks the save's object for deletion before anything is stored,
// so that no object is ever forgotten.
func (v *Service) Claimed(tx *ledger.Tx, s *ledger.Sandbox, t *lifecycle.Step) error {
	if t.Action != lifecycle.Save {
		return nil
	}
	t.Began = max(tx.Now, s.Snapshot.ChangedAt) // the save includes all known changes
	s.Schedule.DueAt = tx.Now                   // if this process dies, the sandbox is thawed at once
	return bucketobjects.In(tx).MarkForDeletion(v.objectOf(t), tx.Now.Add(micro.SpanOf(abandonedFor)))
}

// objectOf returns the name of a save's object.
func (v *Service) objectOf(t *lifecycle.Step) string {
	return v.Ledger.ID() + "/" + t.Row.ID + "/" + t.Claim + ".tar.zst"
}

// Released implements lifecycle.Admitter.
func (v *Service) Released(a lifecycle.Action) {
	if a == lifecycle.Save {
		<-v.saving
	}
}

// usedElsewhere reports whether another process may be starting a command in a sandbox that would be frozen.
// A backend may lose a sandbox that is frozen at that moment (see executor/docker), and it only serialises
// the calls of one process. The other process can save the sandbox instead. No command starts after a lease
// has ended, so the wait is then limited to the time that a start takes.
func (v *Service) usedElsewhere(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
	if s.Phase != sandbox.PhaseAwake || s.Desired == ledger.Gone && tx.Now > s.Ending.At.Add(micro.SpanOf(startLimit)) {
		return false, nil
	}
	holders, err := tx.Holds().Holders(s.ID)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(holders, func(h string) bool { return !v.Uses(h) }), nil
}

// Act implements lifecycle.Actor: it freezes and saves.
func (v *Service) Act(ctx context.Context, t *lifecycle.Step) (done lifecycle.Done, isOwn bool) {
	var a snapshotstore.Archive
	unread := true
	switch t.Action {
	case lifecycle.Freeze:
		done = v.freeze(ctx, t)
	case lifecycle.Save:
		a, unread = v.save(ctx, t, &done)
		done.Settle = func(tx *ledger.Tx, s *ledger.Sandbox) error { return v.saved(tx, s, t, a) }
	default:
		return done, false
	}
	away := t.Last() && unread && sandbox.IsRetryable(done.Err) && !lifecycle.AnswersNow(ctx, t.On)
	done.Failed = func(tx *ledger.Tx, s *ledger.Sandbox) error { return v.unsaved(tx, s, t, done.Err, away) }
	return done, true
}

// save copies /data of a sandbox to the store. For a checkpoint the sandbox is frozen while it is read. unread: the
// save failed before the store was involved.
func (v *Service) save(ctx context.Context, t *lifecycle.Step,
	done *lifecycle.Done) (a snapshotstore.Archive, unread bool) {
	ctx, cancel := v.untilClose(ctx, saveTimeout)
	defer cancel()
	if v.Objects == nil {
		done.Err = errNoStore
		return a, false
	}
	if !t.Last() {
		wanted, stop := v.Core.WhileWanted(ctx, t.Row.ID, errReplaced)
		defer stop()
		defer func() {
			if done.Err != nil && errors.Is(context.Cause(wanted), errReplaced) {
				done.Err = errReplaced
			}
		}()
		ctx = wanted
	}
	data, err := t.On.Export(ctx, t.Handle)
	if err != nil {
		done.Err = err
		return a, true
	}
	reading := &exported{ReadCloser: data, atEnd: func() { v.letUse(ctx, t) }}
	a, err = v.Objects.Save(ctx, v.objectOf(t), reading, t.Row.Snapshot.Spec.Limit())
	if thawed := data.Close(); thawed != nil && !t.Last() {
		// The sandbox is wanted awake: its next use thaws it.
		v.Log.WarnContext(ctx, "snapshots: thawing a sandbox after a checkpoint failed",
			lifecycle.About(&t.Row), "error", thawed)
		done.Stuck = true
	}
	if reading.err != nil {
		done.Err = reading.err
		return a, true
	}
	if err != nil {
		done.Err = storeError(err)
	}
	return a, false
}

// errReplaced: the lease ended during a checkpoint, and its last save replaces the checkpoint. The sandbox runs until
// then, so its end must not wait for an upload.
var errReplaced = sandbox.Errorf(sandbox.Unavailable, "the lease ended during a checkpoint: its last save follows")

// freeze stops all processes of a sandbox. A sandbox that has already stopped counts as frozen.
func (v *Service) freeze(ctx context.Context, t *lifecycle.Step) (done lifecycle.Done) {
	ctx, cancel := v.untilClose(ctx, freezeTimeout)
	defer cancel()
	done.Used = v.Core.Sampler.Sample(ctx, t)
	done.Err = v.Core.StandStill(ctx, t)
	done.Frozen = done.Err == nil
	return done
}

// exported is a stream of /data. It keeps its own error, to tell it from errors of the store.
type exported struct {
	io.ReadCloser
	atEnd func()
	err   error
}

func (r *exported) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		if r.atEnd != nil {
			r.atEnd()
		}
		r.atEnd = nil
	case err != nil:
		r.err = err
	}
	return n, err
}

// letUse records that a sandbox runs again during its save, so that uses do not wait for the upload.
func (v *Service) letUse(ctx context.Context, t *lifecycle.Step) {
	if t.Last() || t.Row.Phase != sandbox.PhaseAwake {
		return
	}
	err := v.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Update(t.Row.ID, func(s *ledger.Sandbox) error {
			if s.Claim.Token == t.Claim {
				s.Claim.For = string(lifecycle.Upload)
			}
			return nil
		})
	})
	if err != nil { // uses wait a little longer
		v.Log.WarnContext(ctx, "snapshots: recording that a sandbox runs again failed", lifecycle.About(&t.Row), "error", err)
	}
}

// errNoStore: the ledger's environments keep snapshots, but this service has no snapshot store.
var errNoStore = &sandbox.Error{Code: sandbox.Unavailable,
	Message: "this service has no store for snapshots of /data, and there is no default with a ledger in " +
		"PostgreSQL: name a bucket that all replicas can reach (sandbox serve --state-url, or state_url of the provider)"}

// storeError gives an error of the snapshot store a code that implies nothing about the sandbox.
func storeError(err error) error {
	switch code := sandbox.CodeOf(err); {
	case code == sandbox.Invalid && sandbox.ReasonOf(err) == sandbox.ReasonResourceLimitExceeded:
		return err
	case code == sandbox.NotFound, code == sandbox.Invalid, code == sandbox.Internal:
		return sandbox.Errorf(sandbox.Failed, "%w", err)
	default:
		return err
	}
}

// untilClose limits a long call by d and by the service's life. Another process repeats an interrupted call.
func (v *Service) untilClose(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	stop := context.AfterFunc(v.Life, cancel)
	return ctx, func() { stop(); cancel() }
}

// saved publishes the result of a save.
func (v *Service) saved(tx *ledger.Tx, s *ledger.Sandbox, t *lifecycle.Step, a snapshotstore.Archive) error {
	st := &s.Snapshot
	if !s.Snapshot.Holds() { // the hold was given up meanwhile: the object stays marked for deletion
		return nil
	}
	row := &bucketobjects.Snapshot{
		Key:           st.Key,
		AgentDID:      s.AgentDID,
		EnvironmentID: s.EnvironmentID,
		SandboxID:     s.ID,
		Generation:    s.Generation,
		SavedAt:       t.Began,
		Object:        a.Object,
		SHA256:        a.SHA256,
		Bytes:         a.Bytes,
		UnpackedBytes: a.Size,
		Files:         a.Files,
		Skipped:       a.Skipped,
	}
	if err := bucketobjects.In(tx).Publish(row, tx.Now.Add(micro.SpanOf(KeepReplaced))); err != nil {
		return err
	}
	st.Save(t.Began)
	data := map[string]any{
		"key":            st.Key,
		"sha256":         a.SHA256,
		"bytes":          a.Bytes,
		"unpacked_bytes": a.Size,
		"files":          a.Files,
		"last":           t.Last(),
	}
	if a.Skipped > 0 {
		data["skipped"] = a.Skipped
	}
	if err := tx.AppendSandboxEvent(s, sandbox.EventSnapshotSaved, data); err != nil || !t.Last() {
		return err
	}
	return letGo(tx, s, sandbox.RoleDone)
}

// unsaved records a failed save. A failed checkpoint does not end the lease. After a failed last save, the
// environment's on_persist_failure decides how long the sandbox is kept. away: the sandbox's backend does not answer.
func (v *Service) unsaved(tx *ledger.Tx, s *ledger.Sandbox, t *lifecycle.Step, cause error, away bool) error {
	st := &s.Snapshot
	if v.Life.Err() != nil || errors.Is(cause, errReplaced) {
		return nil //nolint:nilerr // interrupted: the next step repeats it
	}
	code := sandbox.CodeOf(cause)
	isNew := st.FailingSince == 0 || t.Last() && s.Schedule.Attempts == 0
	st.Fail(cause, t.Began, tx.Now)
	if isNew {
		data := map[string]any{"key": st.Key, "code": code, "error": cause.Error(), "last": t.Last()}
		if err := tx.AppendSandboxEvent(s, sandbox.EventSnapshotSaveFailed, data); err != nil {
			return err
		}
	}
	if !t.Last() {
		v.Log.Warn("snapshots: a checkpoint failed", lifecycle.About(s), "error", cause)
		return nil
	}
	s.Schedule.Fail(cause)
	switch {
	case code == sandbox.NotFound:
		s.Schedule.Succeed()
		return v.Vanished(tx, s)
	case away: // the sandbox could not be destroyed either
	case givesUp(s, tx.Now):
		s.Schedule.Succeed()
		return lose(tx, s, fmt.Sprintf(
			"its data could not be saved and is given up (%s): %s", st.Spec.OnPersistFailure, cause))
	}
	s.Schedule.DueAt = min(tx.Now.Add(micro.SpanOf(lifecycle.Backoff(s.Schedule.Attempts))),
		max(givesUpAt(s), tx.Now.Add(micro.SpanOf(lifecycle.FirstRetry))))
	v.Log.Warn("snapshots: the last save failed and will be retried", lifecycle.About(s),
		"attempt", s.Schedule.Attempts, "error", cause)
	return nil
}

// givesUpAt returns when the sandbox of an ended lease is destroyed without a save.
func givesUpAt(s *ledger.Sandbox) micro.Time {
	return max(s.Snapshot.FailingSince, s.Ending.At).Add(micro.SpanOf(s.Snapshot.Spec.RetryFor))
}

// givesUp reports whether the attempts of the last save took too long.
func givesUp(s *ledger.Sandbox, now micro.Time) bool {
	if s.Snapshot.Spec.OnPersistFailure == sandbox.PersistDiscard {
		return s.Schedule.Attempts >= sandbox.DiscardAttempts
	}
	return givesUpAt(s) <= now
}

// Collect deletes objects that no snapshot references, or that an interrupted save may have left. Any number
// of processes may call it at any time.
func (v *Service) Collect(ctx context.Context) error {
	if v.Objects == nil {
		return nil
	}
	for {
		var due []string
		err := v.Ledger.Read(ctx, func(tx *ledger.Tx) (err error) {
			due, err = bucketobjects.In(tx).DueObjects(collectBatch)
			return err
		})
		if err != nil || len(due) == 0 {
			return err
		}
		if err := v.deleteObjects(ctx, due); err != nil {
			return err
		}
	}
}

// deleteObjects deletes objects until one fails. The others would fail too and are retried later.
func (v *Service) deleteObjects(ctx context.Context, objects []string) error {
	var (
		gone []string
		err  error
	)
	for _, object := range objects {
		bounded, cancel := context.WithTimeout(ctx, deleteTimeout)
		err = v.Objects.Delete(bounded, object)
		cancel()
		if err != nil {
			break
		}
		gone = append(gone, object)
	}
	if len(gone) == 0 {
		return err
	}
	return errors.Join(err,
		v.Ledger.Write(ctx, func(tx *ledger.Tx) error { return bucketobjects.In(tx).ForgetObjects(gone) }))
}
