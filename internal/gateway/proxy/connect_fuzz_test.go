package proxy

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// FuzzConnect reads requests as the proxy's server does. The host and the port must be those that net/url and net read:
// one host name and one decimal port. So no two readers differ.
func FuzzConnect(f *testing.F) {
	for _, authority := range []string{
		"github.com:443", "GitHub.com.:443", "[::1]:443", "github.com", ":443", "github.com:", "github.com:443:22",
		"a@github.com:443", "github.com:0443", "github.com:+443", "github.com:65536", "evil.example#.github.com:443",
		"127.1:80", "http://github.com:443/",
	} {
		f.Add([]byte("CONNECT " + authority + " HTTP/1.1\r\nHost: other.example\r\n\r\n"))
	}
	f.Add([]byte("CONNECT a.example:1\tb.example:2 HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil || r.Method != http.MethodConnect {
			return
		}
		asked, portText := splitAuthority(r.RequestURI)
		host, err := sandbox.CanonicalHost(asked)
		port, ok := parsePort(portText)
		if err != nil || !ok {
			return
		}
		otherHost, otherPort, err := net.SplitHostPort(r.RequestURI)
		if err != nil || strings.ToLower(strings.TrimSuffix(otherHost, ".")) != host {
			t.Errorf("%q is taken for host %q; others read %q, %v", r.RequestURI, host, otherHost, err)
		}
		if n, err := strconv.Atoi(otherPort); err != nil || n != int(port) || n < 1 || n > 65535 {
			t.Errorf("%q is taken for port %d; others read %q", r.RequestURI, port, otherPort)
		}
		if !bytes.Contains(raw, []byte(r.RequestURI)) {
			t.Errorf("%q was never asked for", r.RequestURI)
		}
	})
}
