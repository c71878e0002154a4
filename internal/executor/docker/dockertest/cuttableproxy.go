package dockertest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
)

// CuttableProxy connects a program to the real engine over TCP, as if it were on another machine. Tests can
// cut its connections, or make them drop all bytes.
type CuttableProxy struct {
	host    string
	running sync.WaitGroup

	mu    sync.Mutex // guards what follows
	wires map[*wire]bool
}

// wire is one connection.
type wire struct {
	near, far net.Conn
	silent    atomic.Bool
}

// NewCuttableProxy starts a proxy to the machine's engine. It ends with the test.
func NewCuttableProxy(t testing.TB) *CuttableProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return NewCuttableProxyOn(t, listener, Engine(t).DaemonHost())
}

// NewCuttableProxyOn starts a proxy from a listener to a host in DOCKER_HOST format. It ends with the test.
func NewCuttableProxyOn(t testing.TB, listener net.Listener, host string) *CuttableProxy {
	t.Helper()
	daemon, err := dockerapi.ParseHostURL(host)
	if err != nil {
		t.Fatal(err)
	}
	address := daemon.Host
	if daemon.Path != "" {
		address += daemon.Path
	}
	c := &CuttableProxy{host: "tcp://" + listener.Addr().String(), wires: make(map[*wire]bool)}
	c.running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // closed
			}
			far, err := net.Dial(daemon.Scheme, address)
			if err != nil {
				t.Errorf("dial %s: %v", host, err)
				_ = near.Close()
				continue
			}
			c.connect(near, far)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		c.Cut()
		c.running.Wait()
	})
	return c
}

// Host is the proxy's address in DOCKER_HOST format.
func (c *CuttableProxy) Host() string { return c.host }

func (c *CuttableProxy) connect(near, far net.Conn) {
	w := &wire{near: near, far: far}
	c.mu.Lock()
	c.wires[w] = true
	c.mu.Unlock()
	c.running.Go(func() { w.carry(near, far) })
	c.running.Go(func() { w.carry(far, near) })
}

// carry copies bytes until either end is closed.
func (w *wire) carry(to, from net.Conn) {
	_, _ = io.Copy(leaky{to, &w.silent}, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && !w.silent.Load() {
		_ = half.CloseWrite()
	}
}

// leaky drops all writes while it is silent.
type leaky struct {
	to     io.Writer
	silent *atomic.Bool
}

// Write implements io.Writer.
func (l leaky) Write(p []byte) (int, error) {
	if l.silent.Load() {
		return len(p), nil
	}
	return l.to.Write(p)
}

// Cut breaks all connections. New ones can be opened.
func (c *CuttableProxy) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.wires {
		_, _ = w.near.Close(), w.far.Close()
		delete(c.wires, w)
	}
}

// Silence makes all connections drop all bytes from now on, without closing. New ones can be opened.
func (c *CuttableProxy) Silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.wires {
		w.silent.Store(true)
	}
}
