// Package archives unpacks the archives that an environment names into its sandboxes. The service fetches them, with
// credentials that no sandbox gets. The guest unpacks them by the same rules as every tar stream.
package archives

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sealedsecrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Secrets opens the secrets of environments.
type Secrets interface {
	// Open opens one secret.
	Open(row *sealedsecrets.Secret) (sandbox.Secret, error)
}

// Config configures a Service. All fields except Store are required.
type Config struct {
	Core    *lifecycle.Core
	Secrets Secrets
	// Store fetches archives. Without it, environments cannot have any.
	Store *gitmirror.Store
	// Life ends when the service closes. Fetches are then interrupted, and another process repeats them.
	Life context.Context
	Log  *slog.Logger
}

// Service is a hook. It is safe for concurrent use.
type Service struct{ Config }

var _ lifecycle.Preparer = (*Service)(nil)

// New returns a Service.
func New(c Config) *Service { return &Service{c} }

// Limits of a fill.
const (
	// tries is how often an archive is fetched before the lease fails.
	tries       = 3
	wait        = time.Second
	fillTimeout = 10 * time.Minute
	// decoderMemory bounds the memory that the decoder may use for an archive, in bytes. The window of zstd -19 is 8
	// MiB.
	decoderMemory = 64 << 20
)

// Check rejects archives from hosts that the operator does not allow. Errors: Invalid.
func (v *Service) Check(p sandbox.PutEnvironment) error {
	var f []sandbox.Field
	for i, a := range p.Archives {
		if problem := v.Store.Check(a.URL); problem != "" {
			f = append(f, sandbox.Field{Name: fmt.Sprintf("archives[%d].url", i), Problem: problem})
		}
	}
	return sandbox.InvalidFields("environment "+p.ID, f)
}

// Prepare implements lifecycle.Preparer.
func (v *Service) Prepare(tx *ledger.Tx, s *ledger.Sandbox, b lifecycle.Beginning) (lifecycle.Fill, error) {
	archives := b.Spec.WithDefaults().Archives
	if b.Action != lifecycle.Spawn && b.Action != lifecycle.Assign || len(archives) == 0 || b.InUse {
		return nil, nil
	}
	sealed, err := sealedsecrets.In(tx).Of(s.EnvironmentID)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, t *lifecycle.Step) (lifecycle.Settle, error) {
		ctx, cancel := context.WithTimeout(ctx, fillTimeout)
		defer cancel()
		defer context.AfterFunc(v.Life, cancel)()
		ctx, stop := v.Core.WhileWanted(ctx, t.Row.ID, errUnwanted)
		defer stop()
		for _, a := range archives {
			if err := v.unpack(ctx, t, a, sealed); errors.Is(context.Cause(ctx), errUnwanted) {
				return nil, errUnwanted
			} else if err != nil {
				return nil, v.failed(a, err)
			}
		}
		return nil, nil
	}, nil
}

// errUnwanted: the lease ended before its archives were unpacked.
var errUnwanted = sandbox.Errorf(sandbox.Failed, "the lease ended before its archives were unpacked")

// unpack fetches an archive and unpacks it into an unused sandbox.
func (v *Service) unpack(ctx context.Context, t *lifecycle.Step, a sandbox.Archive,
	sealed []sealedsecrets.Secret) (err error) {
	source := gitmirror.Archive{URL: a.URL, SHA256: a.SHA256, Header: a.Header}
	for i := range sealed {
		if a.Credential != "" && sealed[i].Name == a.Credential {
			if source.Secret, err = v.Secrets.Open(&sealed[i]); err != nil {
				return err
			}
		}
	}
	if a.Credential != "" && source.Secret == "" {
		return sandbox.Errorf(sandbox.Failed, "secret %s has no value: set it again", a.Credential)
	}
	content, err := v.fetch(ctx, source)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // only read
	stream, err := decompressed(content)
	if err != nil {
		return err
	}
	bounded := &limited{ReadCloser: stream, left: v.Store.Limits.TreeBytes, limit: v.Store.Limits.TreeBytes}
	unread, err := driver.Unpack(ctx, t.On, t.Handle, a.Target, bounded)
	if unread != nil {
		return unread
	}
	return err
}

// fetch fetches an archive. It tries a few times while the server cannot be reached.
func (v *Service) fetch(ctx context.Context, a gitmirror.Archive) (content io.ReadCloser, err error) {
	if v.Store == nil {
		return nil, sandbox.Errorf(sandbox.Failed, "%s", v.Store.Check(a.URL))
	}
	defer func() {
		if err := v.Store.Prune(); err != nil { // the next fetch tries again
			v.Log.WarnContext(ctx, "archives: removing unused archives", "error", err)
		}
	}()
	for n := 1; ; n++ {
		content, err = v.Store.OpenArchive(ctx, a)
		if err == nil || !sandbox.IsRetryable(err) || n == tries {
			return content, err
		}
		select {
		case <-time.After(wait << n):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// failed is the error of a lease whose archive cannot be unpacked. An interrupted fetch is repeated.
func (v *Service) failed(a sandbox.Archive, cause error) error {
	if v.Life.Err() != nil {
		return sandbox.Errorf(sandbox.Unavailable, "archive %s: the service is closing", a.Place())
	}
	switch sandbox.CodeOf(cause) {
	case sandbox.NotFound, sandbox.Conflict: // of the sandbox itself
		return cause
	default:
		return sandbox.Errorf(sandbox.Failed, "archive %s: %w; correct the archive or its settings, and lease again",
			a.Place(), cause).WithReason(sandbox.ReasonArchiveFailed)
	}
}

// decompressed returns the tar stream of an archive. The first bytes of the archive tell how it is compressed.
func decompressed(from io.Reader) (io.ReadCloser, error) {
	peek := bufio.NewReader(from)
	magic, err := peek.Peek(4)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "it is not a tar archive: %w", err)
	}
	switch {
	case magic[0] == 0x1f && magic[1] == 0x8b:
		z, err := gzip.NewReader(peek)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Failed, "it is damaged: %w", err)
		}
		return z, nil
	case string(magic) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(peek, zstd.WithDecoderMaxMemory(decoderMemory), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Failed, "it is damaged: %w", err)
		}
		return z.IOReadCloser(), nil
	default: // the guest rejects data that is not a tar stream
		return io.NopCloser(peek), nil
	}
}

// limited bounds the bytes read from an archive.
type limited struct {
	io.ReadCloser
	left, limit int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, sandbox.Errorf(sandbox.Failed, "it has more than the limit of %d bytes", l.limit).
			WithReason(sandbox.ReasonResourceLimitExceeded)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, sandbox.Errorf(sandbox.Failed, "it is damaged: %w", err)
	}
	return n, err
}
