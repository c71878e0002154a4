package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The reasons to refuse a plain HTTP request.
const (
	HostMismatch   policy.Reason = "host_mismatch"
	UpgradeRefused policy.Reason = "upgrade_refused"
)

// ReasonHeader tells programs in the sandbox that, and why, the gateway answered instead of the host.
const ReasonHeader = llm.ReasonHeader

// maxAnswerHeader limits the header of a host's answer, in bytes.
const maxAnswerHeader = 64 << 10

// arrive begins a request. It sets a deadline, because the server itself drains an unread body.
func (b *session) arrive(w http.ResponseWriter, r *http.Request) {
	requestsOf(connOf(r)).begin()
	if hasBody(r) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(b.proxy.limits.HeaderTime)) // it may be gone
	}
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// serveOuter serves requests from a sandbox.
func (b *session) serveOuter(w http.ResponseWriter, r *http.Request) {
	b.arrive(w, r)
	switch {
	case r.Method == http.MethodConnect:
		b.connect(w, r)
	case b.proxy.llm != nil && forLLM(r.URL):
		b.serveLLM(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		port := r.URL.Port()
		if port == "" {
			port = strconv.Itoa(portHTTP)
		}
		b.forward(w, r, r.URL.Hostname(), port)
	default:
		refusal := policy.Refuse(InvalidRequest,
			"this is a proxy: it accepts CONNECT host:port, requests for http:// addresses, and LLM calls below %s<route>",
			llm.Prefix)
		b.log.Add(b.refusal(refusal))
		answer(w, refusal)
	}
}

// forLLM reports whether a request is an LLM call. A client that uses the proxy even for the sandbox's own address
// names a loopback address.
func forLLM(u *url.URL) bool {
	if !strings.HasPrefix(u.Path, llm.Prefix) {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "" && u.Host == "" || u.Scheme == "http" && err == nil && addr.IsLoopback()
}

// serveLLM serves an LLM call. The session waits for its end.
func (b *session) serveLLM(w http.ResponseWriter, r *http.Request) {
	b.proxy.mu.Lock()
	stopped := b.stopped
	if !stopped {
		b.calls.Add(1)
	}
	b.proxy.mu.Unlock()
	if stopped {
		panic(http.ErrAbortHandler) // the connection is already closed
	}
	defer b.calls.Done()
	b.proxy.llm.Serve(w, r, *b.caller.Load())
}

// serveInner serves a request in a tunnel. It must be for the tunnel's host.
func (b *session) serveInner(w http.ResponseWriter, r *http.Request) {
	b.arrive(w, r)
	c, ok := connOf(r).(*tunnelConn)
	if !ok { // the server has no other connections
		answer(w, errors.New("the connection is not a tunnel"))
		return
	}
	if !agrees(r, c.flow.host, c.flow.port) {
		refusal := policy.Refuse(HostMismatch, "the tunnel is for %s port %d, but this request is for %.260q",
			c.flow.host, c.flow.port, r.Host)
		record := b.refusal(refusal)
		record.Host, record.Port = c.flow.host, c.flow.port
		b.log.Add(record)
		answer(w, refusal)
		return
	}
	b.forward(w, r, c.flow.host, strconv.Itoa(int(c.flow.port)))
}

// agrees reports whether a request is for the given host and port. A proxy or a server may follow the request line and
// ignore Host, so a line that net/http does not parse as a path or as the URL of a host is for another one.
func agrees(r *http.Request, host string, port uint16) bool {
	if r.Method == http.MethodConnect || r.URL.Opaque != "" || r.URL.Scheme != "" && r.URL.Scheme != "http" {
		return false
	}
	// r.Host is the host of an absolute URL, otherwise of the single Host header.
	authority := url.URL{Host: r.Host}
	name, err := sandbox.CanonicalHost(authority.Hostname())
	number := authority.Port() // clients of tunnels often omit it
	return err == nil && name == host && (number == "" || number == strconv.Itoa(int(port)))
}

type flowKey struct{}

func flowOf(ctx context.Context) *flow {
	f, _ := ctx.Value(flowKey{}).(*flow)
	return f
}

// forward forwards one request to a host.
func (b *session) forward(w http.ResponseWriter, r *http.Request, host, port string) {
	f, refusal := b.begin(r.Context(), audit.HTTP, host, port)
	if refusal == nil {
		refusal = checkRequest(r)
	}
	if refusal != nil {
		f.end(refusal)
		answer(w, refusal)
		return
	}
	defer func() { f.end(orCut(f.ctx, f.err)) }() // even if the forwarder panics to abort its answer
	control := http.NewResponseController(w)
	idle := b.proxy.limits.Idle
	ctx := context.WithValue(f.ctx, flowKey{}, f)
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { f.open(audit.HTTP) }})
	r = r.WithContext(ctx)
	if hasBody(r) {
		r.Body = &steadyBody{r.Body, control, idle}
	}
	b.proxy.forwarder.ServeHTTP(&steadyWriter{w, control, idle}, r)
	_ = control.SetWriteDeadline(time.Time{}) // the connection may have gone
}

// checkRequest refuses TRACE, whose answer would show what the gateway or an upstream proxy adds. It also refuses all
// upgrades except web sockets: in another protocol, each request could name another host.
func checkRequest(r *http.Request) *policy.Refusal {
	if r.Method == http.MethodTrace {
		return policy.Refuse(TraceRefused, "the method TRACE is refused: its answer could show a credential")
	}
	for _, v := range r.Header.Values("Upgrade") {
		if !strings.EqualFold(strings.TrimSpace(v), "websocket") {
			return policy.Refuse(UpgradeRefused, "a connection may only be upgraded to websocket, not to %.64q", v)
		}
	}
	return nil
}

// newTransport returns a transport with a new connection for every request. So no request can affect a later one,
// possibly of another sandbox.
func (p *Proxy) newTransport() *http.Transport {
	return &http.Transport{
		Proxy: p.dialer.Proxy,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			f := flowOf(ctx)
			if f == nil {
				return nil, errors.New("the request has no flow")
			}
			conn, err := f.dial(f.ctx, p.dialer.DialHTTP)
			if err != nil {
				return nil, err
			}
			return &metered{conn, f, p.limits.Idle}, nil
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		ExpectContinueTimeout:  time.Second,
	}
}

func (p *Proxy) newForwarder() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:     p.transport,
		FlushInterval: -1, // flush immediately: answers may be streams
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			authority := flowOf(r.In.Context()).authority(portHTTP)
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.User, r.Out.Host = "http", authority, nil, authority
			r.Out.URL.Opaque = ""                  // otherwise it would be the request line
			r.Out.URL.RawQuery = r.In.URL.RawQuery // unchanged
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			f := flowOf(r.Context())
			f.err = orCut(f.ctx, err)
			answer(w, f.err)
		},
	}
}

// authority is the host with its port. It omits the scheme's usual port.
func (f *flow) authority(usual uint16) string {
	if f.port == usual {
		return f.host
	}
	return net.JoinHostPort(f.host, strconv.Itoa(int(f.port)))
}

// answer tells a sandbox why the gateway answers instead of the host.
func answer(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	_, reason, detail := judge(err)
	var refusal *policy.Refusal
	var failure *egress.Failure
	switch {
	case errors.As(err, &refusal) && refusal.Reason == InvalidRequest:
		status = http.StatusBadRequest
	case errors.As(err, &refusal), errors.Is(err, errCut):
		status = http.StatusForbidden
	case errors.As(err, &failure) && errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	}
	w.Header().Set(ReasonHeader, string(reason))
	http.Error(w, "sandbox gateway: "+detail+" ("+string(reason)+")", status)
}

// metered is an outside connection that counts its bytes and ends when it is idle.
type metered struct {
	net.Conn
	flow *flow
	idle time.Duration
}

func (m *metered) Read(p []byte) (int, error) {
	if err := m.SetDeadline(time.Now().Add(m.idle)); err != nil {
		return 0, err
	}
	n, err := m.Conn.Read(p)
	m.flow.received.Add(int64(n))
	return n, err
}

func (m *metered) Write(p []byte) (int, error) {
	if err := m.SetDeadline(time.Now().Add(m.idle)); err != nil {
		return 0, err
	}
	m.flow.sent.Add(int64(len(p))) // count first, because the answer may end the flow before Write returns
	n, err := m.Conn.Write(p)
	m.flow.sent.Add(int64(n - len(p)))
	return n, err
}

// steadyBody and steadyWriter limit the time in which a sandbox sends each piece of a request's body, and receives each
// piece of the answer.
type steadyBody struct {
	io.ReadCloser
	control *http.ResponseController
	idle    time.Duration
}

func (s *steadyBody) Read(p []byte) (int, error) {
	if err := s.control.SetReadDeadline(time.Now().Add(s.idle)); err != nil {
		return 0, err
	}
	n, err := s.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) { // the server continues to watch the connection without a limit
		_ = s.control.SetReadDeadline(time.Time{}) // the connection may have gone
	}
	return n, err
}

type steadyWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	idle    time.Duration
}

// Unwrap lets http.ResponseController reach the connection.
func (s *steadyWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *steadyWriter) Write(p []byte) (int, error) {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.idle)); err != nil {
		return 0, err
	}
	return s.ResponseWriter.Write(p)
}
