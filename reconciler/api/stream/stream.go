// Package stream sends responses line by line.
package stream

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Stream is a response of lines, each sent at once. Its headers are sent with the first line, so that an earlier error
// can still be a problem with a status. When idle, it sends empty lines, which keep connections through proxies open
// and detect disconnected clients. It does not buffer: it disconnects a client that does not read, which then
// reconnects where it stopped.
type Stream struct {
	w           http.ResponseWriter
	rc          *http.ResponseController
	timeout     time.Duration // per line
	contentType string
	cancel      context.CancelFunc
	idleDone    chan struct{} // closed when the goroutine for idle lines has ended

	mu      sync.Mutex // guards the fields below
	started bool
	failed  error // the write error after which nothing is sent
}

// Config says how long a stream waits.
type Config struct {
	// KeepAlive is how long a stream may be silent before an empty line is sent.
	KeepAlive time.Duration
	// Timeout is how long a reader may leave a line unread before it is disconnected.
	Timeout time.Duration
}

// Line returns an empty line that is always the same.
func Line(text string) func() []byte { return func() []byte { return []byte(text) } }

// Open returns the stream and its context, which ends as the one of Context, after a write error, and on Close, which
// the caller must defer. idle returns the empty line. It is called while no other line is sent.
func Open(w http.ResponseWriter, r *http.Request, c Config, contentType string,
	idle func() []byte) (context.Context, *Stream) {
	ctx, cancel := Context(r)
	st := &Stream{
		w:           w,
		rc:          http.NewResponseController(w),
		timeout:     c.Timeout,
		contentType: contentType,
		cancel:      cancel,
		idleDone:    make(chan struct{}),
	}
	go st.idle(ctx, c.KeepAlive, idle)
	return ctx, st
}

// Close stops the idle lines and reports whether anything was sent. It may be called again.
func (st *Stream) Close() (started bool) {
	st.cancel()
	<-st.idleDone
	_ = st.rc.SetWriteDeadline(time.Time{}) // fails only without a connection, in tests
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.started
}

func (st *Stream) idle(ctx context.Context, every time.Duration, line func() []byte) {
	defer close(st.idleDone)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if st.send(line) != nil {
				return // write has cancelled ctx
			}
		}
	}
}

// Send sends a line. After a failure it sends nothing more and cancels the stream's context.
func (st *Stream) Send(line []byte) error { return st.send(func() []byte { return line }) }

// send sends what line returns, in the order of the lines.
func (st *Stream) send(line func() []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.failed != nil {
		return st.failed
	}
	if !st.started {
		h := st.w.Header()
		h.Set("Content-Type", st.contentType)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer lines
		st.started = true
	}
	_ = st.rc.SetWriteDeadline(time.Now().Add(st.timeout)) // as in Close
	_, err := st.w.Write(line())
	if err == nil {
		err = st.rc.Flush()
	}
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		st.failed = err
		st.cancel()
	}
	return st.failed
}

// SendJSON sends a value that always marshals as one line.
func (st *Stream) SendJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return st.Send(append(line, '\n'))
}
