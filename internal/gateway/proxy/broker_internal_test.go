package proxy

import (
	"context"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// holding is a context that counts the functions which wait for its end.
type holding struct {
	context.Context
	done chan struct{}
	n    atomic.Int64
}

func (h *holding) Done() <-chan struct{} { return h.done }

func (h *holding) AfterFunc(func()) (stop func() bool) {
	h.n.Add(1)
	return func() bool { return h.n.Add(-1) >= 0 }
}

// A host may close its connection after each answer. A tunnel holds only those that are open.
func TestATunnelHoldsNoClosedConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for name, row := range map[string]struct {
		roots *x509.CertPool
		held  int64
	}{"secured": {roots, 1}, "untrusted": {x509.NewCertPool(), 0}} {
		h := &holding{Context: t.Context(), done: make(chan struct{})}
		p := &Proxy{limits: Limits{HeaderTime: 10 * time.Second, Idle: 10 * time.Second}}
		p.roots.Store(row.roots)
		b := &brokerTransport{proxy: p, flow: &flow{ctx: h, host: "example.com"}}
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		secured, err := b.secure(t.Context(), conn)
		if (err == nil) != (row.held == 1) || h.n.Load() != row.held {
			t.Errorf("%s: %v, and the tunnel holds %d connections", name, err, h.n.Load())
		}
		if err == nil {
			if err := secured.Close(); err != nil {
				t.Error(err)
			}
		}
		if n := h.n.Load(); n != 0 {
			t.Errorf("%s: the tunnel holds %d connections after the close", name, n)
		}
	}
}
