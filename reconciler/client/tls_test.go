package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ledger answers every request with a ledger's description.
var ledger = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"id": "ledger", "version": "test", "last_event_id": 0, "price_books": {}}`))
})

func roots(s *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

// asks asks a reconciler for its ledger.
func asks(t *testing.T, url string, configured *tls.Config, proxy *url.URL) error {
	t.Helper()
	c, err := client.New(client.Config{
		URL: url, Token: "token", TLS: configured, Proxy: proxy, Attempts: 1, WaitMin: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Ledger(t.Context())
	return err
}

func wantAdvice(t *testing.T, err error, url, next string) {
	t.Helper()
	if sandbox.CodeOf(err) != sandbox.Failed || !strings.Contains(err.Error(), url) ||
		!strings.Contains(err.Error(), "GET /v1/ledger") || !strings.Contains(err.Error(), next) {
		t.Errorf("got %v, want one that says %s and %q", err, url, next)
	}
}

func TestAPrivateAuthority(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(ledger)
	t.Cleanup(s.Close)
	wantAdvice(t, asks(t, s.URL, nil, nil), s.URL, "ca_file")
	if err := asks(t, s.URL, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots(s)}, nil); err != nil {
		t.Errorf("with its authority: %v", err)
	}
	expired := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots(s),
		Time: func() time.Time { return s.Certificate().NotAfter.Add(time.Hour) }}
	wantAdvice(t, asks(t, s.URL, expired, nil), s.URL, "set this machine's clock")
	other := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	wantAdvice(t, asks(t, other, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots(s)}, nil), other,
		"for other names")
}

func TestTheOtherScheme(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(ledger)
	t.Cleanup(plain.Close)
	secure := strings.Replace(plain.URL, "http:", "https:", 1)
	wantAdvice(t, asks(t, secure, nil, nil), secure, "it serves plain HTTP: use http://")
	s := httptest.NewTLSServer(ledger)
	t.Cleanup(s.Close)
	err := asks(t, strings.Replace(s.URL, "https:", "http:", 1), nil, nil)
	if sandbox.CodeOf(err) != sandbox.Failed || !strings.Contains(err.Error(), "use https://") {
		t.Errorf("plain HTTP to TLS: %v", err)
	}
}

func TestAClientCertificate(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(ledger)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	wantAdvice(t, asks(t, s.URL, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots(s)}, nil), s.URL,
		"client_certificate_file")
	own := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots(s), Certificates: s.TLS.Certificates}
	if err := asks(t, s.URL, own, nil); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
}

func TestAProxy(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(ledger)
	t.Cleanup(s.Close)
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 1)
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Host
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	through, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := asks(t, "http://reconciler.test", nil, through); err != nil {
		t.Errorf("through the proxy: %v", err)
	}
	if host := <-asked; host != "reconciler.test" {
		t.Errorf("the proxy was asked for %q", host)
	}
}
