package stream

import (
	"net/http"
	"time"
)

// Flushed sends each write immediately, and disconnects a client that does not read.
type Flushed struct {
	w     *Steady
	began bool
}

// NewFlushed returns a writer to w. timeout is how long the reader may leave a write unread.
func NewFlushed(w http.ResponseWriter, timeout time.Duration) *Flushed {
	return &Flushed{w: NewSteady(w, timeout)}
}

// Began reports whether anything was sent.
func (f *Flushed) Began() bool { return f.began }

// Write implements io.Writer.
func (f *Flushed) Write(p []byte) (int, error) {
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
	_ = f.w.rc.Flush() // fails only for a writer that sends at the end
}

// Extend is as for Steady.
func (f *Flushed) Extend() { f.w.Extend() }
