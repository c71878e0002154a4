package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/backupfile"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config says where a reconciler's data is.
type Config struct {
	LedgerURL string
	// SecretKeyFile and SnapshotURL are "" if there are none.
	SecretKeyFile, SnapshotURL string
	// WithoutKeys and WithoutSavedData leave them out of an archive. Restore ignores both.
	WithoutKeys, WithoutSavedData bool
	// Version is the version of this program.
	Version string
}

// Report says what a backup holds, or what was restored.
type Report struct {
	backupfile.Info
	// Keys says that the keys are in the file. Snapshots and Outputs count the objects in it.
	Keys      bool `json:"keys"`
	Snapshots int  `json:"snapshots"`
	Outputs   int  `json:"outputs"`
	// States counts the snapshots that the ledger names.
	States int `json:"states"`
	// WithoutKeys and WithoutSavedData say what the operator left out.
	WithoutKeys      bool `json:"without_keys,omitempty"`
	WithoutSavedData bool `json:"without_saved_data,omitempty"`
	// Missing lists the keys and snapshots that were not found. MissingOutputs counts lost outputs of commands, which can
	// no longer be read; nothing else depends on them.
	Missing        []string `json:"missing,omitempty"`
	MissingOutputs int      `json:"missing_outputs,omitempty"`
}

// Create writes an archive to a new file that only its owner may read, even while reconcilers serve the ledger. Parts
// that cannot be found are listed in the report and in the manifest. The memory that it uses depends only on the number
// of objects. Errors: as backupfile.Take; Unavailable.
func Create(ctx context.Context, file string, c Config) (r Report, err error) {
	r = Report{WithoutKeys: c.WithoutKeys, WithoutSavedData: c.WithoutSavedData}
	err = private.Create(file, func(temporary string) error { return r.create(ctx, temporary, c) })
	if err != nil {
		return Report{}, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return r, sandbox.Errorf(sandbox.Unavailable, "reading the backup: %w", err)
	}
	r.File, r.Bytes = file, info.Size()
	return r, nil
}

// create copies the ledger beside the archive, and writes the archive.
func (r *Report) create(ctx context.Context, temporary string, c Config) (err error) {
	copied := temporary + ".ledger"
	if err := private.Remove(copied); err != nil { // left by a program that was killed
		return err
	}
	if r.Info, err = backupfile.Take(ctx, c.LedgerURL, copied, ledger.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, private.Remove(copied)) }()
	return r.write(ctx, copied, temporary, c)
}

// write writes the archive.
func (r *Report) write(ctx context.Context, copied, to string, c Config) (err error) {
	f, err := os.OpenFile(to, os.O_WRONLY, 0) // #nosec G304 -- the operator names the file
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "writing the backup: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := &archiveWriter{tar: tar.NewWriter(f), Manifest: Manifest{
		Format:           format,
		Version:          c.Version,
		LedgerID:         r.LedgerID,
		Schema:           r.Schema,
		TakenAt:          r.TakenAt,
		WithoutKeys:      c.WithoutKeys,
		WithoutSavedData: c.WithoutSavedData,
	}}
	snapshot, err := os.Open(copied) // #nosec G304 -- the operator names the file
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "reading the ledger's copy: %w", err)
	}
	err = w.add(ctx, ledgerMember, r.Bytes, snapshot)
	if err = errors.Join(err, snapshot.Close()); err != nil {
		return err
	}
	if !c.WithoutKeys {
		if err := r.addKeys(ctx, w, c.SecretKeyFile); err != nil {
			return err
		}
	}
	r.count()
	if !c.WithoutSavedData {
		if err := r.addObjects(ctx, w, c.SnapshotURL); err != nil {
			return err
		}
	}
	w.Missing = r.Missing
	return w.close(ctx)
}

// count counts the snapshots that the ledger names.
func (r *Report) count() {
	for _, o := range r.Objects {
		if o.SnapshotOf != "" {
			r.States++
		}
	}
}

// addKeys adds the key file. A ledger without secrets has none.
func (r *Report) addKeys(ctx context.Context, w *archiveWriter, file string) error {
	if file != "" {
		text, err := seal.Contents(file)
		if err == nil {
			r.Keys = true
			err = w.add(ctx, keysMember, int64(len(text)), bytes.NewReader(text))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	r.lookForKeys(file)
	return nil
}

// lookForKeys adds to Missing the keys that the ledger's secrets need and the file lacks.
func (r *Report) lookForKeys(file string) {
	var keys *seal.Keys
	if file != "" {
		keys = seal.InFile(file, false)
	}
	for _, sealed := range r.Sealed {
		if err := keys.Has(sealed); err != nil {
			if line := "a key: " + err.Error(); !slices.Contains(r.Missing, line) {
				r.Missing = append(r.Missing, line)
			}
		}
	}
}

// addObjects adds the objects that the ledger names in the bucket.
func (r *Report) addObjects(ctx context.Context, w *archiveWriter, url string) (err error) {
	if len(r.Objects) == 0 {
		return nil
	}
	if url == "" {
		r.Missing = append(r.Missing, noBucket)
		return nil
	}
	bucket, err := snapshotstore.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bucket.Close()) }()
	for _, o := range r.Objects {
		content, err := fetch(ctx, bucket, o)
		switch code := sandbox.CodeOf(err); {
		case code == sandbox.NotFound || code == sandbox.Failed:
			r.lacks(o, bucket.String(), code)
			continue
		case err != nil:
			return err
		}
		err = w.add(ctx, dataMembers+o.Object, o.Bytes, content)
		content.Discard()
		if err != nil {
			return err
		}
		r.holds(o)
	}
	return nil
}

const noBucket = "the bucket of the saved data: set --state-url"

// holds counts an object of the archive.
func (r *Report) holds(o backupfile.Object) {
	if o.SnapshotOf == "" {
		r.Outputs++
	} else {
		r.Snapshots++
	}
}

// lacks reports an object that is not in the archive.
func (r *Report) lacks(o backupfile.Object, bucket string, why sandbox.Code) {
	switch {
	case o.SnapshotOf == "":
		r.MissingOutputs++
	case why == sandbox.NotFound:
		r.Missing = append(r.Missing, fmt.Sprintf("snapshot of %s: %s is not in %s", o.SnapshotOf, o.Object, bucket))
	default:
		r.Missing = append(r.Missing, fmt.Sprintf("snapshot of %s: %s in %s is damaged", o.SnapshotOf, o.Object, bucket))
	}
}

// fetch copies an object to a spool and verifies it, so that only a whole one begins a member. Errors: NotFound; Failed
// if the content differs from what was stored; Unavailable.
func fetch(ctx context.Context, bucket *snapshotstore.Store, o backupfile.Object) (*snapshotstore.Spool, error) {
	if o.SnapshotOf != "" {
		return bucket.Fetch(ctx, snapshotstore.Archive{Object: o.Object, SHA256: o.SHA256, Bytes: o.Bytes})
	}
	content, err := bucket.Open(ctx, o.Object, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }() // only read
	spool, err := snapshotstore.NewSpool()
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(spool, io.LimitReader(content, o.Bytes+1))
	switch {
	case err != nil:
		err = sandbox.Errorf(sandbox.Unavailable, "reading %s: %w (retry)", o.Object, err)
	case n != o.Bytes:
		err = sandbox.Errorf(sandbox.Failed, "object %s is not what was stored", o.Object)
	default:
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		spool.Discard()
		return nil, err
	}
	return spool, nil
}
