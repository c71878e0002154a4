package connlimit_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/connlimit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/pipetest"
)

// world is a server behind limits. "GET /in" presents a valid credential to it.
type world struct {
	*testing.T
	listener *pipetest.Listener
}

// inWorld runs a test with a fake clock.
func inWorld(t *testing.T, limits connlimit.Limits, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, listener: pipetest.Listen(t)}
		server := &http.Server{ConnContext: connlimit.ConnContext, ReadHeaderTimeout: time.Hour, //nolint:gosec // of the test's own time
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/in" {
					connlimit.Authenticated(r.Context())
				}
			})}
		served := make(chan error)
		go func() { served <- server.Serve(connlimit.Listen(w.listener, limits)) }()
		t.Cleanup(func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		test(w)
	})
}

// dial opens a connection and waits until it is counted.
func (w *world) dial(from string) net.Conn {
	c := w.listener.Dial(from)
	synctest.Wait()
	return c
}

// get sends a request on a connection, which stays open.
func (w *world) get(c net.Conn, path string) {
	w.Helper()
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		w.Fatal(err)
	}
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || a.StatusCode != http.StatusOK || a.Close {
		w.Fatalf("answered with %+v, %v", a, err)
	}
}

// isOpen reports whether a connection without pending data is open.
func (w *world) isOpen(c net.Conn) bool {
	w.Helper()
	err := c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.SetReadDeadline(time.Time{}) == nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe):
		return false
	}
	w.Fatal(err)
	return false
}

// wantOpen checks which connections are open.
func (w *world) wantOpen(all []net.Conn, want ...int) {
	w.Helper()
	var open []int
	for i, c := range all {
		if w.isOpen(c) {
			open = append(open, i)
		}
	}
	if !slices.Equal(open, want) {
		w.Errorf("%v are open, want %v", open, want)
	}
}

func TestAConnectionWithoutACredentialIsClosedInTime(t *testing.T) {
	t.Parallel()
	inWorld(t, connlimit.Limits{Timeout: 30 * time.Second}, func(w *world) {
		silent, asking, known := w.dial("192.0.2.1:1"), w.dial("192.0.2.1:2"), w.dial("192.0.2.1:3")
		all := []net.Conn{silent, asking, known}
		w.get(asking, "/livez")
		w.get(known, "/in")
		time.Sleep(29 * time.Second)
		w.get(asking, "/livez") // which does not extend its time
		w.wantOpen(all, 0, 1, 2)
		time.Sleep(2 * time.Second)
		w.wantOpen(all, 2)
		time.Sleep(24 * time.Hour)
		w.get(known, "/livez")
	})
}

func TestOneAddressHasItsOldestConnectionClosed(t *testing.T) {
	t.Parallel()
	inWorld(t, connlimit.Limits{PerAddress: 2}, func(w *world) {
		known := w.dial("192.0.2.1:1")
		w.get(known, "/in")
		all := []net.Conn{known}
		for _, from := range []string{"192.0.2.1:2", "192.0.2.2:1", "192.0.2.1:3", "192.0.2.1:4", "[::ffff:192.0.2.1]:5",
			"[2001:db8::1]:1", "[2001:db8::2:1]:1", "[2001:db8:0:1::1]:1", "[2001:db8::3]:1"} {
			all = append(all, w.dial(from))
		}
		w.wantOpen(all, 0, 2, 4, 5, 7, 8, 9)
		if err := all[4].Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		all[4] = w.dial("192.0.2.1:6") // replaces a connection that its peer closed
		w.wantOpen(all, 0, 2, 4, 5, 7, 8, 9)
	})
}

func TestTheAddressWithTheMostMakesRoom(t *testing.T) {
	t.Parallel()
	inWorld(t, connlimit.Limits{Total: 4}, func(w *world) {
		var all []net.Conn
		for _, from := range []string{"192.0.2.9:1", "192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", // full
			"192.0.2.1:4", "192.0.2.2:1", "192.0.2.3:1"} {
			all = append(all, w.dial(from))
		}
		w.wantOpen(all, 0, 4, 5, 6)
	})
}

// TestAddressesOfManyClients: only the total limits proxies and unix sockets.
func TestAddressesOfManyClients(t *testing.T) {
	t.Parallel()
	proxies := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::7")}
	inWorld(t, connlimit.Limits{Total: 7, PerAddress: 1,
		Shared: func(a netip.Addr) bool { return slices.Contains(proxies, a) }}, func(w *world) {
		var all []net.Conn
		for _, from := range []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "", "", "[2001:db8::7]:1",
			"[2001:db8::7]:2"} {
			all = append(all, w.dial(from))
		}
		w.wantOpen(all, 0, 1, 2, 3, 4, 5, 6)
		all = append(all, w.dial(""))
		w.wantOpen(all, 1, 2, 3, 4, 5, 6, 7)
	})
}

// TestAProxyIsNotItsNetwork: a proxy and other clients in its /64 do not close each other's connections.
func TestAProxyIsNotItsNetwork(t *testing.T) {
	t.Parallel()
	proxy := netip.MustParseAddr("2001:db8::7")
	inWorld(t, connlimit.Limits{PerAddress: 2, Shared: func(a netip.Addr) bool { return a == proxy }}, func(w *world) {
		var all []net.Conn
		for _, from := range []string{"[2001:db8::7]:1", "[2001:db8::7]:2", "[2001:db8::7]:3", "[2001:db8::8]:1",
			"[2001:db8::9]:1", "[2001:db8::a]:1"} {
			all = append(all, w.dial(from))
		}
		w.wantOpen(all, 0, 1, 2, 4, 5)
	})
}

// TestACallerWithACredentialIsLetInWhateverOthersDo floods a server, and sends requests with a credential in between.
func TestACallerWithACredentialIsLetInWhateverOthersDo(t *testing.T) {
	t.Parallel()
	inWorld(t, connlimit.Limits{Total: 64, PerAddress: 16, Timeout: time.Minute}, func(w *world) {
		var known []net.Conn
		for i := range 100 {
			for range 20 {
				w.listener.Dial("192.0.2.1:1")
			}
			c := w.dial("192.0.2.1:2") // the flood's own address
			w.get(c, "/in")
			known = append(known, c)
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		for _, c := range known {
			w.get(c, "/livez")
		}
	})
}
