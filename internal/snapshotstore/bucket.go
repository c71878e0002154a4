package snapshotstore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/gcerrors"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// String is the bucket's URL, without its query.
func (s *Store) String() string { return s.name }

// Open opens the bucket that a URL names. It does not connect. Errors: Invalid if the URL cannot be used; Unavailable
// if a directory cannot be created.
//
//	file:///var/lib/sandbox/state   a directory, created if missing; only its owner can read it
//	s3://name?region=eu-west-1      a bucket of Amazon S3 or a compatible service (s3.go)
//	mem://                          this process's memory, for tests
func Open(ctx context.Context, rawURL string) (*Store, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "file":
		return openDirectory(u)
	case "s3":
		return openS3(ctx, u)
	default:
		return &Store{bucket: memblob.OpenBucket(nil), name: "mem://"}, nil
	}
}

// Check checks the form of a bucket's URL. Errors: Invalid.
func Check(rawURL string) error {
	_, err := parse(rawURL)
	return err
}

func parse(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid,
			"snapshot store: the bucket's URL cannot be read (is a character missing its %%-escape?)")
	}
	if u.User != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "snapshot store: the bucket's URL holds credentials, which would show "+
			"in logs: give them by the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)")
	}
	switch u.Scheme {
	case "file", "s3", "mem":
		return u, nil
	default:
		return nil, sandbox.Errorf(sandbox.Invalid,
			"snapshot store: the URL %q must begin with file:// or s3://", u.Redacted())
	}
}

func openDirectory(u *url.URL) (*Store, error) {
	if (u.Host != "" && u.Host != "localhost") || !path.IsAbs(u.Path) || u.RawQuery != "" {
		return nil, sandbox.Errorf(sandbox.Invalid,
			"snapshot store: %s: a directory is named by an absolute path and nothing else, like file:///var/lib/sandbox/state",
			u)
	}
	dir := filepath.FromSlash(u.Path)
	if filepath.Separator != '/' { // file:///C:/state
		dir = strings.TrimPrefix(dir, string(filepath.Separator))
	}
	dir = filepath.Clean(dir)
	s := &Store{name: "file://" + u.Path, dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, s.unavailable(err)
	}
	var err error
	s.bucket, err = fileblob.OpenBucket(dir,
		&fileblob.Options{DirFileMode: 0o700, NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return nil, s.unavailable(err)
	}
	if err := errors.Join(syncDirectories(dir, filepath.Dir(dir)), sweep(dir)); err != nil {
		return nil, errors.Join(s.unavailable(err), s.bucket.Close())
	}
	return s, nil
}

func (s *Store) unavailable(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "snapshot store: open bucket %s: %w", s.name, err)
}

// strandedAge is the age above which a temporary file counts as left by a crash: no save takes that long.
const strandedAge = 24 * time.Hour

// sweep removes the temporary files that crashes have left in a directory.
func sweep(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(p) != ".tmp" {
			return ignoreAbsent(err)
		}
		info, err := d.Info()
		if err == nil && time.Since(info.ModTime()) > strandedAge {
			err = os.Remove(p)
		}
		return ignoreAbsent(err)
	})
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// publish stores an object. It becomes visible only when it is complete, and is on disk when publish returns.
func (s *Store) publish(ctx context.Context, object, contentType string, content io.Reader) error {
	if s.dir != "" { // the library would create a missing directory, even of an unmounted disk
		if err := s.look(ctx); err != nil {
			return err
		}
	}
	err := s.write(ctx, object, contentType, content)
	if gcerrors.Code(err) == gcerrors.NotFound { // there is no object yet, so the bucket is missing
		return gone(err)
	}
	return err
}

func (s *Store) write(ctx context.Context, object, contentType string, content io.Reader) error {
	ctx, cancel := context.WithCancel(ctx) // a writer that closes after its ctx ended stores nothing
	defer cancel()
	var file *os.File
	w, err := s.bucket.NewWriter(ctx, object, &blob.WriterOptions{
		ContentType: contentType,
		BeforeWrite: func(as func(any) bool) error {
			if as(&file) {
				return file.Chmod(0o600)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	if err == nil && file != nil { // the library renames without a sync
		err = file.Sync()
	}
	if err != nil {
		cancel()
		if closeErr := w.Close(); !errors.Is(closeErr, context.Canceled) {
			err = errors.Join(err, closeErr)
		}
		return err
	}
	if err := w.Close(); err != nil || file == nil {
		return err
	}
	return syncDirectories(filepath.Join(s.dir, filepath.Dir(filepath.FromSlash(object))), s.dir)
}

// syncDirectories syncs a directory and its parents up to top, so that new names in them survive a power cut.
func syncDirectories(dir, top string) error {
	for {
		if err := syncDirectory(dir); err != nil || dir == top {
			return err
		}
		dir = filepath.Dir(dir)
	}
}

func (s *Store) remove(ctx context.Context, object string) error {
	return s.absent(ctx, s.bucket.Delete(ctx, object))
}

// absent returns an error of a call, but replaces NotFound if the bucket itself is missing, such as an unmounted disk:
// then the object may still exist.
func (s *Store) absent(ctx context.Context, err error) error {
	if gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	if lookErr := s.look(ctx); lookErr != nil {
		return lookErr
	}
	return err
}

// look checks that the bucket exists.
func (s *Store) look(ctx context.Context) error {
	if s.dir != "" {
		if _, err := os.Stat(s.dir); err != nil {
			return gone(err)
		}
		return nil
	}
	ok, err := s.bucket.IsAccessible(ctx)
	switch {
	case gcerrors.Code(err) == gcerrors.PermissionDenied: // the bucket may not be listed, but it exists
		return nil
	case err == nil && !ok:
		return gone(errors.New("the service does not know it"))
	default:
		return err
	}
}

// Reach checks that the bucket answers. Errors: Unavailable.
func (s *Store) Reach(ctx context.Context) error { return s.failed("reach", "anything", s.look(ctx)) }

func gone(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "the bucket is not there: %w (is its name right, and its disk mounted?)",
		err)
}

// failed gives an error about an object its code, and says what was tried.
func (s *Store) failed(verb, object string, err error) error {
	if err == nil {
		return nil
	}
	code, hint := classify(err)
	return sandbox.Errorf(code, "snapshot store: %s %s in bucket %s: %w%s", verb, object, s.name, err, hint).
		WithReason(sandbox.ReasonOf(err))
}

func classify(err error) (code sandbox.Code, hint string) {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return known.Code, ""
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		return sandbox.NotFound, ""
	case gcerrors.PermissionDenied:
		return sandbox.Unavailable, " (these credentials may not do that: let them list, read, write and " +
			"delete in this bucket)"
	default:
		return sandbox.Unavailable, " (retry)"
	}
}
