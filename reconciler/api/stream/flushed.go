package stream

import (
	"io"
	"net/http"
	"time"
)

// Flushed sends each write immediately, and disconnects a client that does not read.
type Flushed struct {
	w       io.Writer
	rc      *http.ResponseController
	timeout time.Duration
	began   bool
}

// NewFlushed returns a writer to w. timeout is how long the reader may leave a write unread.
func NewFlushed(w http.ResponseWriter, timeout time.Duration) *Flushed {
	return &Flushed{w: w, rc: http.NewResponseController(w), timeout: timeout}
}

// Began reports whether anything was sent.
func (f *Flushed) Began() bool { return f.began }

// Write implements io.Writer.
func (f *Flushed) Write(p []byte) (int, error) {
	_ = f.rc.SetWriteDeadline(time.Now().Add(f.timeout)) // fails only without a connection, in tests
	f.began = true
	n, err := f.w.Write(p)
	if err == nil {
		f.Flush()
	}
	return n, err
}

// Flush sends the headers and the buffered bytes.
func (f *Flushed) Flush() {
	f.began = true
	_ = f.rc.Flush() // fails only for a writer that sends at the end
}
