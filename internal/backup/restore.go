package backup

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/backupfile"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// sqliteMagic is the start of a ledger's file.
const sqliteMagic = "SQLite format 3\x00"

// Check verifies a backup, and looks for the keys and snapshots that it needs: in the file, and otherwise where c says.
// It restores nothing. Errors: Invalid for a damaged file or one that is not a backup; Conflict for a newer program's;
// Unavailable.
func Check(ctx context.Context, file string, c Config) (Report, error) {
	return examined(ctx, file, c, func(*examination) error { return nil })
}

// Restore creates the ledger from a backup, and writes its keys and objects. It first checks everything, and writes
// nothing if parts are missing, unless incomplete is set. The ledger comes last: after an error, Restore can run again.
// Errors: as Check; Conflict if there is a ledger, or a key file without the backup's keys.
func Restore(ctx context.Context, file string, c Config, incomplete bool) (r Report, isRestored bool, err error) {
	r, err = examined(ctx, file, c, func(x *examination) error {
		if err := errors.Join(backupfile.CheckVacant(ctx, c.LedgerURL), x.checkKeyFile()); err != nil {
			return err
		}
		if len(x.Missing) > 0 && !incomplete {
			return nil
		}
		isRestored = true
		return x.restore(ctx)
	})
	return r, isRestored && err == nil, err
}

// examination is a verified backup.
type examination struct {
	Report
	Config
	ledgerFile string
	// keyFile holds the keys of an archive, "" if it has none.
	keyFile string
	archive *archiveReader // nil for a ledger alone
}

// examined verifies a backup, and calls then with it.
func examined(ctx context.Context, file string, c Config, then func(*examination) error) (r Report, err error) {
	f, err := os.Open(file) // #nosec G304 -- the operator names the file
	if err != nil {
		return r, sandbox.Errorf(sandbox.Invalid, "reading the backup: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	x := &examination{Config: c, ledgerFile: file}
	magic := make([]byte, len(sqliteMagic))
	if n, _ := io.ReadFull(f, magic); n > 0 && string(magic) != sqliteMagic {
		dir, tempErr := os.MkdirTemp("", "sandbox-restore-*")
		if tempErr != nil {
			return r, sandbox.Errorf(sandbox.Unavailable, "creating a directory for the backup: %w", tempErr)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		x.archive, x.ledgerFile = &archiveReader{file: f}, filepath.Join(dir, ledgerMember)
		if err := x.archive.verify(ctx, dir); err != nil {
			return r, err
		}
		if _, there := x.archive.members[keysMember]; there {
			x.keyFile = filepath.Join(dir, keysMember)
		}
	}
	if err := x.examine(ctx, file); err != nil {
		return r, err
	}
	return x.Report, then(x)
}

// examine fills in the report.
func (x *examination) examine(ctx context.Context, file string) (err error) {
	if x.Info, err = backupfile.Examine(ctx, x.ledgerFile); err != nil {
		return err
	}
	x.count()
	if a := x.archive; a != nil {
		info, err := a.file.Stat()
		if err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "reading the backup: %w", err)
		}
		x.File, x.Bytes = file, info.Size()
		if a.LedgerID != x.LedgerID || a.Schema != x.Schema {
			return a.invalid("its manifest is of another ledger")
		}
		x.Report.WithoutKeys, x.Report.WithoutSavedData = a.Manifest.WithoutKeys, a.Manifest.WithoutSavedData
	}
	x.Keys = x.keyFile != ""
	switch {
	case !x.Keys:
		x.lookForKeys(x.SecretKeyFile)
	case x.SecretKeyFile == "":
		x.Missing = append(x.Missing, "a file for the keys: set --secret-key-file")
	default:
		x.lookForKeys(x.keyFile)
	}
	return x.lookForObjects(ctx)
}

// lookForObjects compares the archive's objects with the ledger, and looks in the bucket for the other snapshots.
func (x *examination) lookForObjects(ctx context.Context) (err error) {
	hasData := x.archive != nil && !x.Report.WithoutSavedData
	var elsewhere []backupfile.Object
	for _, o := range x.Objects {
		switch m, there := x.member(o); {
		case there && (m.Bytes != o.Bytes || o.SHA256 != "" && m.SHA256 != o.SHA256):
			return x.archive.invalid("its member %s is not what the ledger saved", m.Name)
		case there:
			x.holds(o)
		case o.SnapshotOf != "":
			elsewhere = append(elsewhere, o)
		case hasData:
			x.MissingOutputs++
		}
	}
	if x.archive != nil && x.Snapshots+x.Outputs != x.archive.objects() {
		return x.archive.invalid("it has objects that its ledger does not name")
	}
	switch {
	case x.SnapshotURL == "" && x.States+x.Outputs > 0:
		x.Missing = append(x.Missing, noBucket)
		return nil
	case len(elsewhere) == 0:
		return nil
	}
	bucket, err := snapshotstore.Open(ctx, x.SnapshotURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bucket.Close()) }()
	for _, o := range elsewhere {
		there, err := bucket.Has(ctx, o.Object)
		if err != nil {
			return err
		}
		if !there {
			x.lacks(o, bucket.String(), sandbox.NotFound)
		}
	}
	return nil
}

// member returns the member of the archive that holds an object.
func (x *examination) member(o backupfile.Object) (m Member, there bool) {
	if x.archive == nil {
		return m, false
	}
	m, there = x.archive.members[dataMembers+o.Object]
	return m, there
}

// checkKeyFile refuses a key file that lacks keys of the archive, because restore does not replace it.
func (x *examination) checkKeyFile() error {
	if x.keyFile == "" || x.SecretKeyFile == "" {
		return nil
	}
	missing, err := seal.Missing(x.SecretKeyFile, x.keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(missing) > 0 {
		err = sandbox.Errorf(sandbox.Conflict, "%s exists without the backup's key %s, and is not overwritten: move it away",
			x.SecretKeyFile, strings.Join(missing, ", "))
	}
	return err
}

// restore writes the objects, the keys and the ledger.
func (x *examination) restore(ctx context.Context) error {
	if x.Snapshots+x.Outputs > 0 && x.SnapshotURL != "" {
		if err := x.restoreObjects(ctx); err != nil {
			return err
		}
	}
	if x.keyFile != "" && x.SecretKeyFile != "" {
		if err := x.restoreKeys(); err != nil {
			return err
		}
	}
	_, err := backupfile.Restore(ctx, x.ledgerFile, x.LedgerURL, ledger.Options{})
	return err
}

func (x *examination) restoreObjects(ctx context.Context) (err error) {
	bucket, err := snapshotstore.Open(ctx, x.SnapshotURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bucket.Close()) }()
	return x.archive.each(ctx, func(h *tar.Header, content io.Reader) error {
		if object, is := strings.CutPrefix(h.Name, dataMembers); is {
			return bucket.Put(ctx, object, content)
		}
		return nil
	})
}

// restoreKeys writes the key file unless it exists. An existing one has the keys.
func (x *examination) restoreKeys() error {
	if _, err := os.Stat(x.SecretKeyFile); err == nil {
		return nil
	}
	text, err := seal.Contents(x.keyFile)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(x.SecretKeyFile), 0o700); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating the directory of %s: %w", x.SecretKeyFile, err)
	}
	return private.Create(x.SecretKeyFile, func(temporary string) error {
		if err := os.WriteFile(temporary, text, 0o600); err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "writing %s: %w", x.SecretKeyFile, err)
		}
		return nil
	})
}

// objects returns the number of members that are objects.
func (r *archiveReader) objects() (n int) {
	for name := range r.members {
		if strings.HasPrefix(name, dataMembers) {
			n++
		}
	}
	return n
}
