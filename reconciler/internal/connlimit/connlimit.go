// Package connlimit bounds the unauthenticated connections of a server: those whose peers have not shown a valid
// credential yet. Such a connection is closed after some time, and when there are too many. A connection whose peer
// has shown a credential is left alone for as long as it lasts.
//
// A newcomer is never refused, because it may be about to show a credential. It takes the place of the oldest
// unauthenticated connection from its own address or, where all addresses together have too many, from the
// address that has the most.
package connlimit

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limits bound unauthenticated connections.
type Limits struct {
	// Total and PerAddress are how many may be open, from all addresses together and from one. An IPv6 address counts
	// as its /64 network. 0 means no limit.
	Total, PerAddress int
	// Timeout is the age at which one is closed. 0 means never.
	Timeout time.Duration
	// Shared reports whether an address stands for many clients, as a proxy's does. PerAddress does not bound it.
	Shared func(netip.Addr) bool `json:"-"`
}

// Listen returns a listener whose connections count as unauthenticated until Authenticated or their end.
func Listen(l net.Listener, limits Limits) net.Listener {
	return &listener{Listener: l, limits: limits, byAddress: make(map[netip.Addr]*list.List)}
}

type listener struct {
	net.Listener
	limits Limits

	mu        sync.Mutex                // guards everything that follows
	byAddress map[netip.Addr]*list.List // of *conn, the oldest first; no list is empty
	total     int
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, listener: l, address: addressOf(accepted)}
	if evicted := l.add(c); evicted != nil {
		_ = evicted.Close() // an error changes nothing: the server closes it as well
	}
	return c, nil
}

// add counts a connection, and returns the one that must make room for it, nil for none.
func (l *listener) add(c *conn) (evicted *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := l.byAddress[c.address]
	switch {
	case same != nil && l.limits.PerAddress > 0 && same.Len() >= l.limits.PerAddress && !l.isShared(c.address):
		evicted = l.removeOldest(same)
	case l.limits.Total > 0 && l.total >= l.limits.Total:
		evicted = l.removeOldest(l.longest())
	}
	if same = l.byAddress[c.address]; same == nil {
		same = list.New()
		l.byAddress[c.address] = same
	}
	c.element = same.PushBack(c)
	l.total++
	if l.limits.Timeout > 0 {
		c.timer = time.AfterFunc(l.limits.Timeout, func() { _ = c.Close() }) // as in Accept
	}
	return evicted
}

// isShared reports whether an address stands for many clients. All clients of a unix socket share an invalid one;
// the socket's file mode says who they are.
func (l *listener) isShared(a netip.Addr) bool {
	return !a.IsValid() || l.limits.Shared != nil && l.limits.Shared(a)
}

func (l *listener) removeOldest(from *list.List) *conn {
	c := from.Front().Value.(*conn) //nolint:forcetypeassert // add puts nothing else there
	l.remove(c)
	return c
}

// longest returns the connections of the address that has the most.
func (l *listener) longest() (longest *list.List) {
	for _, one := range l.byAddress {
		if longest == nil || one.Len() > longest.Len() {
			longest = one
		}
	}
	return longest
}

// remove ends the counting of a connection. It may be called again.
func (l *listener) remove(c *conn) {
	if c.element == nil {
		return
	}
	same := l.byAddress[c.address]
	same.Remove(c.element)
	if same.Len() == 0 {
		delete(l.byAddress, c.address)
	}
	c.element = nil
	l.total--
	if c.timer != nil {
		c.timer.Stop()
	}
}

// conn is a connection that the listener accepted.
type conn struct {
	net.Conn
	listener *listener
	address  netip.Addr

	// The listener's mu guards everything that follows.
	element *list.Element // nil when it does not count
	timer   *time.Timer
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.uncount()
	return c.Conn.Close()
}

// CloseWrite lets net/http send the end of an answer before it closes the connection.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c *conn) uncount() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.listener.remove(c)
}

// addressOf returns the address that a connection counts for, an invalid one for a unix socket.
func addressOf(c net.Conn) netip.Addr {
	remote, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	a := remote.Addr().Unmap().WithZone("")
	if a.Is4() {
		return a
	}
	return netip.PrefixFrom(a, 64).Masked().Addr()
}

type contextKey struct{}

// ConnContext is for http.Server. It lets Authenticated find a request's connection.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	return context.WithValue(ctx, contextKey{}, c)
}

// Authenticated says that the sender of a request has shown a valid credential. ctx is the request's.
func Authenticated(ctx context.Context) {
	if c, ok := ctx.Value(contextKey{}).(*conn); ok {
		c.uncount()
	}
}
