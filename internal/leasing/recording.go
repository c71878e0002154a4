package leasing

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/state"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// inlineOutput is how much of a stream is kept in the ledger, in bytes: as much as most commands
	// write. More is an object in the bucket.
	inlineOutput = 8 << 10
	// putTimeout bounds the storing of one stream.
	putTimeout = time.Minute
)

// outputObject names what is kept of a stream, as the holder who followed the command to its end has
// stored it: what another one stores meanwhile does not replace it.
func outputObject(x *ledger.Exec, stream sandbox.ExecStream) string {
	return fmt.Sprintf("execs/%s/%s-%s/%s", x.SandboxID, x.ID, x.Holder, stream)
}

// outputObjects names what is kept of a command beside the ledger.
func outputObjects(x *ledger.Exec) (objects []string) {
	// The texts are not loaded: more than can be one is an object.
	if x.Stdout.Kept > inlineOutput {
		objects = append(objects, outputObject(x, sandbox.Stdout))
	}
	if x.Stderr.Kept > inlineOutput {
		objects = append(objects, outputObject(x, sandbox.Stderr))
	}
	return objects
}

// recording takes what a command writes: it passes it on, and keeps the beginning.
type recording struct {
	stdout, stderr track
	tap            *tap // of a command of a session
}

// newRecording records for a request. Without a listener, the result collects up to its OutputLimit.
func newRecording(req sandbox.ExecRequest, keepsMore bool) *recording {
	r := &recording{
		stdout: track{live: req.Stdout, limit: req.OutputLimit, keepsMore: keepsMore},
		stderr: track{live: req.Stderr, limit: req.OutputLimit, keepsMore: keepsMore},
	}
	if req.Detach {
		r.stdout.live, r.stderr.live = io.Discard, io.Discard
	}
	return r
}

// replay asks for what is not recorded yet.
func (r *recording) replay(id string) sandbox.Replay {
	return sandbox.Replay{ID: id, Stdout: &r.stdout, Stderr: &r.stderr, StdoutOffset: r.stdout.total, StderrOffset: r.stderr.total}
}

// fill puts into a result what is known of the streams.
func (r *recording) fill(res *sandbox.ExecResult) {
	res.Stdout, res.Stderr = r.stdout.collected.Bytes(), r.stderr.collected.Bytes()
	res.Truncated = r.stdout.cut || r.stderr.cut
	res.StdoutBytes, res.StderrBytes = max(res.StdoutBytes, r.stdout.total), max(res.StderrBytes, r.stderr.total)
}

func (r *recording) discard() {
	r.tap.close()
	r.stdout.discard()
	r.stderr.discard()
}

// track is one stream of a recording.
type track struct {
	live      io.Writer // nil: it is collected
	limit     int       // of what is collected, in bytes
	collected bytes.Buffer
	cut       bool // not all is collected

	keepsMore bool // than fits into the ledger
	head      []byte
	rest      *state.Spool // all that is kept, once that is more than head can hold
	kept      int64
	total     int64
	problem   error // why no more is kept

	tap io.Writer // of the recording of a session, nil for none
}

// Write implements io.Writer. It fails when who listens does.
func (t *track) Write(p []byte) (int, error) {
	if t.problem == nil {
		t.problem = t.keep(p[:min(int64(len(p)), sandbox.MaxKeptOutput-t.kept)])
	}
	t.total += int64(len(p))
	if t.tap != nil {
		_, _ = t.tap.Write(p) // never fails
	}
	if t.live != nil {
		return t.live.Write(p)
	}
	room := min(max(t.limit-t.collected.Len(), 0), len(p))
	_, _ = t.collected.Write(p[:room]) // memory does not fail
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
		spool, err := state.NewSpool()
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

// errNoOutputStore: more was written than the ledger keeps.
var errNoOutputStore = &sandbox.Error{Code: sandbox.Unavailable,
	Message: "this service was told of no bucket for more than the first 8 KiB: name one that all its replicas reach (reconciler serve --state-url, or state_url of the provider)"}

func (t *track) discard() {
	if t.rest != nil {
		t.rest.Discard()
	}
}

// isLarge reports whether what is kept has to be an object.
func (t *track) isLarge() bool { return t.kept > inlineOutput }

// output returns what the ledger keeps, once what is large is stored or could not be.
func (t *track) output(written int64, stored bool) ledger.Output {
	o := ledger.Output{Bytes: max(written, t.total), Kept: t.kept}
	if !t.isLarge() || !stored {
		o.Inline, o.Kept = t.head, int64(len(t.head))
	}
	return o
}

// put stores what is kept of a stream as an object.
func (e *Engine) put(ctx context.Context, object string, t *track) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	if _, err := t.rest.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return e.state.Put(ctx, object, io.LimitReader(t.rest, t.kept))
}

// doomFor is how long after a try to store output its objects are deleted, unless they are published.
const doomFor = time.Hour

// storeLarge stores what is too large for the ledger. Before, the objects are doomed, so that none is
// left when this process dies; settling publishes them.
func (e *Engine) storeLarge(ctx context.Context, x *ledger.Exec, r *recording) error {
	large := map[sandbox.ExecStream]*track{}
	for stream, t := range map[sandbox.ExecStream]*track{sandbox.Stdout: &r.stdout, sandbox.Stderr: &r.stderr} {
		if t.isLarge() {
			large[stream] = t
		}
	}
	if len(large) == 0 {
		return nil
	}
	err := e.store.Write(ctx, func(tx *ledger.Tx) error {
		for stream := range large {
			if err := tx.Snapshots().DoomObject(outputObject(x, stream), tx.Now.Add(ledger.SpanOf(doomFor))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for stream, t := range large {
		if err := e.put(ctx, outputObject(x, stream), t); err != nil {
			return err
		}
	}
	return nil
}
