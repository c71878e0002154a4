package dashboard_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestUnderLoad: with many leases, a page is as small and as fast as with few. With many open pages, all of them are
// notified of changes.
func TestUnderLoad(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("makes 10,000 leases: set SANDBOX_TEST_LONG=1, or run make test-long")
	}
	const leases, pages = 10_000, 500
	w := newWorld(t)
	w.environment("catan-7")
	var making sync.WaitGroup
	for part := range 8 {
		making.Go(func() {
			for i := part; i < leases && !t.Failed(); i += 8 {
				a := sandbox.Acquire{AgentDID: fmt.Sprintf("did:plc:agent%05d", i), EnvironmentID: "catan-7"}
				if _, err := w.Service.Acquire(t.Context(), a); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if making.Wait(); t.Failed() {
		return
	}
	w.environment("catan-7",
		func(p *sandbox.PutEnvironment) { p.Budget = &sandbox.Budget{Monthly: 1_000_000 * sandbox.USD} })
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))

	for page, shows := range map[string]string{"/ui/leases": "did:plc:agent", "/ui/": "10,000 live"} {
		var took []time.Duration
		for range 20 {
			began := time.Now()
			a := b.get(page)
			took = append(took, time.Since(began))
			if a.StatusCode != 200 || !strings.Contains(a.body, shows) || len(a.body) > 1<<20 {
				t.Fatalf("%s is answered with %d, %d bytes, without %q", page, a.StatusCode, len(a.body), shows)
			}
		}
		slices.Sort(took)
		t.Logf("%s with %d leases: median %v, slowest %v", page, leases, took[len(took)/2], took[len(took)-1])
		if took[len(took)/2] > 300*time.Millisecond {
			t.Errorf("%s takes %v, more than 300 ms", page, took[len(took)/2])
		}
	}

	before := heap()
	open := []*followed{b.follow("")}
	w.wantChange(open[0], "the beginning of the feed, which nobody who comes later is told of")
	for range pages - 1 {
		open = append(open, b.follow(""))
	}
	w.run("did:plc:agent00001::catan-7", "echo", "hello")
	for _, f := range open {
		w.wantChange(f, "a command")
	}
	grown := heap() - before
	t.Logf("%d open pages, both ends: %d KiB each", pages, grown/pages>>10)
	if grown > pages<<18 {
		t.Errorf("%d open pages take %d MiB, more than a quarter of one each", pages, grown>>20)
	}
}

// heap returns the live heap after a garbage collection, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no heap is that large
}

// pipes is a listener with unbuffered connections: unread data blocks its writer.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// TestABrowserThatDoesNotReadDelaysNoOther: the dashboard disconnects it, and notifies other pages without delay.
func TestABrowserThatDoesNotReadDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *api.Config, d *dashboard.Config) { d.StreamTimeout = 2 * time.Second })
	l, _ := w.game()
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: w.server.Config.Handler, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(p) }) // until it is closed
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close() })
	p.conns <- theirs
	if err := b.request(http.MethodGet, "/ui/live", nil).Write(ours); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("following is answered with %+v (%v)", resp, err)
	}
	defer func() { _ = resp.Body.Close() }()

	// It reads no more, while the other page is notified of one command after the other.
	f := b.follow("")
	for range 3 {
		w.run(l.ID, "echo", "again")
		w.wantChange(f, "a command")
	}
	w.eventually("it is cut off", func() bool {
		return ours.SetDeadline(time.Time{}) != nil // the other end of its pipe is closed
	})
}
