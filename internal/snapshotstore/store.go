// Package snapshotstore keeps the /data of sandboxes as archives in a bucket. The archives outlive the sandbox and the
// backend that it ran on.
//
// An archive is a tar stream (archive.go says what it may hold), compressed by zstd. It is completed in a local spool
// file before it is uploaded. A download goes to a spool file too, and its checksum is verified before any reader sees
// it. So a sandbox waits for this machine's disk and not for the bucket, and readers see no part of a failed save or a
// damaged archive. The spool is in the system's directory for temporary files (TMPDIR) and takes an archive's
// compressed size.
package snapshotstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/zstd"
	"gocloud.dev/blob"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// decoderMemory bounds the memory for reading an archive, in bytes: several times the encoder's window.
const decoderMemory = 64 << 20

// Store keeps archives of sandboxes' /data in a bucket. Its methods are safe for concurrent use.
//
// All its errors carry a Code. Unavailable means that the bucket cannot be reached or denies access, or that this
// machine has no room for a spool. Nothing is known to have changed, and the caller may retry.
type Store struct {
	bucket *blob.Bucket
	name   string // the bucket's name in errors: its URL without the query
	dir    string // of a file:// bucket, or empty
}

// Archive is one stored archive. Its content never changes.
type Archive struct {
	Object string
	SHA256 string // of the stored bytes, in hexadecimal
	Bytes  int64  // the stored size
	Size   int64  // of the tar stream
	Files  int64  // entries that are not directories
	// Skipped counts the entries of /data that are not in the archive, because they could not be
	// restored: devices, pipes, sockets, and links that lead out of /data.
	Skipped int64
}

// Close releases the connections to the bucket.
func (s *Store) Close() error {
	if err := s.bucket.Close(); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "snapshot store: close bucket %s: %w", s.name, err)
	}
	return nil
}

// Save reads a tar stream of /data to its end and stores it under object, which should be a name never used before: an
// existing archive is replaced. The archive becomes visible only when it is complete. When Save returns, it survives a
// power cut. limit bounds the tar stream, in bytes. An error of data keeps its code. Errors: Invalid, with
// ReasonResourceLimitExceeded if /data is too large or has too many entries, and ReasonCopyFailed if data is an
// incomplete tar stream.
func (s *Store) Save(ctx context.Context, object string, data io.Reader, limit int64) (Archive, error) {
	if err := checkObject(object); err != nil {
		return Archive{}, err
	}
	spool, err := NewSpool()
	if err != nil {
		return Archive{}, s.failed("save", object, err)
	}
	defer spool.Discard()
	a, err := compress(ctx, spool, data, limit)
	if err != nil {
		return Archive{}, s.failed("save", object, err)
	}
	a.Object = object
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return Archive{}, s.failed("save", object, spoolError(err))
	}
	if err := s.publish(ctx, object, "application/zstd", spool); err != nil {
		return Archive{}, s.failed("save", object, err)
	}
	return a, nil
}

// compress writes an archive of a tar stream.
func compress(ctx context.Context, out io.Writer, data io.Reader, limit int64) (Archive, error) {
	sum := sha256.New()
	stored := &counter{w: io.MultiWriter(spoolWriter{out}, sum)}
	z, err := zstd.NewWriter(stored, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(2))
	if err != nil {
		return Archive{}, fmt.Errorf("zstd: %w", err)
	}
	a, err := normalise(ctx, z, data, limit)
	if err := errors.Join(err, z.Close()); err != nil {
		return Archive{}, err
	}
	a.SHA256, a.Bytes = hex.EncodeToString(sum.Sum(nil)), stored.n
	return a, nil
}

// Load returns the tar stream of an archive after it has verified the checksum of the whole object. Errors: NotFound if
// the bucket has no such object; Failed with ReasonCopyFailed if the object is not what was saved.
func (s *Store) Load(ctx context.Context, a Archive) (io.ReadCloser, error) {
	spool, err := s.Fetch(ctx, a)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(spool, zstd.WithDecoderMaxMemory(decoderMemory), zstd.WithDecoderConcurrency(2))
	if err != nil {
		spool.Discard()
		return nil, s.failed("load", a.Object, err)
	}
	return &loaded{
		z:     z,
		spool: spool,
		left:  a.Size,
		fail:  func(err error) error { return s.failed("load", a.Object, err) },
	}, nil
}

// Fetch returns the stored archive, still compressed, after it has verified the checksum of the whole object. The
// caller discards the spool. Errors: as Load.
func (s *Store) Fetch(ctx context.Context, a Archive) (*Spool, error) {
	if err := checkObject(a.Object); err != nil {
		return nil, err
	}
	spool, err := NewSpool()
	if err != nil {
		return nil, s.failed("load", a.Object, err)
	}
	if err := s.fetch(ctx, a, spool); err != nil {
		spool.Discard()
		return nil, s.failed("load", a.Object, err)
	}
	return spool, nil
}

// fetch downloads a stored archive to the spool and verifies it.
func (s *Store) fetch(ctx context.Context, a Archive, spool *Spool) error {
	r, err := s.bucket.NewReader(ctx, a.Object, nil)
	if err != nil {
		return s.absent(ctx, err)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(spoolWriter{spool}, sum), io.LimitReader(r, a.Bytes+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); n != a.Bytes || got != a.SHA256 {
		return sandbox.Errorf(sandbox.Failed, "the object is not what was saved: %d bytes were saved with SHA-256 %s, "+
			"and there are %s with %s; restore the object from a copy of the bucket",
			a.Bytes, a.SHA256, countOf(n, a.Bytes), got).WithReason(sandbox.ReasonCopyFailed)
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return spoolError(err)
	}
	return nil
}

// countOf describes how many bytes there are: reading stops one byte after the wanted size.
func countOf(n, wanted int64) string {
	if n > wanted {
		return "more"
	}
	return fmt.Sprint(n)
}

// loaded is the tar stream of a verified archive.
type loaded struct {
	z     *zstd.Decoder
	spool *Spool
	left  int64 // of the stream, in bytes
	fail  func(error) error
}

func (l *loaded) Read(p []byte) (int, error) {
	n, err := l.z.Read(p)
	l.left -= int64(n)
	switch {
	case l.left < 0 || errors.Is(err, io.EOF) && l.left > 0:
		return 0, l.fail(sandbox.Errorf(sandbox.Failed, "it does not unpack to the size that it was saved with").
			WithReason(sandbox.ReasonCopyFailed))
	case err != nil && !errors.Is(err, io.EOF):
		return n, l.fail(sandbox.Errorf(sandbox.Failed, "it does not unpack: %w", err).WithReason(sandbox.ReasonCopyFailed))
	default:
		return n, err
	}
}

// Close releases the spool.
func (l *loaded) Close() error {
	l.z.Close()
	l.spool.Discard()
	return nil
}

// Delete removes an archive; absent is success.
func (s *Store) Delete(ctx context.Context, object string) error {
	if err := checkObject(object); err != nil {
		return err
	}
	err := s.failed("delete", object, s.remove(ctx, object))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// checkObject rejects names that some buckets do not support.
func checkObject(object string) error {
	if !fs.ValidPath(object) || object == "." {
		return sandbox.Errorf(sandbox.Internal, "snapshot store: %q is not a name for an object: it must be a relative "+
			"path", object)
	}
	return nil
}

// Spool is a temporary file that no other process sees. It ends with this process.
type Spool struct {
	*os.File
	name string // still to remove, where an open file cannot be removed
}

// NewSpool creates a spool. Errors: Unavailable.
func NewSpool() (*Spool, error) {
	f, err := os.CreateTemp("", "sandbox-state-*")
	if err != nil {
		return nil, spoolError(err)
	}
	s := &Spool{File: f}
	if os.Remove(f.Name()) != nil {
		s.name = f.Name()
	}
	return s, nil
}

// Discard removes the spool. Its content is no longer needed, so a failure loses nothing.
func (s *Spool) Discard() {
	_ = s.Close()
	if s.name != "" {
		_ = os.Remove(s.name)
	}
}

// spoolWriter marks errors of the spool, to tell them from errors of the copied stream.
type spoolWriter struct{ w io.Writer }

func (s spoolWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		err = spoolError(err)
	}
	return n, err
}

func spoolError(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "spool to %s: %w (make room there, or set TMPDIR to a directory with room)",
		os.TempDir(), err)
}

// counter counts the bytes written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
