package stream

import (
	"net/http"
	"time"
)

// Steady is a response that disconnects a client that does not read.
type Steady struct {
	http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
}

// NewSteady returns a writer to w. timeout is how long the reader may leave a write unread.
func NewSteady(w http.ResponseWriter, timeout time.Duration) *Steady {
	return &Steady{w, http.NewResponseController(w), timeout}
}

// Write implements io.Writer.
func (s *Steady) Write(p []byte) (int, error) {
	s.Extend()
	return s.ResponseWriter.Write(p)
}

// Extend restarts the client's time. Handlers call it at their end: the server then sends the end of the response, and
// the last write may be long ago.
func (s *Steady) Extend() {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.timeout)) // fails only without a connection, in tests
}

// Unwrap gives http.ResponseController access to the connection.
func (s *Steady) Unwrap() http.ResponseWriter { return s.ResponseWriter }
