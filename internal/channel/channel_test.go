package channel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guest serves a handler on carriers in memory.
type guest struct {
	*channel.Server

	mu       sync.Mutex
	carriers []net.Conn // the client's ends
	serving  sync.WaitGroup
}

func newGuest(t testing.TB, h channel.Handler, cfg channel.ServerConfig) *guest {
	t.Helper()
	g := &guest{Server: channel.NewServer(h, cfg)}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		g.serving.Wait()
	})
	return g
}

// dial implements channel.Dial.
func (g *guest) dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.carriers = append(g.carriers, ours)
	g.serving.Go(func() { g.Serve(context.Background(), theirs) }) //nolint:errcheck // the client reports what matters
	return ours, nil
}

// cut breaks all carriers and returns how many there were.
func (g *guest) cut() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.carriers)
	for _, c := range g.carriers {
		c.Close()
	}
	g.carriers = nil
	return n
}

func newClient(t testing.TB, dial channel.Dial) *channel.Client {
	t.Helper()
	c := channel.NewClient(channel.ClientConfig{Dial: dial, Name: "test"})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// echo answers with its input, and the request's id on the standard error.
func echo(_ context.Context, r channel.Request, in io.Reader, out *wire.Writer) wire.Result {
	n, err := io.Copy(out.Stdout(), in)
	if err != nil {
		return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
	}
	if _, err := fmt.Fprint(out.Stderr(), r.ID); err != nil {
		return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
	}
	return wire.Result{StdoutBytes: n}
}

func TestOperationTakesInputAndGivesOutputAndResult(t *testing.T) {
	c := newClient(t, newGuest(t, echo, channel.ServerConfig{}).dial)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			in := strings.Repeat(fmt.Sprintf("line %d\n", i), 1+i*1000)
			var out, errOut bytes.Buffer
			id := fmt.Sprint("op-", i)
			result, err := c.Call(t.Context(), channel.Request{Op: channel.OpPut, ID: id},
				channel.Streams{Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errOut})
			if err != nil || result.Problem != "" || out.String() != in || errOut.String() != id ||
				result.StdoutBytes != int64(len(in)) {
				t.Errorf("%+v, %v; %d of %d bytes, stderr %q", result, err, out.Len(), len(in), errOut.String())
			}
		})
	}
	wg.Wait()
	if !c.Idle() {
		t.Error("the client is not idle after all calls")
	}
}

// fragile is a carrier that breaks after some bytes.
type fragile struct {
	net.Conn
	left atomic.Int64
}

func (f *fragile) Write(p []byte) (int, error) {
	if left := f.left.Add(-int64(len(p))); left < 0 {
		n, _ := f.Conn.Write(p[:max(0, int64(len(p))+left)])
		f.Close()
		return n, io.ErrClosedPipe
	}
	return f.Conn.Write(p)
}

// TestInputsOfAnySizeArriveWhole includes inputs from a megabyte on, which have larger pieces.
func TestInputsOfAnySizeArriveWhole(t *testing.T) {
	c := newClient(t, newGuest(t, echo, channel.ServerConfig{}).dial)
	for _, size := range []int{0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 5<<20 + 12345} {
		in := make([]byte, size)
		for i := range in {
			in[i] = byte(i % 251)
		}
		for what, r := range map[string]io.Reader{
			"a reader that ends afterwards": bytes.NewReader(in),
			"a reader that ends with it":    iotest.DataErrReader(bytes.NewReader(in)),
		} {
			var out bytes.Buffer
			result, err := c.Call(t.Context(), channel.Request{Op: channel.OpPut, ID: fmt.Sprint(what, size)},
				channel.Streams{Stdin: r, Stdout: &out})
			if err != nil || result.Problem != "" || !bytes.Equal(out.Bytes(), in) {
				t.Errorf("%d bytes of %s: %+v, %v; %d bytes came back", size, what, result, err, out.Len())
			}
		}
	}
}

func TestSessionSurvivesItsCarriers(t *testing.T) {
	g := newGuest(t, echo, channel.ServerConfig{})
	var dials atomic.Int64
	c := channel.NewClient(channel.ClientConfig{
		Redial: channel.Backoff{Min: time.Microsecond, Max: time.Millisecond},
		Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := g.dial(ctx)
			f := &fragile{Conn: conn}
			f.left.Store(300 + dials.Add(1)*7919%100_000)
			return f, err
		},
	})
	defer c.Close()
	in := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for i := range 3 {
		var out bytes.Buffer
		result, err := c.Call(t.Context(), channel.Request{Op: channel.OpPut, ID: fmt.Sprint(i)},
			channel.Streams{Stdin: bytes.NewReader(in), Stdout: &out})
		if err != nil || result.Problem != "" || !bytes.Equal(out.Bytes(), in) {
			t.Fatalf("%+v, %v; %d bytes of %d", result, err, out.Len(), len(in))
		}
	}
	if n := dials.Load(); n < 20 {
		t.Errorf("%d carriers were dialed, want many", n)
	}
}

func TestCallReturnsWhenItsContextEnds(t *testing.T) {
	ended := make(chan struct{})
	g := newGuest(t, func(ctx context.Context, _ channel.Request, _ io.Reader, out *wire.Writer) wire.Result {
		fmt.Fprint(out.Stdout(), "begun") //nolint:errcheck // the client reports what matters
		<-ctx.Done()
		close(ended)
		return wire.Result{}
	}, channel.ServerConfig{})
	c := newClient(t, g.dial)
	ctx, cancel := context.WithCancel(t.Context())
	never, gone := io.Pipe()
	defer gone.Close()
	_, err := c.Call(ctx, channel.Request{Op: channel.OpExec, ID: "x"}, channel.Streams{
		Stdin: never, Stdout: writer(func([]byte) { cancel() }),
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want a canceled context", err)
	}
	<-ended
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestGuestThatStartsAgainLosesTheSession(t *testing.T) {
	started := make(chan struct{}, 2)
	hang := func(ctx context.Context, r channel.Request, _ io.Reader, _ *wire.Writer) wire.Result {
		if r.Op == channel.OpExec {
			started <- struct{}{}
			<-ctx.Done()
		}
		return wire.Result{ExitCode: 7}
	}
	first, second := newGuest(t, hang, channel.ServerConfig{}), newGuest(t, hang, channel.ServerConfig{})
	var mu sync.Mutex
	dial := first.dial
	c := newClient(t, func(ctx context.Context) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		return dial(ctx)
	})
	lost := make(chan error)
	go func() {
		_, err := c.Call(t.Context(), channel.Request{Op: channel.OpExec, ID: "x"}, channel.Streams{})
		lost <- err
	}()
	<-started
	mu.Lock()
	dial = second.dial
	mu.Unlock()
	first.cut()
	if err := <-lost; !errors.Is(err, channel.ErrLost) {
		t.Errorf("%v, want %v", err, channel.ErrLost)
	}
	if result, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage}, channel.Streams{}); err != nil ||
		result.ExitCode != 7 {
		t.Errorf("the next operation: %+v, %v", result, err)
	}
}

// TestShutdownTakesTheSessionWhereNoCarrierCanBeDialled lets all dials but the first hang or fail.
func TestShutdownTakesTheSessionWhereNoCarrierCanBeDialled(t *testing.T) {
	for name, next := range map[string]channel.Dial{
		"hangs": func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		"fails": func(context.Context) (net.Conn, error) { return nil, errors.New("no carrier") },
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan channel.Op, 2)
			g := newGuest(t, func(_ context.Context, r channel.Request, _ io.Reader, _ *wire.Writer) wire.Result {
				asked <- r.Op
				return wire.Result{}
			}, channel.ServerConfig{})
			var dials atomic.Int64
			c := newClient(t, func(ctx context.Context) (net.Conn, error) {
				if dials.Add(1) == 1 {
					return g.dial(ctx)
				}
				return next(ctx)
			})
			for _, op := range []channel.Op{channel.OpUsage, channel.OpShutdown} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				res, err := c.Call(ctx, channel.Request{Op: op}, channel.Streams{})
				cancel()
				if err != nil || res.Problem != "" {
					t.Fatalf("%s: %+v, %v", op, res, err)
				}
				if got := <-asked; got != op {
					t.Errorf("the guest was asked for %s, not %s", got, op)
				}
			}
		})
	}
}

func TestShutdownTakesItsOwnCarrier(t *testing.T) {
	asked := make(chan channel.Request, 1)
	g := newGuest(t, func(_ context.Context, r channel.Request, _ io.Reader, _ *wire.Writer) wire.Result {
		asked <- r
		return wire.Result{}
	}, channel.ServerConfig{})
	c := newClient(t, g.dial)
	if _, err := c.Call(t.Context(), channel.Request{Op: channel.OpShutdown, ID: "end"}, channel.Streams{}); err != nil {
		t.Fatal(err)
	}
	if r := <-asked; r.Op != channel.OpShutdown || r.ID != "end" {
		t.Errorf("the guest was asked for %+v", r)
	}
}
