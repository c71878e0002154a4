// Package pipetest is an in-memory network for tests of servers under testing/synctest.
package pipetest

import (
	"net"
	"sync"
	"testing"
)

// Listener accepts the connections of Dial.
type Listener struct {
	t        *testing.T
	accepted chan net.Conn
	closed   chan struct{}
	close    sync.Once
}

// Listen returns a listener that is closed when the test ends.
func Listen(t *testing.T) *Listener {
	l := &Listener{t: t, accepted: make(chan net.Conn), closed: make(chan struct{})}
	t.Cleanup(func() { _ = l.Close() }) // never fails
	return l
}

// Dial connects from an address, such as "192.0.2.7:1"; "" is the address of a client of a unix socket. The
// connection is closed when the test ends.
func (l *Listener) Dial(from string) net.Conn {
	l.t.Helper()
	near, far := net.Pipe()
	select {
	case l.accepted <- remote{far, address(from)}:
	case <-l.closed:
		l.t.Fatal("the listener is closed")
	}
	l.t.Cleanup(func() { _ = near.Close() }) // never fails
	return near
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return address("pipe") }

type address string

func (a address) Network() string { return "pipe" }
func (a address) String() string  { return string(a) }

// remote is a connection with a remote address.
type remote struct {
	net.Conn
	from address
}

func (r remote) RemoteAddr() net.Addr { return r.from }
