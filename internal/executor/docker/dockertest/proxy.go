package dockertest

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/client"
)

// Fault is what a proxy does to a request in place of passing it on and back. A proxied request is
// carried out by pass; a fault that panics with http.ErrAbortHandler breaks the connection.
type Fault func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc)

// Proxy stands before an engine's socket and can misbehave.
type Proxy struct {
	host    string
	forward *httputil.ReverseProxy

	mu    sync.Mutex // guards fault
	fault Fault
}

// NewProxy starts a proxy before the machine's engine. It ends with the test.
func NewProxy(t testing.TB) *Proxy {
	t.Helper()
	daemon, err := client.ParseHostURL(Engine(t).DaemonHost())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "proxy") // a socket's path is short
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
	p := &Proxy{host: "unix://" + listener.Addr().String(), forward: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker" },
		FlushInterval: -1,
		Transport:     transport,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}}
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

// Host is the proxy's address as DOCKER_HOST has it.
func (p *Proxy) Host() string { return p.host }

// Set makes the proxy misbehave from now on; nil makes it honest.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	f := p.fault
	p.mu.Unlock()
	if f == nil {
		p.forward.ServeHTTP(w, r)
		return
	}
	f(w, r, p.forward.ServeHTTP)
}
