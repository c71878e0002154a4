package output

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// inlineOutput is how much of a stream the ledger keeps, in bytes. Most commands write less. More becomes an object in
	// the bucket.
	inlineOutput = 64 << 10
	// earlierInline is the limit of earlier builds, in bytes. Their larger streams are objects.
	earlierInline = 8 << 10
	// putTimeout limits the storing of one stream.
	putTimeout = time.Minute
)

// Objects names the objects that may hold a command's output.
func Objects(x *execs.Exec) (objects []string) {
	// The texts are not loaded, so it cannot tell whether an object exists. Removing an absent one changes nothing.
	if x.Stdout.Kept > earlierInline {
		objects = append(objects, x.OutputObject(sandbox.Stdout))
	}
	if x.Stderr.Kept > earlierInline {
		objects = append(objects, x.OutputObject(sandbox.Stderr))
	}
	return objects
}

// Recording passes on the output of a command, and keeps its beginning.
type Recording struct {
	Stdout, Stderr track
}

// NewRecording returns a Recording for a request. Without a listener, the result collects output up to its OutputLimit.
func NewRecording(req sandbox.ExecRequest, keepsMore bool) *Recording {
	r := &Recording{
		Stdout: track{live: req.Stdout, limit: req.OutputLimit, keepsMore: keepsMore},
		Stderr: track{live: req.Stderr, limit: req.OutputLimit, keepsMore: keepsMore},
	}
	if req.Detach {
		r.Stdout.live, r.Stderr.live = io.Discard, io.Discard
	}
	return r
}

// Replay returns the request for the output that is not recorded yet.
func (r *Recording) Replay(id string) sandbox.Replay {
	return sandbox.Replay{
		ID:           id,
		Stdout:       &r.Stdout,
		Stderr:       &r.Stderr,
		StdoutOffset: r.Stdout.total,
		StderrOffset: r.Stderr.total,
	}
}

// Fill copies the output and its counts into a result.
func (r *Recording) Fill(res *sandbox.ExecResult) {
	res.Stdout, res.Stderr = r.Stdout.collected.Bytes(), r.Stderr.collected.Bytes()
	res.Truncated = r.Stdout.cut || r.Stderr.cut
	res.StdoutBytes, res.StderrBytes = max(res.StdoutBytes, r.Stdout.total), max(res.StderrBytes, r.Stderr.total)
}

func (r *Recording) Discard() {
	r.Stdout.discard()
	r.Stderr.discard()
}

// track is one stream of a recording.
type track struct {
	live      io.Writer // nil to collect
	limit     int       // of collected, in bytes
	collected bytes.Buffer
	cut       bool // collected is not all

	keepsMore bool // keeps more than the ledger
	head      []byte
	rest      *snapshotstore.Spool // all kept output, once it exceeds head
	kept      int64
	total     int64
	Problem   error // why the rest is not kept

	Tap io.Writer // records for the session, nil without one
}

// Write implements io.Writer. It fails when its listener does.
func (t *track) Write(p []byte) (int, error) {
	if t.Problem == nil {
		t.Problem = t.keep(p[:min(int64(len(p)), sandbox.MaxKeptOutput-t.kept)])
	}
	t.total += int64(len(p))
	if t.Tap != nil {
		_, _ = t.Tap.Write(p) // never fails
	}
	if t.live != nil {
		return t.live.Write(p)
	}
	room := min(max(t.limit-t.collected.Len(), 0), len(p))
	_, _ = t.collected.Write(p[:room]) // a buffer never fails
	t.cut = t.cut || room < len(p)
	return len(p), nil
}

func (t *track) keep(p []byte) error {
	room := len(p)
	if t.rest == nil {
		room = min(room, inlineOutput-len(t.head))
		t.head = append(t.head, p[:room]...)
		t.kept = int64(len(t.head))
	}
	if room == len(p) && t.rest == nil {
		return nil
	}
	if !t.keepsMore {
		return errNoOutputStore
	}
	if t.rest == nil {
		spool, err := snapshotstore.NewSpool()
		if err != nil {
			return err
		}
		t.rest = spool
		if _, err := spool.Write(t.head); err != nil {
			return err
		}
		p = p[room:]
	}
	n, err := t.rest.Write(p)
	t.kept += int64(n)
	return err
}

// errNoOutputStore means that the command wrote more than the ledger keeps.
var errNoOutputStore = &sandbox.Error{Code: sandbox.Unavailable,
	Message: fmt.Sprintf("no bucket is configured: only the first %d KiB are kept; to keep more, name a bucket that all "+
		"replicas reach (sandbox serve --state-url, or state_url of the provider)", inlineOutput>>10)}

func (t *track) discard() {
	if t.rest != nil {
		t.rest.Discard()
	}
}

// isLarge reports whether the kept output must be an object.
func (t *track) isLarge() bool { return t.kept > inlineOutput }

// Output returns the part that the ledger keeps. stored reports whether large output became an object.
func (t *track) Output(written int64, stored bool) execs.Output {
	o := execs.Output{Bytes: max(written, t.total), Kept: t.kept}
	if !t.isLarge() || !stored {
		o.Inline, o.Kept = t.head, int64(len(t.head))
	}
	return o
}

// put stores the kept output of a stream as an object.
func (v *Service) put(ctx context.Context, object string, t *track) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	if _, err := t.rest.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return v.Objects.Put(ctx, object, io.LimitReader(t.rest, t.kept))
}

// unpublishedFor is how long after a try to store output its objects are deleted, unless they are published.
const unpublishedFor = time.Hour

// StoreLarge stores output that is too large for the ledger. It first marks the objects for deletion, so that none is
// orphaned if this process dies. Settling publishes them.
func (v *Service) StoreLarge(ctx context.Context, x *execs.Exec, r *Recording) error {
	large := map[sandbox.ExecStream]*track{}
	for stream, t := range map[sandbox.ExecStream]*track{sandbox.Stdout: &r.Stdout, sandbox.Stderr: &r.Stderr} {
		if t.isLarge() {
			large[stream] = t
		}
	}
	if len(large) == 0 {
		return nil
	}
	err := v.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		for stream := range large {
			err := bucketobjects.In(tx).MarkForDeletion(x.OutputObject(stream), tx.Now.Add(micro.SpanOf(unpublishedFor)))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for stream, t := range large {
		if err := v.put(ctx, x.OutputObject(stream), t); err != nil {
			return err
		}
	}
	return nil
}

// Open returns the kept output of a command that has ended.
func (v *Service) Open(ctx context.Context, x *execs.Exec, stream sandbox.ExecStream,
	offset int64) (io.ReadCloser, error) {
	k := x.Stdout
	if stream == sandbox.Stderr {
		k = x.Stderr
	}
	if x.DroppedAt != 0 && k.Bytes > 0 {
		return nil, ErrDropped("what command "+x.ID+" wrote", x.DroppedAt)
	}
	offset = min(offset, k.Kept)
	switch {
	case !k.IsObject():
		return io.NopCloser(bytes.NewReader(k.Inline[offset:])), nil
	case !v.KeepsMore():
		return nil, errNoOutputStore
	case offset == k.Kept:
		return io.NopCloser(bytes.NewReader(nil)), nil
	default:
		r, err := v.Objects.Open(ctx, x.OutputObject(stream), offset)
		return r, lifecycle.AsError(err)
	}
}
