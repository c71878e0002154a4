package leasing

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/state"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What the engine does with a sandbox's /data and the store of states.
const (
	saveTimeout    = 10 * time.Minute
	restoreTimeout = 10 * time.Minute
	deleteTimeout  = 30 * time.Second
	// abandonedFor is after how long an object is deleted whose save never came to an end: no save
	// lasts as long. retiredFor is how long a replaced one stays for those who are reading it.
	abandonedFor = time.Hour
	retiredFor   = 2 * restoreTimeout
	// savers bounds the saves of an engine at once, so that a store that hangs leaves most of the
	// loop's workers to everything else.
	savers = 6
	// startLimit is within what time a command has started for which a use was granted, and
	// elsewherePoll how often it is looked whether another engine still uses a sandbox.
	startLimit    = 5 * time.Second
	elsewherePoll = time.Second
	// collectBatch bounds what is deleted before that is recorded.
	collectBatch = 100
)

// takeSave claims a save. Its object is doomed before anything can be stored under it, so none is ever
// forgotten. While enough saves are under way it has to wait, and while another engine may be starting
// a command.
func (e *Engine) takeSave(tx *ledger.Tx, s *ledger.Sandbox) (*task, error) {
	if elsewhere, err := e.usedElsewhere(tx, s); err != nil || elsewhere {
		s.Schedule.DueAt = tx.Now.Add(ledger.SpanOf(elsewherePoll))
		return nil, err
	}
	select {
	case e.saving <- struct{}{}:
	default:
		s.Schedule.DueAt = tx.Now.Add(ledger.SpanOf(firstRetry))
		return nil, nil
	}
	t, err := e.reserve(tx, s, actSave)
	if err != nil {
		<-e.saving
		return nil, err
	}
	t.began = max(tx.Now, s.Snapshot.ChangedAt) // what is known to have changed is read
	t.object = e.store.ID() + "/" + s.ID + "/" + t.claim + ".tar.zst"
	s.Schedule.DueAt = tx.Now // should its process die, it is thawed at once
	err = tx.Snapshots().DoomObject(t.object, tx.Now.Add(ledger.SpanOf(abandonedFor)))
	if err != nil {
		<-e.saving
		return nil, err
	}
	return t, nil
}

// usedElsewhere reports whether another engine may be starting a command in a sandbox that would be
// frozen. A backend may lose a sandbox that is frozen just then (executor/docker, gates), and keeps apart
// only what one engine asks of it. The other engine can save it. After a lease has ended no command
// begins, so that is waited for only for as long as one takes to start.
func (e *Engine) usedElsewhere(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
	if s.Phase != sandbox.PhaseAwake || s.Desired == ledger.Gone && tx.Now > s.Ending.At.Add(ledger.SpanOf(startLimit)) {
		return false, nil
	}
	holders, err := tx.Holders(s.ID)
	if err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range holders {
		if _, own := e.holds[h]; !own {
			return true, nil
		}
	}
	return false, nil
}

// save takes /data from a sandbox to the store. The last time the sandbox is frozen first, for good;
// before, only while it is read.
func (e *Engine) save(ctx context.Context, x *backend, t *task, h driver.Handle) (out outcome) {
	ctx, cancel := e.untilClose(ctx, saveTimeout)
	defer cancel()
	if e.state == nil {
		out.err = errNoStore
		return out
	}
	if t.last() && t.row.Phase == sandbox.PhaseAwake {
		if out = e.freeze(ctx, x, h); out.err != nil {
			out.unread = true
			return out
		}
		out.frozen = true
	}
	data, err := x.Export(ctx, h)
	if err != nil {
		out.err, out.unread = err, true
		return out
	}
	reading := &exported{ReadCloser: data, atEnd: func() { e.letUse(ctx, t) }}
	a, err := e.state.Save(ctx, t.object, reading, t.row.Snapshot.Spec.Limit())
	if thawed := data.Close(); thawed != nil && !t.last() {
		// It is to be awake: its next use thaws it.
		e.log.WarnContext(ctx, "leasing: letting a sandbox go on after a checkpoint", about(&t.row), "error", thawed)
		out.stuck = true
	}
	if reading.err != nil {
		out.err, out.unread = reading.err, true
		return out
	}
	if err != nil {
		out.err = storeError(err)
		return out
	}
	out.saved = &a
	return out
}

// freeze stops every process of a sandbox. One that has ended itself counts as frozen.
func (e *Engine) freeze(ctx context.Context, x *backend, h driver.Handle) outcome {
	out := e.sample(ctx, x, h)
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	out.err = x.Sleep(ctx, h, sandbox.SleepPause)
	return out
}

// exported is a stream of /data. It remembers its own error, which is none of the store's.
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

// letUse notes that a sandbox which is being saved runs again: uses do not wait for the upload.
func (e *Engine) letUse(ctx context.Context, t *task) {
	if t.last() || t.row.Phase != sandbox.PhaseAwake {
		return
	}
	err := e.store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Update(t.row.ID, func(s *ledger.Sandbox) error {
			if s.Claim.Token == t.claim {
				s.Claim.For = uploading
			}
			return nil
		})
	})
	if err != nil { // they wait a little longer
		e.log.WarnContext(ctx, "leasing: noting that a sandbox runs again", about(&t.row), "error", err)
	}
}

// errNoStore: the ledger's environments keep state and this engine was given no store.
var errNoStore = &sandbox.Error{Code: sandbox.Unavailable,
	Message: "this service was told of no bucket for the state of /data, and has no default beside a ledger in PostgreSQL: name one that all its replicas reach (reconciler serve --state-url, or state_url of the provider)"}

// storeError gives an error of the store of states a code that says nothing about a sandbox.
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

// prepare fills /data of a sandbox that is still unused. It may be done again after it was broken off.
func (e *Engine) prepare(ctx context.Context, x *backend, h driver.Handle, own endowment) error {
	if !own.spec.Seeded() && !own.keepsState {
		return nil
	}
	ctx, cancel := e.untilClose(ctx, restoreTimeout)
	defer cancel()
	if own.saved == nil {
		return x.CopyTo(ctx, h, sandbox.StateDir, seedTar(own.spec.InitialState, own.spec.Skills))
	}
	if err := e.restore(ctx, x, h, own.saved); err != nil {
		return err
	}
	return x.CopyTo(ctx, h, sandbox.StateDir, seedTar(nil, own.spec.Skills))
}

// restore unpacks a saved state. A sandbox is never given out without what was saved for it: what
// cannot be read for good fails the lease.
func (e *Engine) restore(ctx context.Context, x *backend, h driver.Handle, saved *ledger.SavedState) error {
	if e.state == nil {
		return errNoStore
	}
	stream, err := e.state.Load(ctx, state.Archive{Object: saved.Object, SHA256: saved.SHA256, Bytes: saved.Bytes,
		Size: saved.UnpackedBytes, Files: saved.Files, Skipped: saved.Skipped})
	if err == nil {
		reading := &exported{ReadCloser: stream}
		copied := x.CopyTo(ctx, h, sandbox.StateDir, reading)
		closed := stream.Close()
		if reading.err == nil {
			return errors.Join(copied, closed)
		}
		err = reading.err
	}
	if err = storeError(err); sandbox.IsRetryable(err) {
		return fmt.Errorf("restoring the state of %s: %w", saved.Key, err)
	}
	return sandbox.Errorf(sandbox.Failed, "the state of %s, saved at %s, cannot be restored: %w; no sandbox is given out without it: bring the object back, or delete the saved state to begin anew",
		saved.Key, saved.SavedAt.Time().Format(timeFormat), err).WithReason(sandbox.ReasonCreationFailed)
}

// seedTar is the layout of /data with its first files.
func seedTar(initial, skills map[string]string) io.Reader {
	files := maps.Clone(initial)
	if files == nil {
		files = make(map[string]string)
	}
	for slug, prompt := range skills {
		files[sandbox.SkillFile(slug)] = prompt
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := make(map[string]bool)
	for _, dir := range sandbox.StateLayout {
		addDirectory(w, made, dir)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		addDirectory(w, made, path.Dir(name))
		addEntry(w, &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}, files[name])
	}
	if err := w.Close(); err != nil {
		panic(err) // a buffer takes everything
	}
	return &b
}

// addDirectory writes a directory and those above it, once.
func addDirectory(w *tar.Writer, made map[string]bool, dir string) {
	if dir == "." || made[dir] {
		return
	}
	addDirectory(w, made, path.Dir(dir))
	made[dir] = true
	addEntry(w, &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, "")
}

func addEntry(w *tar.Writer, h *tar.Header, content string) {
	if err := w.WriteHeader(h); err != nil {
		panic(err) // names were checked (sandbox.EnvironmentSpec.Validate), and a buffer takes everything
	}
	if _, err := io.WriteString(w, content); err != nil {
		panic(err)
	}
}

// untilClose bounds a long call by a time and by the engine's life: it is done again elsewhere.
func (e *Engine) untilClose(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	stop := context.AfterFunc(e.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// CollectStates deletes objects that no saved state names any more, or that a broken-off save may have
// left. Any number of engines may do it at any time.
func (e *Engine) CollectStates(ctx context.Context) error {
	if e.state == nil {
		return nil
	}
	for {
		var due []string
		err := e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
			due, err = tx.Snapshots().DueObjects(collectBatch)
			return err
		})
		if err != nil || len(due) == 0 {
			return err
		}
		if err := e.deleteObjects(ctx, due); err != nil {
			return err
		}
	}
}

// deleteObjects deletes objects until one cannot be: the others would fail as well, and are tried again.
func (e *Engine) deleteObjects(ctx context.Context, objects []string) error {
	var (
		gone []string
		err  error
	)
	for _, object := range objects {
		bounded, cancel := context.WithTimeout(ctx, deleteTimeout)
		err = e.state.Delete(bounded, object)
		cancel()
		if err != nil {
			break
		}
		gone = append(gone, object)
	}
	if len(gone) == 0 {
		return err
	}
	return errors.Join(err, e.store.Write(ctx, func(tx *ledger.Tx) error { return tx.Snapshots().ForgetObjects(gone) }))
}
