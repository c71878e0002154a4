package dockertest

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
)

// Proxy is a proxy for an engine's socket that can misbehave.
type Proxy struct {
	faulttest.Switch
	http.Handler

	host string
}

// NewProxy starts a proxy for the machine's engine. It ends with the test.
func NewProxy(t testing.TB) *Proxy {
	t.Helper()
	return NewProxyTo(t, Engine(t).DaemonHost())
}

// NewProxyTo starts a proxy for the engine of a host. It ends with the test.
func NewProxyTo(t testing.TB, host string) *Proxy {
	t.Helper()
	daemon, err := dockerapi.ParseHostURL(host)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "proxy") // socket paths must be short
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	address := daemon.Host
	if daemon.Path != "" {
		address += daemon.Path
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, daemon.Scheme, address)
	}}
	p := &Proxy{host: "unix://" + listener.Addr().String()}
	p.Handler = p.Before(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker" },
		FlushInterval: -1,
		Transport:     transport,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is closed
	}()
	t.Cleanup(func() {
		p.Set(nil)
		_ = server.Close()
		<-served
		transport.CloseIdleConnections()
		_ = os.RemoveAll(dir)
	})
	return p
}

// Host is the proxy's address in DOCKER_HOST format.
func (p *Proxy) Host() string { return p.host }
