package reconciler_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
)

// listeners are the ways to reach a reconciler: how to set each up, and how to dial it.
var listeners = map[string]struct {
	set  func(i *install, c *reconciler.Config)
	dial func(s *served) (net.Conn, error)
}{
	"TCP": {func(*install, *reconciler.Config) {},
		func(s *served) (net.Conn, error) { return net.Dial("tcp", s.Address) }},
	"TLS": {
		func(i *install, c *reconciler.Config) {
			i.certify(1)
			c.TLSCert, c.TLSKey = i.Dir+"/cert.pem", i.Dir+"/key.pem"
		},
		func(s *served) (net.Conn, error) {
			return tls.Dial("tcp", s.Address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test's own server
		},
	},
	"unix socket": {
		func(i *install, c *reconciler.Config) { c.Listen = "unix://" + i.Dir + "/api.sock" },
		func(s *served) (net.Conn, error) { return net.Dial("unix", s.Dir+"/api.sock") },
	},
}

// peer is a connection to a reconciler that stays open between requests.
type peer struct {
	*served
	net.Conn
	answers *bufio.Reader
}

func (s *served) connect(dial func(s *served) (net.Conn, error)) *peer {
	s.Helper()
	c, err := dial(s)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() }) // the server may have closed it
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		s.Fatal(err)
	}
	return &peer{s, c, bufio.NewReader(c)}
}

// get sends a request, with a token unless that is "".
func (p *peer) get(path, token string) (int, error) {
	request := "GET " + path + " HTTP/1.1\r\nHost: x\r\n"
	if token != "" {
		request += "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := io.WriteString(p, request+"\r\n"); err != nil {
		return 0, err
	}
	a, err := http.ReadResponse(p.answers, nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, a.Body)
	return a.StatusCode, err
}

// mustGet sends a request that must get 200.
func (p *peer) mustGet(path, token string) {
	p.Helper()
	if status, err := p.get(path, token); err != nil || status != http.StatusOK {
		p.Fatalf("GET %s is answered with %d, %v", path, status, err)
	}
}

// wantClosed waits until the server closes the connection.
func (p *peer) wantClosed() {
	p.Helper()
	_, err := p.answers.ReadByte()
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		p.Errorf("the connection is open: %v", err)
	}
}

func TestConnectionsWithoutACredentialAreBounded(t *testing.T) {
	t.Parallel()
	for name, listener := range listeners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstall(t)
			token := access.NewToken()
			i.Write("tokens", "test "+token+"\n")
			s := i.serve(func(c *reconciler.Config) {
				listener.set(i, c)
				c.Unauthenticated.Total = 20
			})
			known := s.connect(listener.dial)
			known.mustGet("/v1/leases", token)
			var unknown []*peer
			for range 100 {
				p := s.connect(listener.dial)
				p.mustGet("/livez", "")
				unknown = append(unknown, p)
			}
			for _, p := range unknown[:80] {
				p.wantClosed()
			}
			for _, p := range unknown[80:] {
				p.mustGet("/livez", "")
			}
			known.mustGet("/v1/leases", token)
			s.connect(listener.dial).mustGet("/v1/leases", token)
		})
	}
}

func TestConnectionsWithoutACredentialAreClosedInTime(t *testing.T) {
	t.Parallel()
	for name, listener := range listeners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstall(t)
			token := access.NewToken()
			i.Write("tokens", "test "+token+"\n")
			s := i.serve(func(c *reconciler.Config) {
				listener.set(i, c)
				c.Unauthenticated.Timeout = 5 * time.Second
			})
			known := s.connect(listener.dial)
			known.mustGet("/v1/leases", token)
			silent, asking := s.connect(listener.dial), s.connect(listener.dial)
			asking.mustGet("/livez", "")
			wrong := s.connect(listener.dial)
			if status, err := wrong.get("/v1/leases", access.NewToken()); err != nil || status != http.StatusUnauthorized {
				t.Fatalf("a wrong token is answered with %d, %v", status, err)
			}
			for _, p := range []*peer{silent, asking, wrong} {
				p.wantClosed()
			}
			known.mustGet("/v1/leases", token)
		})
	}
}
