package snapshots

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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// restoreTimeout limits the time to fill /data.
const restoreTimeout = 10 * time.Minute

// Prepare implements lifecycle.Preparer: /data starts with the latest snapshot, or with its environment's
// initial files.
func (v *Service) Prepare(tx *ledger.Tx, s *ledger.Sandbox, b lifecycle.Beginning) (lifecycle.Fill, error) {
	if b.Action != lifecycle.Spawn && b.Action != lifecycle.Assign {
		return nil, nil
	}
	var saved *bucketobjects.Snapshot
	if s.Snapshot.Key != "" {
		var err error
		if saved, err = beginsWith(tx, &s.Snapshot); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, t *lifecycle.Step) (lifecycle.Settle, error) {
		if !b.InUse {
			if err := v.fill(ctx, t, b.Spec, saved); err != nil {
				return nil, err
			}
		}
		return func(tx *ledger.Tx, s *ledger.Sandbox) error { return restored(tx, s, saved) }, nil
	}, nil
}

// fill fills /data of an unused sandbox. saved is nil if there is no snapshot.
func (v *Service) fill(ctx context.Context, t *lifecycle.Step, spec sandbox.EnvironmentSpec,
	saved *bucketobjects.Snapshot) error {
	if !spec.HasInitialData() && t.Row.Snapshot.Key == "" {
		return nil
	}
	ctx, cancel := v.untilClose(ctx, restoreTimeout)
	defer cancel()
	if saved == nil {
		return t.On.CopyTo(ctx, t.Handle, sandbox.DataDir, seedTar(spec.InitialData, spec.Skills))
	}
	wanted, stop := v.Core.WhileWanted(ctx, t.Row.ID, errUnwanted)
	defer stop()
	if err := v.restore(wanted, t, saved); errors.Is(context.Cause(wanted), errUnwanted) {
		return errUnwanted
	} else if err != nil {
		return err
	}
	return t.On.CopyTo(ctx, t.Handle, sandbox.DataDir, seedTar(nil, spec.Skills))
}

// errUnwanted: the lease ended before its snapshot was restored.
var errUnwanted = sandbox.Errorf(sandbox.Failed, "the lease ended before its snapshot was restored")

// restored records what a generation starts with.
func restored(tx *ledger.Tx, s *ledger.Sandbox, saved *bucketobjects.Snapshot) error {
	var from *sandbox.Snapshot
	if saved != nil {
		domain := saved.Domain()
		from = &domain
	}
	s.Snapshot.Restored = from
	event := sandbox.EventSnapshotRestored
	if s.Snapshot.Role == sandbox.RoleCopy {
		event = sandbox.EventSnapshotCopied
	} else if from == nil {
		return nil
	}
	return tx.AppendSandboxEvent(s, event, map[string]any{"key": s.Snapshot.Key, "from": from})
}

// restore unpacks a snapshot. A lease never gets a sandbox without its snapshot: a permanent read error fails
// the lease.
func (v *Service) restore(ctx context.Context, t *lifecycle.Step, saved *bucketobjects.Snapshot) error {
	if v.Objects == nil {
		return errNoStore
	}
	stream, err := v.Objects.Load(ctx, snapshotstore.Archive{
		Object:  saved.Object,
		SHA256:  saved.SHA256,
		Bytes:   saved.Bytes,
		Size:    saved.UnpackedBytes,
		Files:   saved.Files,
		Skipped: saved.Skipped,
	})
	if err == nil {
		var copied error
		if err, copied = driver.Unpack(ctx, t.On, t.Handle, sandbox.DataDir, stream); err == nil {
			return copied
		}
	}
	if err = storeError(err); sandbox.IsRetryable(err) {
		return fmt.Errorf("restoring the snapshot of %s: %w", saved.Key, err)
	}
	return sandbox.Errorf(sandbox.Failed, "the snapshot of %s, saved at %s, cannot be restored: %w; the lease gets no "+
		"sandbox without it: restore the object in the store, or delete the snapshot to start empty",
		saved.Key, saved.SavedAt.Time().Format(time.RFC3339), err).WithReason(sandbox.ReasonCreationFailed)
}

// seedTar returns a tar stream with the layout of /data and its initial files.
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
	for _, dir := range sandbox.DataLayout {
		addDirectory(w, made, dir)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		addDirectory(w, made, path.Dir(name))
		addEntry(w, &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}, files[name])
	}
	if err := w.Close(); err != nil {
		panic(err) // writing to a buffer never fails
	}
	return &b
}

// addDirectory adds a directory and its parents, once each.
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
		panic(err) // sandbox.EnvironmentSpec.Validate checked the names, and writing to a buffer never fails
	}
	if _, err := io.WriteString(w, content); err != nil {
		panic(err)
	}
}
