package relay

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

// heartbeat is the interval at which each end of the connection asks for a sign of life. After 10 s without one, which
// is also yamux's limit for a write, the connection and its streams end. A session with a sandbox waits longer before
// it gives up its carrier.
const heartbeat = 5 * time.Second

// lingering limits the time between the ends of a stream's two halves. After that the stream is reset.
const lingering = 10 * time.Second

// muxConfig configures both ends.
func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput, c.Logger = nil, log.New(io.Discard, "", 0) // calls return the same errors
	c.StreamCloseTimeout = lingering
	c.KeepAliveInterval = heartbeat
	return c
}

// mux opens connections to the control socket as streams of one connection. If that connection breaks, mux dials it
// again.
type mux struct {
	dial Open
	// lock holds the session, which is nil before the first use.
	lock chan *yamux.Session
}

func newMux(dial Open) *mux {
	m := &mux{dial: dial, lock: make(chan *yamux.Session, 1)}
	m.lock <- nil
	return m
}

func (m *mux) open(ctx context.Context) (net.Conn, error) {
	session, err := m.session(ctx)
	if err != nil {
		return nil, err
	}
	s, err := session.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("open a stream to the relay: %w", err)
	}
	return &stream{s}, nil
}

func (m *mux) session(ctx context.Context) (*yamux.Session, error) {
	var session *yamux.Session
	select {
	case session = <-m.lock:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { m.lock <- session }()
	if session != nil && !session.IsClosed() {
		return session, nil
	}
	session = nil
	conn, err := m.dial(ctx)
	if err != nil {
		return nil, err
	}
	fresh, err := yamux.Client(conn, muxConfig())
	if err != nil {
		_ = conn.Close() // return the first error
		return nil, err
	}
	session = fresh
	return session, nil
}

// close ends the connection and its streams. A later use dials again.
func (m *mux) close() error {
	session := <-m.lock
	defer func() { m.lock <- nil }()
	if session == nil {
		return nil
	}
	return session.Close()
}

// stream is a stream whose Close ends both halves. yamux's Close only ends the sending half.
type stream struct{ *yamux.Stream }

// CloseWrite ends the sending half.
func (s *stream) CloseWrite() error { return s.Stream.Close() }

// Close implements net.Conn.
func (s *stream) Close() error {
	_ = s.SetReadDeadline(time.Unix(1, 0)) // ends blocked reads; it never fails
	return s.Stream.Close()
}
