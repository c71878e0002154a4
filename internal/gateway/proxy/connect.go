package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
)

// established is the answer to a client whose tunnel is open.
const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// The ports with a fixed protocol.
const (
	portHTTP  = 80
	portHTTPS = 443
)

// connect serves one CONNECT request. It connects to the host before it opens the tunnel, so that the client sees a
// failure. On port 80 each request sees its own failure.
func (b *session) connect(w http.ResponseWriter, r *http.Request) {
	host, port := splitAuthority(r.RequestURI)
	f, refusal := b.begin(b.ctx, audit.Connect, host, port)
	if refusal != nil {
		f.end(refusal)
		answer(w, refusal)
		return
	}
	var server net.Conn
	if f.port != portHTTP {
		var err error
		if server, err = f.dial(f.ctx, b.proxy.dialer.Dial); err != nil {
			f.end(err)
			answer(w, err)
			return
		}
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		closeAll(server)
		f.end(err)
		answer(w, err)
		return
	}
	t := &tunnel{session: b, flow: f, client: client, in: buffered.Reader, server: server}
	t.run()
}

// splitAuthority splits host:port. For any other form the port is empty.
func splitAuthority(authority string) (host, port string) {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 {
		return authority, ""
	}
	return authority[:i], authority[i+1:]
}

// closeAll closes the non-nil connections. Errors no longer matter.
func closeAll(conns ...net.Conn) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
}

// tunnel is an answered CONNECT. It owns its connections and its flow.
type tunnel struct {
	session *session
	flow    *flow
	client  net.Conn
	in      *bufio.Reader // data from the client
	server  net.Conn      // nil on port 80
}

// run inspects the first data, and forwards it if it matches the request.
func (t *tunnel) run() {
	client, server := t.client, t.server
	stop := context.AfterFunc(t.flow.ctx, func() { closeAll(client, server) })
	defer stop()
	first, err := t.greet()
	switch {
	case err != nil:
		t.refuse(policy.Refuse(NoRequest, "%s: no data arrived through the tunnel", t.flow.host))
	case first == recordHandshake:
		t.moveTLS()
	case t.flow.port == portHTTPS:
		t.refuse(policy.Refuse(NotTLS, "%s: the data on port %d is not TLS", t.flow.host, portHTTPS))
	default:
		t.serveHTTP()
	}
}

// greet tells the client that the tunnel is open, and returns the first byte from it.
func (t *tunnel) greet() (byte, error) {
	if err := t.client.SetDeadline(time.Now().Add(t.session.proxy.limits.HeaderTime)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(t.client, established); err != nil {
		return 0, err
	}
	first, err := t.in.Peek(1)
	if err != nil {
		return 0, err
	}
	return first[0], nil
}

// refuse ends an unused tunnel.
func (t *tunnel) refuse(r *policy.Refusal) {
	closeAll(t.client, t.server)
	t.flow.end(orCut(t.flow.ctx, r))
}

// orCut returns errCut if a new policy cut the flow first, otherwise err.
func orCut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errCut) {
		return cause
	}
	return err
}

// moveTLS forwards a TLS connection after its hello has named the host.
func (t *tunnel) moveTLS() {
	f, limits := t.flow, t.session.proxy.limits
	raw, refusal := readHello(f.ctx, t.in, f.host)
	if refusal != nil {
		_, _ = t.client.Write(alertRefused) // the log records it, even if the client does not read
		t.refuse(refusal)
		return
	}
	if t.brokered() {
		t.broker(raw)
		return
	}
	rest, _ := t.in.Peek(t.in.Buffered()) // buffered data is always available
	raw = append(raw, rest...)
	err := t.client.SetDeadline(time.Time{})
	if t.server == nil && err == nil {
		t.server, err = f.dial(f.ctx, t.session.proxy.dialer.Dial)
	}
	if err == nil {
		f.open(audit.TLS)
		err = t.server.SetWriteDeadline(time.Now().Add(limits.HeaderTime))
	}
	if err == nil {
		_, err = t.server.Write(raw)
	}
	if err != nil {
		closeAll(t.client, t.server)
		f.end(orCut(f.ctx, err))
		return
	}
	f.sent.Store(int64(len(raw)))
	r := &relay{
		client:   rawConn(t.client),
		server:   t.server,
		idle:     limits.Idle,
		limit:    limits.Bytes,
		sent:     &f.sent,
		received: &f.received,
	}
	err = r.run(f.ctx)
	closeAll(t.client)       // this decrements the count
	f.end(orCut(f.ctx, err)) // a cut closes the connections, which run may see first
}

// rawConn returns the underlying connection, whose bytes the kernel can copy itself.
func rawConn(conn net.Conn) net.Conn {
	if c, ok := conn.(*clientConn); ok {
		return c.Conn
	}
	return conn
}

// serveHTTP passes a tunnel with plain HTTP to the inner server, and waits for its end. The tunnel's flow lives as
// long, so that a new policy cuts it. The log records the requests.
func (t *tunnel) serveHTTP() {
	closeAll(t.server) // each request opens a new connection
	conn := &tunnelConn{Conn: t.client, in: t.in, flow: t.flow, done: make(chan struct{})}
	stop := context.AfterFunc(t.flow.ctx, func() { closeAll(conn) })
	defer stop()
	if err := t.client.SetDeadline(time.Time{}); err != nil || !t.session.handoff.give(conn) {
		closeAll(conn)
	}
	<-conn.done
	if conn.requests.served() {
		t.flow.forget()
		return
	}
	t.flow.end(orCut(t.flow.ctx, policy.Refuse(NoRequest, "%s: no request arrived through the tunnel", t.flow.host)))
}

// tunnelConn is the client's end of a tunnel.
type tunnelConn struct {
	net.Conn
	in       *bufio.Reader
	flow     *flow
	requests requests
	// forwarder serves the requests of a tunnel whose TLS ends here; nil for plain HTTP.
	forwarder *httputil.ReverseProxy
	once      sync.Once
	done      chan struct{}
}

func (c *tunnelConn) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *tunnelConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.done) })
	return err
}

// handoff is a listener that accepts connections from give.
type handoff struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (h *handoff) give(conn net.Conn) bool {
	select {
	case h.conns <- conn:
		return true
	case <-h.done:
		return false
	}
}

// Accept implements net.Listener.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *handoff) Addr() net.Addr { return &net.UnixAddr{Name: "tunnel", Net: "unix"} }
