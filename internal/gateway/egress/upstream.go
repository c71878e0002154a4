package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
)

// Upstream is an HTTP proxy for the gateway itself.
type Upstream struct {
	url   *url.URL
	roots *x509.CertPool // nil means the system's, which a container FROM scratch lacks
}

// maxUpstreamHeader limits an upstream proxy's answer to CONNECT, in bytes.
const maxUpstreamHeader = 16 << 10

// NewUpstream returns the proxy at an address such as http://user:password@proxy.example:3128 or https://proxy.example.
// caPEM, if set, is the private CA of an https proxy. No policy checks the proxy's address, because the operator
// chooses it.
func NewUpstream(address string, caPEM []byte) (*Upstream, error) {
	u, err := url.Parse(address)
	if err != nil {
		// err contains the password.
		return nil, errors.New("the upstream proxy must be an address such as http://proxy.example:3128")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Path != "" && u.Path != "/" ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the upstream proxy must be an address such as http://proxy.example:3128, not %s",
			u.Redacted())
	}
	up := &Upstream{url: u}
	if len(caPEM) > 0 {
		up.roots = x509.NewCertPool()
		if !up.roots.AppendCertsFromPEM(caPEM) {
			return nil, errors.New("the upstream proxy's CA must be one or more PEM certificates")
		}
	}
	return up, nil
}

func (u *Upstream) address() string {
	port := u.url.Port()
	switch {
	case port != "":
	case u.url.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.url.Hostname(), port)
}

// authorization is the Proxy-Authorization header, "" if there are no credentials.
func (u *Upstream) authorization() string {
	if u.url.User == nil {
		return ""
	}
	password, _ := u.url.User.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(u.url.User.Username()+":"+password))
}

// open connects to the proxy itself.
func (u *Upstream) open(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", u.address())
	if err != nil {
		return nil, fail(ConnectFailed, err, "connect to the upstream proxy")
	}
	if u.url.Scheme == "http" {
		return conn, nil
	}
	secured := tls.Client(conn, &tls.Config{ServerName: u.url.Hostname(), RootCAs: u.roots})
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fail(ConnectFailed, err, "secure the connection to the upstream proxy"), conn.Close())
	}
	return secured, nil
}

// tunnel opens a connection to host:port through the proxy.
func (u *Upstream) tunnel(ctx context.Context, target string) (net.Conn, error) {
	conn, err := u.open(ctx)
	if err != nil {
		return nil, err
	}
	// A deadline in the past ends blocked reads and writes.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = u.connect(conn, target)
	if !stop() && err == nil {
		err = fail(ConnectFailed, ctx.Err(), "connect to %s through the upstream proxy", target)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (u *Upstream) connect(conn net.Conn, target string) error {
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if a := u.authorization(); a != "" {
		request += "Proxy-Authorization: " + a + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return fail(ConnectFailed, err, "request %s from the upstream proxy", target)
	}
	// In both TLS and HTTP, nothing follows the header until the sandbox has sent something.
	in := bufio.NewReader(io.LimitReader(conn, maxUpstreamHeader))
	answer, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // its body is the tunnel
	if err != nil {
		return fail(ConnectFailed, err, "read the upstream proxy's answer for %s", target)
	}
	defer answer.Body.Close() // only a refusal has a body
	if answer.StatusCode != http.StatusOK {
		return fail(UpstreamRefused, errors.New(answer.Status), "request %s from the upstream proxy", target)
	}
	if in.Buffered() > 0 {
		return fail(UpstreamRefused, errors.New("bytes follow its header"), "request %s from the upstream proxy", target)
	}
	return nil
}

// DialHTTP returns a connection for plain HTTP requests to a host: like Dial, or to the upstream proxy itself, because
// many proxies allow no tunnel to port 80. Errors: as for Dial.
func (d *Dialer) DialHTTP(ctx context.Context, p *policy.Policy, host string,
	port uint16) (net.Conn, netip.Addr, error) {
	u := d.upstream.Load()
	if u == nil {
		return d.Dial(ctx, p, host, port)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := u.open(ctx)
	return conn, netip.Addr{}, err
}

// Proxy returns the upstream proxy for an http.Transport whose connections come from DialHTTP. Its scheme is
// http because such a connection is already encrypted.
func (d *Dialer) Proxy(*http.Request) (*url.URL, error) {
	u := d.upstream.Load()
	if u == nil {
		return nil, nil
	}
	return &url.URL{Scheme: "http", Host: u.address(), User: u.url.User}, nil
}
