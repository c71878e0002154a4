package api

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// incoming is the body of a request, with the read deadline that its sender must keep. A sender without a valid
// credential has one deadline for the whole body. For a known sender, each read moves it. A patient request has none.
type incoming struct {
	io.ReadCloser
	connection *http.ResponseController
	timeout    time.Duration

	mu      sync.Mutex // guards everything that follows
	known   bool       // its sender has shown a valid credential
	patient bool       // its sender may pause for as long as it likes
	ended   bool       // the body was read to its end, cannot be read, or its request was answered
}

// receive makes a request's body an incoming one, if there is one.
func (x *exchange) receive(r *http.Request, timeout time.Duration) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	x.body = &incoming{ReadCloser: r.Body, connection: http.NewResponseController(x.ResponseWriter), timeout: timeout}
	if r.ContentLength < 0 {
		x.body.ReadCloser = http.MaxBytesReader(x, r.Body, maxStream)
	}
	r.Body = x.body
	x.body.setDeadline()
}

// setDeadline begins the sender's time, clearDeadline ends it. Only connections have deadlines, a recorder has none.
func (b *incoming) setDeadline()   { _ = b.connection.SetReadDeadline(time.Now().Add(b.timeout)) }
func (b *incoming) clearDeadline() { _ = b.connection.SetReadDeadline(time.Time{}) }

// trust notes that the sender has shown a valid credential.
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

// wait lets the sender pause for as long as it likes.
func (b *incoming) wait() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.patient = true
}

// isPendingOfUnknown reports whether there is a body whose sender is not known, and which was not read to its end.
func (b *incoming) isPendingOfUnknown() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.known && !b.ended
}

// Read implements io.Reader. A known sender's time runs only while a read waits: between reads the handler works.
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
		return // a read may come back later than the request is answered
	}
	if errors.Is(err, io.EOF) || err == nil && b.known && !b.patient {
		b.clearDeadline()
	}
	b.ended = err != nil
}

// leave is for when the request is answered. The server then reads the rest of the body, to use the connection for
// the next request; a sender that stopped must not hold it.
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
