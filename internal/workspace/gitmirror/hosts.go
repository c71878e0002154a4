package gitmirror

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// rule allows the repositories of one host.
type rule struct {
	scheme, host, port string
	// wildcard: host is a domain, whose subdomains are allowed.
	wildcard bool
}

// hosts are the rules of an operator.
type hosts []rule

// defaultPorts are the ports of the schemes.
var defaultPorts = map[string]string{"https": "443", "http": "80", "ssh": "22"}

// parseHosts reads the rules of an operator: git.example.com, git.example.com:8443, *.example.com,
// ssh://git.example.com or, without TLS, http://localhost:3000. Errors: Invalid.
func parseHosts(texts []string) (hosts, error) {
	var all hosts
	for _, text := range texts {
		bad := func(why string) error {
			return sandbox.Errorf(sandbox.Invalid, "the host %q cannot be allowed for workspaces: %s", text, why)
		}
		full := text
		if !strings.Contains(text, "://") {
			full = "https://" + text
		}
		u, err := url.Parse(full)
		switch {
		case err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
			return nil, bad("name a host such as git.example.com, ssh://git.example.com, or http://git.example.com:3000 for " +
				"one without TLS")
		case defaultPorts[u.Scheme] == "":
			return nil, bad("only https, ssh and http are supported")
		}
		r := rule{scheme: u.Scheme, host: strings.ToLower(u.Hostname()), port: u.Port()}
		if r.port == "" {
			r.port = defaultPorts[r.scheme]
		}
		if domain, isWildcard := strings.CutPrefix(r.host, "*."); isWildcard {
			r.host, r.wildcard = domain, true
		}
		if _, err := netip.ParseAddr(r.host); err != nil {
			if _, err := sandbox.CanonicalHost(r.host); err != nil {
				return nil, bad(err.Error())
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// allows returns the rule that allows a URL, nil if none does.
func (h hosts) allows(u *url.URL) *rule {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	port := u.Port()
	if port == "" {
		port = defaultPorts[u.Scheme]
	}
	for i, r := range h {
		if r.scheme == u.Scheme && r.port == port &&
			(host == r.host || r.wildcard && strings.HasSuffix(host, "."+r.host)) && (host != r.host || !r.wildcard) {
			return &h[i]
		}
	}
	return nil
}

// check returns why the service does not fetch from a URL, "" if it does.
func (h hosts) check(u *url.URL) string {
	if h.allows(u) != nil {
		return ""
	}
	name := u.Host
	if u.Scheme != "https" {
		name = u.Scheme + "://" + u.Host
	}
	return fmt.Sprintf("the host %s is not allowed: the reconciler must be started with --workspace-allow %s",
		u.Host, name)
}

// reachable reports whether a rule allows connections to an address. Loopback, link-local and cloud metadata addresses
// need a rule that names the address; a rule for localhost also allows loopback. Private addresses need a rule without
// a wildcard.
func (r *rule) reachable(a netip.Addr) bool {
	a = a.Unmap()
	if named, err := netip.ParseAddr(r.host); err == nil {
		return a == named.Unmap()
	}
	switch {
	case a.IsLoopback():
		return r.host == "localhost"
	case a.IsUnspecified(), a.IsMulticast(), a.IsLinkLocalUnicast(), slices.ContainsFunc(metadata,
		func(p netip.Prefix) bool { return p.Contains(a) }):
		return false
	case a.IsPrivate(), sharedRange.Contains(a):
		return !r.wildcard
	default:
		return a.IsGlobalUnicast()
	}
}

var (
	// metadata are addresses of metadata services outside of the link-local ranges: AWS over IPv6, Alibaba, Azure.
	metadata = []netip.Prefix{
		netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("100.100.100.200/32"),
		netip.MustParsePrefix("168.63.129.16/32"),
	}
	sharedRange = netip.MustParsePrefix("100.64.0.0/10") // RFC 6598
)

// Timeouts of connections.
const (
	dialTimeout   = 15 * time.Second
	headerTimeout = time.Minute
)

// refusedAddress is the error for a host at an address that its rule does not allow.
type refusedAddress struct {
	host string
	addr netip.Addr
}

func (e refusedAddress) Error() string {
	return fmt.Sprintf("%s is at %s, an address of this machine, its network or a metadata service: "+
		"the operator must name the address itself to allow it", e.host, e.addr)
}

// routes has the settings of connections over https and http.
type routes struct {
	proxy *url.URL       // nil for none
	roots *x509.CertPool // nil for those of the machine
}

// routes reads the settings. Errors: Invalid.
func (c Config) routes() (r routes, err error) {
	if c.Proxy != "" {
		r.proxy, err = url.Parse(c.Proxy)
		if err != nil || r.proxy.Host == "" || r.proxy.Scheme != "http" && r.proxy.Scheme != "https" {
			return r, sandbox.Errorf(sandbox.Invalid,
				"the proxy of workspaces must be a URL such as http://proxy.example.com:3128")
		}
	}
	if c.CAFile == "" {
		return r, nil
	}
	certificates, err := os.ReadFile(c.CAFile)
	if err != nil {
		return r, sandbox.Errorf(sandbox.Invalid, "reading the certificates for workspaces: %w", err)
	}
	if r.roots, err = x509.SystemCertPool(); err != nil {
		r.roots = x509.NewCertPool()
	}
	if !r.roots.AppendCertsFromPEM(certificates) {
		return r, sandbox.Errorf(sandbox.Invalid, "the file %s has no certificate in PEM", c.CAFile)
	}
	return r, nil
}

// client returns an HTTP client for one URL's host alone. It connects only to addresses that the rule may reach, or to
// the operator's proxy.
func (r *rule) client(u *url.URL, by routes, pack int64) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return r.dial(ctx, dialer, network, address)
	}
	if by.proxy != nil {
		dial = dialer.DialContext
	}
	own := *u
	return &http.Client{
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Scheme != own.Scheme || !strings.EqualFold(req.URL.Host, own.Host) {
				return sandbox.Errorf(sandbox.Failed, "the server redirects to another host, which is not followed: "+
					"set the URL that it redirects to, if you trust it")
			}
			if len(via) > 5 {
				return sandbox.Errorf(sandbox.Failed, "the server redirects too often")
			}
			return nil
		},
		Transport: bounded{limit: pack, to: &http.Transport{
			DialContext: dial, Proxy: http.ProxyURL(by.proxy), TLSClientConfig: &tls.Config{RootCAs: by.roots},
			TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: headerTimeout, ForceAttemptHTTP2: true,
			DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		}},
	}
}

// dial connects to the first address of a host that answers. It refuses a host if any of its addresses is not allowed.
func (r *rule) dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("%s has no address", host)
	for _, a := range addresses {
		if !r.reachable(a) {
			return nil, refusedAddress{host, a.Unmap()}
		}
	}
	for _, a := range addresses {
		var conn net.Conn
		if conn, err = d.DialContext(ctx, network, net.JoinHostPort(a.Unmap().String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
