// Package connlimit limits the unauthenticated connections of a server: connections without a valid credential so far.
// It closes such a connection after a timeout, or when there are too many. It leaves authenticated connections alone.
//
// It never rejects a new connection, because the next request may hold a credential. Instead it closes the oldest
// unauthenticated connection of the same address or, beyond the total limit, of the address with the most connections.
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

// Limits are the limits of unauthenticated connections.
type Limits struct {
	// Total and PerAddress are the maximum numbers of open connections, in total and per address. An IPv6 address counts
	// as its /64 network, unless it is Shared. 0 means no limit.
	Total, PerAddress int
	// Timeout is the maximum age of a connection. 0 means no limit.
	Timeout time.Duration
	// Shared reports whether an address stands for many clients, like a proxy. PerAddress does not apply to it.
	Shared func(netip.Addr) bool `json:"-"`
}

// Listen returns a listener whose connections count as unauthenticated until Authenticated or their end.
func Listen(l net.Listener, limits Limits) net.Listener {
	return &listener{Listener: l, limits: limits, byAddress: make(map[netip.Addr]*list.List)}
}

type listener struct {
	net.Listener
	limits Limits

	mu        sync.Mutex                // guards the fields below
	byAddress map[netip.Addr]*list.List // lists of *conn, oldest first, never empty
	total     int
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, listener: l, address: addressOf(accepted)}
	if c.shared = l.isShared(c.address); !c.shared && c.address.Is6() {
		c.address = netip.PrefixFrom(c.address, 64).Masked().Addr() // one client may have a whole /64 network
	}
	if evicted := l.add(c); evicted != nil {
		_ = evicted.Close() // an error does not matter: the server closes it too
	}
	return c, nil
}

// add counts a connection, and returns the connection to close for it, nil for none.
func (l *listener) add(c *conn) (evicted *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := l.byAddress[c.address]
	switch {
	case same != nil && l.limits.PerAddress > 0 && same.Len() >= l.limits.PerAddress && !c.shared:
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
		c.timer = time.AfterFunc(l.limits.Timeout, func() { _ = c.Close() }) // see Accept
	}
	return evicted
}

// isShared reports whether an address stands for many clients. All clients of a unix socket share an invalid address;
// the file mode of the socket limits who they are.
func (l *listener) isShared(a netip.Addr) bool {
	return !a.IsValid() || l.limits.Shared != nil && l.limits.Shared(a)
}

func (l *listener) removeOldest(from *list.List) *conn {
	c := from.Front().Value.(*conn) //nolint:forcetypeassert // add puts nothing else there
	l.remove(c)
	return c
}

// longest returns the connections of the address with the most.
func (l *listener) longest() (longest *list.List) {
	for _, one := range l.byAddress {
		if longest == nil || one.Len() > longest.Len() {
			longest = one
		}
	}
	return longest
}

// remove stops counting a connection. It is idempotent.
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

// conn is an accepted connection.
type conn struct {
	net.Conn
	listener *listener
	address  netip.Addr // that it counts for
	shared   bool       // see isShared

	// The mu of the listener guards the fields below.
	element *list.Element // nil if not counted
	timer   *time.Timer
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.uncount()
	return c.Conn.Close()
}

// CloseWrite lets net/http send the end of a response before it closes the connection.
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

// addressOf returns the address of the other side, invalid for a unix socket.
func addressOf(c net.Conn) netip.Addr {
	remote, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return remote.Addr().Unmap().WithZone("")
}

type contextKey struct{}

// ConnContext is for http.Server. With it, Authenticated finds the connection of a request.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	return context.WithValue(ctx, contextKey{}, c)
}

// Authenticated records that the sender of a request has a valid credential. ctx is the context of the request.
func Authenticated(ctx context.Context) {
	if c, ok := ctx.Value(contextKey{}).(*conn); ok {
		c.uncount()
	}
}
