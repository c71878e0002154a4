package llm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	tlsTime = 15 * time.Second
	// An idle connection must end before the other side ends it: a call on a connection that has just ended may have been
	// billed. Servers with plain HTTP are often uvicorn or Node, which wait 5 s. Load balancers wait 60 s.
	idleTime      = 50 * time.Second
	idleTimePlain = 4 * time.Second
	// HTTP/2 pings check a connection with a long call, so that a dead connection ends the call.
	pingEvery = 30 * time.Second
	pingTime  = 15 * time.Second

	maxAnswerHeader = 64 << 10
	// maxUnreadAnswer limits what the gateway keeps of an answer while the client does not read it. Go's default is 4 MiB.
	maxUnreadAnswer = 256 << 10
)

// upstream has the connections to a route's upstream.
type upstream struct {
	route     Route
	base      *url.URL
	host      string
	port      uint16
	dialer    *egress.Dialer
	policy    atomic.Pointer[policy.Policy] // allows only host and port
	transport *http.Transport
	lines     *dialing

	running int  // calls; guarded by Broker.mu
	retired bool // guarded by Broker.mu
}

// unsentError is the error of a failed connection: nothing was sent.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// newUpstream returns a route's upstream without connections.
func newUpstream(r Route, private []string, d *egress.Dialer, roots *x509.CertPool, lines *dialing) (*upstream, error) {
	base, err := url.Parse(r.Upstream)
	if err != nil {
		return nil, errors.New("its upstream is not a valid address")
	}
	host, err := sandbox.CanonicalHost(base.Hostname())
	if err != nil {
		return nil, fmt.Errorf("the host of its upstream %w", err)
	}
	port := base.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[base.Scheme]
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return nil, errors.New("the port of its upstream must be between 1 and 65535")
	}
	u := &upstream{route: r, base: base, host: host, port: uint16(number), dialer: d, lines: lines}
	if err := u.allow(private); err != nil {
		return nil, err
	}
	u.transport = u.newTransport(roots)
	return u, nil
}

// allow sets the private ranges that the upstream may be in.
func (u *upstream) allow(private []string) error {
	p, err := policy.Compile(sandbox.Egress{
		Allow:        []sandbox.EgressRule{{Host: u.host, Ports: []int{int(u.port)}}},
		PrivateCIDRs: private,
	})
	if err != nil {
		return fmt.Errorf("allow its upstream: %w", err)
	}
	u.policy.Store(p)
	return nil
}

func (u *upstream) newTransport(roots *x509.CertPool) *http.Transport {
	t := &http.Transport{
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        idleTime,
		ForceAttemptHTTP2:      true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingEvery, PingTimeout: pingTime, MaxReceiveBufferPerStream: maxUnreadAnswer,
		},
	}
	if u.base.Scheme == "http" {
		t.Proxy, t.IdleConnTimeout = u.dialer.Proxy, idleTimePlain
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return u.dial(ctx, u.dialer.DialHTTP) }
		return t
	}
	config := &tls.Config{
		ServerName: u.host, RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}
	t.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := u.dial(ctx, u.dialer.Dial)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, tlsTime)
		defer cancel()
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			err = fmt.Errorf("secure the connection to %s port %d: %w", u.host, u.port, err)
			return nil, &unsentError{errors.Join(err, conn.Close())}
		}
		return secured, nil
	}
	return t
}

type dialFunc func(context.Context, *policy.Policy, string, uint16) (net.Conn, netip.Addr, error)

func (u *upstream) dial(ctx context.Context, dial dialFunc) (net.Conn, error) {
	ctx, done, err := u.lines.begin(ctx)
	if err != nil {
		return nil, &unsentError{err}
	}
	defer done()
	p := u.policy.Load()
	if r := p.Host(u.host, u.port); r != nil {
		return nil, &unsentError{r}
	}
	conn, _, err := dial(ctx, p, u.host, u.port)
	if err != nil {
		return nil, &unsentError{err}
	}
	return conn, nil
}

// address returns the URL of an endpoint. The query does not come from the sandbox.
func (u *upstream) address(path, query string) string {
	to := *u.base
	to.Path = strings.TrimSuffix(to.Path, "/") + path
	to.RawQuery = query
	return to.String()
}

// dialing owns the connection attempts, which may outlive their calls.
type dialing struct {
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // guards what follows
	closed bool
	wait   sync.WaitGroup
}

func newDialing() *dialing {
	d := &dialing{}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

var errClosed = errors.New("the gateway is shutting down")

func (d *dialing) begin(ctx context.Context) (context.Context, func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, errClosed
	}
	d.wait.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.ctx, cancel)
	return ctx, func() { stop(); cancel(); d.wait.Done() }, nil
}

func (d *dialing) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.wait.Wait()
}

// payload is a request's body. It can be dropped early, because the transport refers to it until the end of the answer.
type payload struct{ bytes atomic.Pointer[[]byte] }

func newPayload(b []byte) *payload {
	p := &payload{}
	p.bytes.Store(&b)
	return p
}

func (p *payload) drop() { p.bytes.Store(nil) }

// errDropped is the error of reading a dropped body.
var errDropped = errors.New("the body is no longer there")

// open returns a reader at the beginning. The transport retries a request only if it has sent none of it.
func (p *payload) open() (io.ReadCloser, error) {
	if p.bytes.Load() == nil {
		return nil, errDropped
	}
	return &payloadReader{of: p}, nil
}

type payloadReader struct {
	of *payload
	at int
}

// Read implements io.Reader.
func (r *payloadReader) Read(to []byte) (int, error) {
	b := r.of.bytes.Load()
	switch {
	case b == nil:
		return 0, errDropped
	case r.at >= len(*b):
		return 0, io.EOF
	}
	n := copy(to, (*b)[r.at:])
	r.at += n
	return n, nil
}

// Close implements io.Closer.
func (*payloadReader) Close() error { return nil }
