package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
)

// The reasons why a request to a host with a credential is refused or fails.
const (
	// CertificateRefused means that the client rejects the gateway's certificate for the host.
	CertificateRefused policy.Reason = "certificate_refused"
	// TraceRefused means that the answer could contain a credential, of the gateway or of an upstream proxy.
	TraceRefused      policy.Reason = "trace_refused"
	CredentialRemoved policy.Reason = "credential_removed"
	UpstreamTLSFailed policy.Reason = "tls_failed"
)

// Credentials are the credentials of hosts.
type Credentials interface {
	For(host string) (credential.Credential, bool)
	Leaf(host string) (*tls.Certificate, error)
}

// brokered reports whether requests through the tunnel get a credential.
func (t *tunnel) brokered() bool {
	p := t.session.proxy
	if p.credentials == nil || !t.session.trusts.Load() {
		return false
	}
	_, ok := p.credentials.For(t.flow.host)
	return ok
}

// broker ends the TLS of a client, and serves its requests with its own connections to the host, which only this tunnel
// uses. hello has the bytes that were read from the client.
func (t *tunnel) broker(hello []byte) {
	f, p := t.flow, t.session.proxy
	if refusal := t.session.takeTunnel(); refusal != nil {
		_, _ = t.client.Write(alertRefused) // the log records it, even if the client does not read
		t.refuse(refusal)
		return
	}
	defer t.session.dropTunnel()
	upstream := &brokerTransport{proxy: p, flow: f, ready: make(chan net.Conn, 1)}
	defer upstream.close()
	// The connection to the host comes first, so that the client sees its failure.
	err := upstream.start(t.server)
	var client *tls.Conn
	if err == nil {
		client, err = t.handshake(hello)
	} else {
		_, _ = t.client.Write(alertRefused) // the log records it, even if the client does not read
	}
	if err != nil {
		closeAll(t.client)
		f.end(orCut(f.ctx, err))
		return
	}
	f.open(audit.TLS)
	conn := &tunnelConn{Conn: client, in: bufio.NewReader(client), flow: f, done: make(chan struct{})}
	conn.forwarder = upstream.forwarder()
	stop := context.AfterFunc(f.ctx, func() { closeAll(conn) })
	defer stop()
	if !t.session.brokered.give(conn) {
		closeAll(conn)
	}
	<-conn.done
	f.end(orCut(f.ctx, nil))
}

// takeTunnel counts a tunnel whose TLS ends here. It refuses one too many.
func (b *session) takeTunnel() *policy.Refusal {
	p := b.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.tunnels >= p.limits.Brokered || p.tunnels >= p.limits.BrokeredTotal {
		return policy.Refuse(TooManyConnections, "a sandbox may have %d connections with credentials at a time, and all "+
			"sandboxes together %d", p.limits.Brokered, p.limits.BrokeredTotal)
	}
	b.tunnels, p.tunnels = b.tunnels+1, p.tunnels+1
	return nil
}

func (b *session) dropTunnel() {
	b.proxy.mu.Lock()
	defer b.proxy.mu.Unlock()
	b.tunnels, b.proxy.tunnels = b.tunnels-1, b.proxy.tunnels-1
}

// handshake ends the client's TLS as if it were the host.
func (t *tunnel) handshake(hello []byte) (*tls.Conn, error) {
	f := t.flow
	conn := tls.Server(&replayed{Conn: t.client, first: hello, in: t.in}, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return t.session.proxy.credentials.Leaf(f.host)
		},
	})
	if err := conn.HandshakeContext(f.ctx); err != nil {
		return nil, policy.Refuse(CertificateRefused, "%s: the client did not complete TLS with the gateway, which adds a "+
			"credential: it must trust %s: %s", f.host, credential.BundleFile, err)
	}
	return conn, t.client.SetDeadline(time.Time{})
}

// replayed is a connection whose first bytes were already read.
type replayed struct {
	net.Conn
	first []byte
	in    io.Reader
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.in.Read(p)
}

// serveBrokered serves a request in a tunnel whose TLS ends here. It must be for the tunnel's host.
func (b *session) serveBrokered(w http.ResponseWriter, r *http.Request) {
	b.arrive(w, r)
	c, ok := connOf(r).(*tunnelConn)
	if !ok || c.forwarder == nil { // the server has no other connections
		answer(w, errors.New("the connection is not a tunnel"))
		return
	}
	f := c.flow
	refusal := checkRequest(r)
	if !agrees(r, f.host, f.port) {
		refusal = policy.Refuse(HostMismatch, "the tunnel is for %s port %d, but this request is for %.260q", f.host, f.port,
			r.Host)
	}
	if refusal != nil {
		record := b.refusal(refusal)
		record.Host, record.Port = f.host, f.port
		b.log.Add(record)
		answer(w, refusal)
		return
	}
	control, idle := http.NewResponseController(w), b.proxy.limits.Idle
	if hasBody(r) {
		r.Body = &steadyBody{r.Body, control, idle}
	}
	c.forwarder.ServeHTTP(&steadyWriter{w, control, idle}, r)
	_ = control.SetWriteDeadline(time.Time{}) // the connection may have gone
}

// brokerTransport makes the connections of one tunnel to its host.
type brokerTransport struct {
	proxy     *Proxy
	flow      *flow
	ready     chan net.Conn // holds the connection for the first request until it is used
	transport *http.Transport
}

// start secures the connection for the first request. opened is a connection to the host, nil for a new one.
func (b *brokerTransport) start(opened net.Conn) error {
	b.transport = &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case conn := <-b.ready:
				return conn, nil
			default:
				return b.secure(ctx, nil)
			}
		},
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        b.proxy.limits.KeepAlive,
	}
	conn, err := b.secure(b.flow.ctx, opened)
	if err == nil {
		b.ready <- conn
	}
	return err
}

// secure establishes TLS with the host over a connection, nil for a new one. The connection ends with the tunnel.
func (b *brokerTransport) secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if conn == nil {
		var err error
		if conn, err = b.flow.dial(ctx, b.proxy.dialer.Dial); err != nil {
			return nil, err
		}
	}
	opened := conn
	conn = &releasing{opened, context.AfterFunc(b.flow.ctx, func() { closeAll(opened) })}
	bounded, cancel := context.WithTimeout(ctx, b.proxy.limits.HeaderTime)
	defer cancel()
	secured := tls.Client(&metered{conn, b.flow, b.proxy.limits.Idle}, &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: b.flow.host, NextProtos: []string{"http/1.1"},
		RootCAs: b.proxy.roots.Load(),
	})
	if err := secured.HandshakeContext(bounded); err != nil {
		closeAll(conn)
		return nil, &egress.Failure{Reason: UpstreamTLSFailed, Err: err,
			Detail: "connect to " + b.flow.host + " with TLS, to add the credential: " + err.Error()}
	}
	return secured, nil
}

// releasing is a connection that its tunnel no longer holds once it is closed. A long tunnel may open many.
type releasing struct {
	net.Conn
	release func() bool
}

func (c *releasing) Close() error {
	c.release()
	return c.Conn.Close()
}

// forwarder forwards the requests of the tunnel.
func (b *brokerTransport) forwarder() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:     &withCredential{b},
		FlushInterval: -1, // flush immediately: answers may be streams
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			authority := b.flow.authority(portHTTPS)
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.User, r.Out.Host = "https", authority, nil, authority
			r.Out.URL.Opaque = ""                  // otherwise it would be the request line
			r.Out.URL.RawQuery = r.In.URL.RawQuery // unchanged
			r.Out.Trailer = nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { answer(w, orCut(b.flow.ctx, err)) },
	}
}

// withCredential adds the current credential to each request, as the last step.
type withCredential struct{ b *brokerTransport }

func (t *withCredential) RoundTrip(r *http.Request) (*http.Response, error) {
	host := t.b.flow.host
	c, ok := t.b.proxy.credentials.For(host)
	if !ok {
		return nil, policy.Refuse(CredentialRemoved, "%s: the environment has no credential for it any more: connect again",
			host)
	}
	c.Apply(r.Header)
	return t.b.transport.RoundTrip(r)
}

// close closes unused connections. The others end with the tunnel's flow.
func (b *brokerTransport) close() {
	select {
	case conn := <-b.ready:
		closeAll(conn)
	default:
	}
	b.transport.CloseIdleConnections()
}
