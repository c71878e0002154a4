package gitmirror

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits bound what a repository may take. Zero values mean the defaults.
type Limits struct {
	// PackBytes bounds what one fetch downloads.
	PackBytes int64
	// ObjectBytes bounds one object, which is held in memory.
	ObjectBytes int64
	// UnpackedBytes bounds all objects of a pack together, unpacked.
	UnpackedBytes int64
	// Objects bounds the objects of a pack.
	Objects int64
	// TreeBytes and Files bound a checkout, with its submodules. TreeBytes also bounds an archive, unpacked.
	TreeBytes, Files int64
	// Time bounds the fetch of one repository.
	Time time.Duration
	// MirrorBytes bounds all mirrors together. Prune removes the least recently used mirror first.
	MirrorBytes int64
	// Unused is how long an unused mirror is kept.
	Unused time.Duration
}

// The default limits.
const (
	defaultPackBytes     = 1 << 30
	defaultObjectBytes   = 128 << 20
	defaultUnpackedBytes = 16 << 30
	defaultObjects       = 10_000_000
	defaultTreeBytes     = 4 << 30
	defaultFiles         = 500_000
	defaultTime          = 10 * time.Minute
	defaultMirrorBytes   = 20 << 30
	defaultUnused        = 7 * 24 * time.Hour
)

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.PackBytes, defaultPackBytes)
	orDefault(&l.ObjectBytes, defaultObjectBytes)
	orDefault(&l.UnpackedBytes, defaultUnpackedBytes)
	orDefault(&l.Objects, defaultObjects)
	orDefault(&l.TreeBytes, defaultTreeBytes)
	orDefault(&l.Files, defaultFiles)
	orDefault(&l.Time, defaultTime)
	orDefault(&l.MirrorBytes, defaultMirrorBytes)
	orDefault(&l.Unused, defaultUnused)
	return l
}

// tooLarge is the error of a limit.
func tooLarge(what string, limit int64, unit string) error {
	return sandbox.Errorf(sandbox.Failed, "%s: more than the limit of %d %s", what, limit, unit).
		WithReason(sandbox.ReasonResourceLimitExceeded)
}

// bounded bounds the bodies of answers.
type bounded struct {
	to    http.RoundTripper
	limit int64
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.to.RoundTrip(r) //nolint:bodyclose // the caller closes it
	if err != nil {
		return nil, err
	}
	res.Body = &boundedBody{ReadCloser: res.Body, what: "the answer of the server", left: b.limit, limit: b.limit}
	return res, nil
}

type boundedBody struct {
	io.ReadCloser
	what        string
	left, limit int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.exceeded()
	}
	return n, err
}

// exceeded is the error of the bound, nil if what was read is within it.
func (b *boundedBody) exceeded() error {
	if b.left >= 0 {
		return nil
	}
	return tooLarge(b.what, b.limit, "bytes")
}

// interruptible ends reads of a file when a context ends.
type interruptible struct {
	io.ReadSeeker
	ctx context.Context //nolint:containedctx // it exists for one call
}

func (i interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, fmt.Errorf("interrupted: %w", err)
	}
	return i.ReadSeeker.Read(p)
}
