package cloudflare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// maxMessage bounds one message from the Durable Object, in bytes. The object forwards each chunk from the guest
	// immediately.
	maxMessage = 4 << 20
	// noteLimit bounds the time to send a text message.
	noteLimit = 10 * time.Second
)

// begun announces an operation to the object, in the form of worker/src/channel.ts.
type begun struct {
	ID       string `json:"id"`
	Limit    int64  `json:"limit_ms"`
	Detached bool   `json:"detached"`
	Quiet    bool   `json:"quiet"`
}

// done reports how an operation ended.
type done struct {
	ID   string `json:"id"`
	Left bool   `json:"left,omitempty"`

	ExitCode int           `json:"exit_code"`
	Problem  string        `json:"problem,omitempty"`
	Data     string        `json:"data,omitempty"`
	CPUTime  time.Duration `json:"cpu_time,omitempty"`
}

// note is a text message.
type note struct {
	Begin *begun `json:"begin,omitempty"`
	End   *done  `json:"end,omitempty"`
	Ended string `json:"ended,omitempty"`
}

// books reports the operations in progress to the Durable Object of one sandbox, and repeats them on each new
// WebSocket.
type books struct {
	mu      sync.Mutex // guards what follows, and the order of messages
	carrier *carrier   // the latest, nil before the first
	open    map[string]begun
}

// begin announces an operation. Data that is sent on the carrier afterwards arrives after the announcement.
func (b *books) begin(op begun) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[op.ID] = op
	if b.carrier != nil {
		b.carrier.note(note{Begin: &op})
	}
}

// end reports how an operation ended. It returns once the object has recorded that and saved the changes, or once the
// carrier has closed: the object itself records the end of operations on a closed carrier.
func (b *books) end(ctx context.Context, d done) {
	b.mu.Lock()
	delete(b.open, d.ID)
	c := b.carrier
	var recorded <-chan struct{}
	if c != nil {
		recorded = c.expect(d.ID)
		c.note(note{End: &d})
	}
	b.mu.Unlock()
	if c == nil {
		return
	}
	select {
	case <-recorded:
	case <-c.gone:
	case <-ctx.Done():
	}
}

// attach makes c the latest carrier, and announces the operations in progress on it.
func (b *books) attach(c *carrier) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.carrier = c
	for _, op := range b.open {
		c.note(note{Begin: &op})
	}
}

// carrier is a WebSocket to the Durable Object of a sandbox, in the form that a channel.Dial returns.
type carrier struct {
	net.Conn // nil: only Read, Write and Close are used
	ws       *websocket.Conn
	ctx      context.Context //nolint:containedctx // it is what ends a Read and a Write under way
	cancel   context.CancelFunc
	gone     chan struct{} // closed by Close
	closing  sync.Once

	message io.Reader // used by Read only

	mu       sync.Mutex // guards expected
	expected map[string]chan struct{}
}

func newCarrier(ws *websocket.Conn) *carrier {
	ws.SetReadLimit(maxMessage)
	c := &carrier{ws: ws, gone: make(chan struct{}), expected: map[string]chan struct{}{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Read implements net.Conn. It also handles text messages.
func (c *carrier) Read(p []byte) (int, error) {
	for {
		for c.message == nil {
			kind, r, err := c.ws.Reader(c.ctx)
			if err != nil {
				return 0, err
			}
			if kind == websocket.MessageBinary {
				c.message = r
				break
			}
			var n note
			if err := json.NewDecoder(r).Decode(&n); err != nil {
				return 0, fmt.Errorf("read a text message of the object: %w", err)
			}
			c.recorded(n.Ended)
		}
		n, err := c.message.Read(p)
		if errors.Is(err, io.EOF) {
			c.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (c *carrier) Write(p []byte) (int, error) {
	if err := c.ws.Write(c.ctx, websocket.MessageBinary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements net.Conn.
func (c *carrier) Close() error {
	c.closing.Do(func() {
		close(c.gone)
		c.cancel()
		_ = c.ws.CloseNow() // the session tells the guest of its end, not the WebSocket
	})
	return nil
}

// note sends a text message, and closes the carrier if that fails.
func (c *carrier) note(n note) {
	text, err := json.Marshal(n)
	if err == nil {
		ctx, cancel := context.WithTimeout(c.ctx, noteLimit)
		defer cancel()
		err = c.ws.Write(ctx, websocket.MessageText, text)
	}
	if err != nil {
		_ = c.Close() // never fails
	}
}

// expect returns a channel that is closed once the object has recorded the end of an operation.
func (c *carrier) expect(id string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := make(chan struct{})
	c.expected[id] = to
	return to
}

func (c *carrier) recorded(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to := c.expected[id]; to != nil {
		close(to)
		delete(c.expected, id)
	}
}

// dial opens a carrier to a sandbox.
func (w *Worker) dial(ctx context.Context, h driver.Handle) (c *carrier, err error) {
	c, err = signed(w, func() (*carrier, error) { return w.dialOnce(ctx, h) })
	if final(err) {
		err = fmt.Errorf("%w: %w", channel.ErrGone, err)
	}
	return c, err
}

func (w *Worker) dialOnce(ctx context.Context, h driver.Handle) (*carrier, error) {
	r := onSandbox(h, http.MethodGet, "channel", "connect to its guest")
	r.path += "?nonce=" + sandbox.RandomIDs(nonceLength)
	req, err := http.NewRequestWithContext(ctx, r.method, w.base+r.path, nil)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "cloudflare: %s: %w", r.what, err)
	}
	w.signer.signBody(req, nil)
	ws, answer, err := websocket.Dial(ctx, w.base+r.path,
		&websocket.DialOptions{HTTPClient: w.http, HTTPHeader: req.Header})
	if err == nil {
		return newCarrier(ws), nil
	}
	if answer == nil {
		return nil, lost(r, err)
	}
	return nil, errors.Join(refusal(r, answer), answer.Body.Close())
}

// final reports whether dialing again cannot succeed.
func final(err error) bool {
	switch sandbox.CodeOf(err) {
	case sandbox.Conflict, sandbox.NotFound, sandbox.Invalid:
		return true
	}
	_, refused := errors.AsType[*refusedError](err)
	return refused || sandbox.ReasonOf(err) == sandbox.ReasonOtherInstance
}

// nonceLength is 32 characters of 5 bits each.
const nonceLength = 32

// doneOf returns how an operation ended, by its result.
func doneOf(id string, res wire.Result) done {
	return done{ID: id, ExitCode: res.ExitCode, Problem: res.Problem, Data: res.Data, CPUTime: res.CPUTime}
}
