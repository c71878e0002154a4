package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// stream is a reply of lines, each sent at once. Its headers are sent with the first line, so that
// an error before it can still be a problem with a status. While nothing is written for a time, it
// sends an idle line: proxies keep the connection, and a reader that has gone is noticed. Nothing is
// kept for a reader that does not read: it is cut off, and comes back to where it was.
type stream struct {
	w           http.ResponseWriter
	rc          *http.ResponseController
	timeout     time.Duration // of one line
	contentType string
	cancel      context.CancelFunc
	idleDone    chan struct{} // closed when the goroutine that sends idle lines has ended

	mu      sync.Mutex // guards everything that follows
	started bool
	failed  error // why nothing can be written any more
}

// openStream returns the stream and a context that ends with the request, when a line cannot be
// written, and on close, which the caller must defer.
func (s *server) openStream(w http.ResponseWriter, r *http.Request, contentType, idle string) (context.Context, *stream) {
	ctx, cancel := context.WithCancel(r.Context())
	st := &stream{w: w, rc: http.NewResponseController(w), timeout: s.streamTimeout, contentType: contentType, cancel: cancel, idleDone: make(chan struct{})}
	go st.idle(ctx, s.keepAlive, []byte(idle))
	return ctx, st
}

// close ends the sending of idle lines and reports whether anything has been sent. It may be called
// again.
func (st *stream) close() (started bool) {
	st.cancel()
	<-st.idleDone
	_ = st.rc.SetWriteDeadline(time.Time{}) // only connections have deadlines, a recorder has none
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
		h.Set("X-Accel-Buffering", "no") // nginx would hold lines back
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

// writeJSON sends a value that always has a JSON form as one line.
func (st *stream) writeJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return st.write(append(line, '\n'))
}

// answerWhileReading lets a handler answer before it has read all of its request. The connection is used
// for nothing else then: what was left unread would be in the way of the next request.
func answerWhileReading(w http.ResponseWriter) error {
	w.Header().Set("Connection", "close")
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
