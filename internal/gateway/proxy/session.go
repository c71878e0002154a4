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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
)

// The reasons to refuse a connection of a sandbox before any request.
const (
	InvalidRequest     policy.Reason = "invalid_request"
	TooManyConnections policy.Reason = "too_many_connections"
)

// session is one sandbox's side of the proxy.
type session struct {
	proxy    *Proxy
	id       string
	caller   atomic.Pointer[llm.Caller]
	log      *audit.Source
	listener net.Listener
	trusts   atomic.Bool // its programs trust the gateway's authority
	// outer serves the sandbox, inner plain HTTP in a tunnel, secure a tunnel whose TLS ends here.
	outer, inner, secure *http.Server
	handoff, brokered    *handoff
	ctx                  context.Context // ends with the session
	cancel               context.CancelFunc
	serving              sync.WaitGroup // servers and connections

	connections int            // guarded by Proxy.mu
	tunnels     int            // tunnels whose TLS ends here; guarded by Proxy.mu
	stopped     bool           // guarded by Proxy.mu
	calls       sync.WaitGroup // LLM calls; none begins once stopped
}

func newSession(p *Proxy, id string, l net.Listener) *session {
	b := &session{proxy: p, id: id, log: p.log.Source(id), listener: l, handoff: newHandoff(), brokered: newHandoff()}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.outer = b.server(http.HandlerFunc(b.serveOuter))
	b.inner = b.server(http.HandlerFunc(b.serveInner))
	b.secure = b.server(http.HandlerFunc(b.serveBrokered))
	return b
}

func (b *session) assign(s Sandbox) {
	b.caller.Store(&s.Caller)
	b.trusts.Store(s.Trusts)
}

func (b *session) agentName() string { return b.caller.Load().Agent }

func (b *session) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: b.proxy.limits.HeaderTime,
		IdleTimeout:       b.proxy.limits.KeepAlive,
		MaxHeaderBytes:    b.proxy.limits.Header,
		ErrorLog:          log.New(io.Discard, "", 0), // the audit log records errors of sandboxes
		BaseContext:       func(net.Listener) context.Context { return b.ctx },
		ConnContext:       withConn,
		ConnState:         b.watch,
	}
}

// start starts serving; stop ends it.
func (b *session) start() {
	// Serve returns only when its server is closed: these listeners do not fail otherwise.
	b.serving.Go(func() { _ = b.outer.Serve(admitting{b.listener, b}) })
	b.serving.Go(func() { _ = b.inner.Serve(b.handoff) })
	b.serving.Go(func() { _ = b.secure.Serve(b.brokered) })
}

func (b *session) stop() {
	b.proxy.mu.Lock()
	b.stopped = true
	b.proxy.mu.Unlock()
	b.cancel()
	_ = b.outer.Close() // closes the listener; an error does not matter
	_ = b.inner.Close()
	_ = b.secure.Close()
	b.serving.Wait()
	b.calls.Wait()
	b.log.Release()
}

// admitting is a listener that enforces the connection limit of a sandbox.
type admitting struct {
	net.Listener
	session *session
}

func (a admitting) Accept() (net.Conn, error) {
	for {
		conn, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := a.session.admit(conn); c != nil {
			return c, nil
		}
		_ = conn.Close() // the sandbox sees a closed connection; the log says why
	}
}

// clientConn is a connection from a sandbox. It counts until it is closed.
type clientConn struct {
	net.Conn
	close    func() error
	stop     func() bool // stops the close at the end of the sandbox
	requests requests
}

// Close implements net.Conn.
func (c *clientConn) Close() error {
	c.stop()
	return c.close()
}

func (b *session) admit(conn net.Conn) *clientConn {
	p := b.proxy
	p.mu.Lock()
	full := b.connections >= p.limits.Connections || p.connections >= p.limits.ConnectionsTotal
	if !full {
		b.connections, p.connections = b.connections+1, p.connections+1
	}
	p.mu.Unlock()
	if full {
		b.log.Add(b.refusal(policy.Refuse(TooManyConnections,
			"a sandbox may have %d connections at a time, and all sandboxes together %d",
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

// refusal is the record of a refusal before the target is known.
func (b *session) refusal(r *policy.Refusal) audit.Record {
	return audit.Record{
		Kind: audit.Closed, Attempt: b.proxy.newID(), Agent: b.agentName(), Protocol: audit.HTTP,
		Verdict: audit.Refused, Reason: r.Reason, Detail: r.Detail,
	}
}

// requests counts the requests on a connection.
type requests struct{ arrived, begun atomic.Int64 }

func (r *requests) begin()       { r.begun.Add(1) }
func (r *requests) served() bool { return r.arrived.Load() > 0 }

// watch logs requests that the HTTP server itself answers: unreadable and incomplete ones.
func (b *session) watch(conn net.Conn, state http.ConnState) {
	r := requestsOf(conn)
	switch state {
	case http.StateActive:
		r.arrived.Add(1)
	case http.StateClosed:
		if r.arrived.Load() > r.begun.Load() && b.ctx.Err() == nil {
			b.log.Add(b.refusal(policy.Refuse(InvalidRequest,
				"the data is not an HTTP request, is too large, or was incomplete in time")))
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
