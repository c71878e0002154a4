package proxy

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
)

// The reasons for which a connection of a sandbox is refused before anything is asked for.
const (
	InvalidRequest     policy.Reason = "invalid_request"
	TooManyConnections policy.Reason = "too_many_connections"
)

// box is one sandbox's side of the proxy.
type box struct {
	proxy    *Proxy
	id       string
	agent    atomic.Value // string
	log      *audit.Source
	listener net.Listener
	// outer serves the sandbox, inner what comes as plain HTTP inside of a tunnel.
	outer, inner *http.Server
	handoff      *handoff
	ctx          context.Context // ends with the box
	cancel       context.CancelFunc
	serving      sync.WaitGroup // servers, and connections

	connections int // guarded by Proxy.mu
}

func newBox(p *Proxy, id string, l net.Listener) *box {
	b := &box{proxy: p, id: id, log: p.log.Source(id), listener: l, handoff: newHandoff()}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.outer = b.server(http.HandlerFunc(b.serveOuter))
	b.inner = b.server(http.HandlerFunc(b.serveInner))
	return b
}

func (b *box) agentName() string {
	name, _ := b.agent.Load().(string)
	return name
}

func (b *box) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: b.proxy.limits.HeaderTime,
		IdleTimeout:       b.proxy.limits.KeepAlive,
		MaxHeaderBytes:    b.proxy.limits.Header,
		ErrorLog:          log.New(io.Discard, "", 0), // what sandboxes do wrong is in our own log
		BaseContext:       func(net.Listener) context.Context { return b.ctx },
		ConnContext:       withConn,
		ConnState:         b.watch,
	}
}

// start begins to serve. stop ends it.
func (b *box) start() {
	// Serve returns when its server is closed, and for no other reason: the listeners have no other end.
	b.serving.Go(func() { _ = b.outer.Serve(admitting{b.listener, b}) })
	b.serving.Go(func() { _ = b.inner.Serve(b.handoff) })
}

func (b *box) stop() {
	b.cancel()
	_ = b.outer.Close() // closes the listener, whose other end is gone or does not matter
	_ = b.inner.Close()
	b.serving.Wait()
	b.log.Release()
}

// admitting is a listener that takes no more connections than a sandbox may have.
type admitting struct {
	net.Listener
	box *box
}

func (a admitting) Accept() (net.Conn, error) {
	for {
		conn, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := a.box.admit(conn); c != nil {
			return c, nil
		}
		_ = conn.Close() // the sandbox sees that it is cut off; the log says why
	}
}

// clientConn is a connection from a sandbox. It counts until it is closed.
type clientConn struct {
	net.Conn
	close    func() error
	stop     func() bool // that it is closed with the sandbox
	requests requests
}

// Close implements net.Conn.
func (c *clientConn) Close() error {
	c.stop()
	return c.close()
}

func (b *box) admit(conn net.Conn) *clientConn {
	p := b.proxy
	p.mu.Lock()
	full := b.connections >= p.limits.Connections || p.connections >= p.limits.ConnectionsTotal
	if !full {
		b.connections, p.connections = b.connections+1, p.connections+1
	}
	p.mu.Unlock()
	if full {
		b.log.Add(b.refusal(policy.Refuse(TooManyConnections, "a sandbox may have %d connections at a time, and all sandboxes together %d",
			p.limits.Connections, p.limits.ConnectionsTotal)))
		return nil
	}
	b.serving.Add(1)
	c := &clientConn{Conn: conn, close: sync.OnceValue(func() error {
		p.mu.Lock()
		b.connections, p.connections = b.connections-1, p.connections-1
		p.mu.Unlock()
		defer b.serving.Done()
		return conn.Close()
	})}
	c.stop = context.AfterFunc(b.ctx, func() { _ = c.close() })
	return c
}

// refusal is the record of what is refused before it is known where to.
func (b *box) refusal(r *policy.Refusal) audit.Record {
	return audit.Record{
		Kind: audit.Closed, Attempt: b.proxy.newID(), Agent: b.agentName(), Protocol: audit.HTTP,
		Verdict: audit.Refused, Reason: r.Reason, Detail: r.Detail,
	}
}

// requests counts what arrives on a connection.
type requests struct{ arrived, begun atomic.Int64 }

func (r *requests) begin()       { r.begun.Add(1) }
func (r *requests) served() bool { return r.arrived.Load() > 0 }

// watch logs what the HTTP server answers by itself: requests that it cannot read, or that do not
// come to an end.
func (b *box) watch(conn net.Conn, state http.ConnState) {
	r := requestsOf(conn)
	switch state {
	case http.StateActive:
		r.arrived.Add(1)
	case http.StateClosed:
		if r.arrived.Load() > r.begun.Load() && b.ctx.Err() == nil {
			b.log.Add(b.refusal(policy.Refuse(InvalidRequest, "what came is no HTTP request, is too large, or was not complete in time")))
		}
	}
}

func requestsOf(conn net.Conn) *requests {
	switch c := conn.(type) {
	case *clientConn:
		return &c.requests
	case *tunnelConn:
		return &c.requests
	default:
		return new(requests) // the servers have no other connections
	}
}

type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

func connOf(r *http.Request) net.Conn {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	return conn
}
