package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// stream is a response of lines, each sent at once. Its headers are sent with the first line, so that an earlier error
// can still be a problem with a status. When idle, it sends empty lines, which keep connections through proxies open
// and detect disconnected clients. It does not buffer: it disconnects a client that does not read, which then
// reconnects where it stopped.
type stream struct {
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

// openStream returns the stream and its context. The context ends with the request, after a write error, and on close,
// which the caller must defer.
func (s *server) openStream(w http.ResponseWriter, r *http.Request,
	contentType, idle string) (context.Context, *stream) {
	ctx, cancel := context.WithCancel(r.Context())
	st := &stream{
		w:           w,
		rc:          http.NewResponseController(w),
		timeout:     s.streamTimeout,
		contentType: contentType,
		cancel:      cancel,
		idleDone:    make(chan struct{}),
	}
	go st.idle(ctx, s.keepAlive, []byte(idle))
	return ctx, st
}

// close stops the idle lines and reports whether anything was sent. It may be called again.
func (st *stream) close() (started bool) {
	st.cancel()
	<-st.idleDone
	_ = st.rc.SetWriteDeadline(time.Time{}) // fails only without a connection, in tests
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.started
}

func (st *stream) idle(ctx context.Context, every time.Duration, line []byte) {
	defer close(st.idleDone)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if st.write(line) != nil {
				return // write has cancelled ctx
			}
		}
	}
}

// write sends a line. After a failure it sends nothing more and cancels the stream's context.
func (st *stream) write(line []byte) error {
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
	_ = st.rc.SetWriteDeadline(time.Now().Add(st.timeout)) // as in close
	_, err := st.w.Write(line)
	if err == nil {
		err = st.rc.Flush()
	}
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		st.failed = err
		st.cancel()
	}
	return st.failed
}

// writeJSON sends a value that always marshals as one line.
func (st *stream) writeJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return st.write(append(line, '\n'))
}

// answerWhileReading lets a handler respond before it has read the whole request. If it does so, the connection closes
// after the response, because the unread rest would precede the next request.
func answerWhileReading(w http.ResponseWriter) error {
	w.Header().Set("Connection", "close")
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
