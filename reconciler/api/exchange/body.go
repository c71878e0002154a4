package exchange

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// incoming is the body of a request with a read deadline. A sender without a valid credential has one deadline for the
// whole body. For a known sender, each read extends it. A patient request has none.
type incoming struct {
	io.ReadCloser
	connection *http.ResponseController
	timeout    time.Duration

	mu      sync.Mutex // guards the fields below
	known   bool       // its sender has shown a valid credential
	patient bool       // its sender may pause without limit
	ended   bool       // the body was read or failed, or the response was sent
	whole   bool       // the body was read to its end
}

// Receive wraps the body of a request, if there is one. timeout limits the time to receive it.
func (x *Exchange) Receive(r *http.Request, timeout time.Duration) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	x.body = &incoming{ReadCloser: r.Body, connection: http.NewResponseController(x.ResponseWriter), timeout: timeout}
	if r.ContentLength < 0 {
		x.body.ReadCloser = http.MaxBytesReader(x, r.Body, MaxBody)
	}
	r.Body = x.body
	x.body.setDeadline()
}

// setDeadline starts the sender's time, and clearDeadline stops it. Both fail only without a connection, in tests.
func (b *incoming) setDeadline()   { _ = b.connection.SetReadDeadline(time.Now().Add(b.timeout)) }
func (b *incoming) clearDeadline() { _ = b.connection.SetReadDeadline(time.Time{}) }

// trust records that the sender has a valid credential.
func (b *incoming) trust() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known = true; !b.ended {
		b.clearDeadline()
	}
}

// wait lets the sender pause without limit.
func (b *incoming) wait() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.patient = true
}

// isPendingOfUnknown reports whether the body of an unknown sender was not read to its end.
func (b *incoming) isPendingOfUnknown() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.known && !b.ended
}

// isWhole reports whether the body was read to its end.
func (b *incoming) isWhole() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.whole
}

// Read implements io.Reader. The time of a known sender runs only during a read, not while the handler works.
func (b *incoming) Read(p []byte) (int, error) {
	b.beginRead()
	n, err := b.ReadCloser.Read(p)
	b.endRead(err)
	return n, err
}

func (b *incoming) beginRead() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known && !b.patient && !b.ended {
		b.setDeadline()
	}
}

func (b *incoming) endRead(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return // a read may return after the response was sent
	}
	if errors.Is(err, io.EOF) || err == nil && b.known && !b.patient {
		b.clearDeadline()
	}
	b.ended, b.whole = err != nil, errors.Is(err, io.EOF)
}

// leave is called when the response was sent. The server then drains the rest of the body to reuse the connection, and
// a stalled sender must not block it.
func (b *incoming) leave() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended && b.known {
		b.setDeadline()
	}
	b.ended = true
}
