package channel_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// socketDial serves a guest on a unix socket.
func socketDial(b testing.TB, h channel.Handler) channel.Dial {
	b.Helper()
	g := newGuest(b, h, channel.ServerConfig{})
	path := filepath.Join(b.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	g.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			g.serving.Go(func() { g.Serve(context.Background(), conn) }) //nolint:errcheck // the client reports what matters
		}
	})
	b.Cleanup(func() { l.Close() })
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) }
}

func nothing(context.Context, channel.Request, io.Reader, *wire.Writer) wire.Result {
	return wire.Result{}
}

// BenchmarkRoundTrip measures an operation that does nothing.
func BenchmarkRoundTrip(b *testing.B) {
	for name, dial := range map[string]channel.Dial{
		"pipe": newGuest(b, nothing, channel.ServerConfig{}).dial, "socket": socketDial(b, nothing),
	} {
		b.Run(name, func(b *testing.B) {
			c := newClient(b, dial)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Call(b.Context(), channel.Request{Op: channel.OpUsage}, channel.Streams{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

const bulk = 100 << 20

// BenchmarkOutput sends 100 MiB from the guest, BenchmarkInput as much to it.
func BenchmarkOutput(b *testing.B) {
	c := newClient(b, socketDial(b, func(_ context.Context, _ channel.Request, _ io.Reader, out *wire.Writer) wire.Result {
		piece := make([]byte, 32<<10)
		for range bulk / len(piece) {
			if _, err := out.Stdout().Write(piece); err != nil {
				return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
			}
		}
		return wire.Result{}
	}))
	b.SetBytes(bulk)
	for b.Loop() {
		got := 0
		result, err := c.Call(b.Context(), channel.Request{Op: channel.OpGet},
			channel.Streams{Stdout: writer(func(p []byte) { got += len(p) })})
		if err != nil || result.Problem != "" || got != bulk {
			b.Fatal(result, err, got)
		}
	}
}

// BenchmarkInput is documented with BenchmarkOutput.
func BenchmarkInput(b *testing.B) {
	c := newClient(b, socketDial(b, func(_ context.Context, _ channel.Request, in io.Reader, _ *wire.Writer) wire.Result {
		n, err := io.Copy(io.Discard, in)
		return wire.Result{StdoutBytes: n, Message: fmt.Sprint(err)}
	}))
	in := make([]byte, bulk)
	b.SetBytes(bulk)
	for b.Loop() {
		result, err := c.Call(b.Context(), channel.Request{Op: channel.OpSave}, channel.Streams{Stdin: bytes.NewReader(in)})
		if err != nil || result.StdoutBytes != bulk {
			b.Fatal(result, err)
		}
	}
}

// TestIdleSessionTakesLittleMemory: a machine has a session for each sandbox, most of them idle.
func TestIdleSessionTakesLittleMemory(t *testing.T) {
	const sessions, limit = 50, 100 << 10
	dials := make([]channel.Dial, sessions)
	for i := range dials {
		dials[i] = newGuest(t, echo, channel.ServerConfig{}).dial
	}
	use := func(dial channel.Dial) {
		c := newClient(t, dial)
		in := bytes.Repeat([]byte("x"), 1<<18)
		if _, err := c.Call(t.Context(), channel.Request{Op: channel.OpPut, ID: "a"},
			channel.Streams{Stdin: bytes.NewReader(in)}); err != nil {
			t.Fatal(err)
		}
	}
	use(dials[0])
	before := inUse()
	for _, dial := range dials[1:] {
		use(dial)
	}
	each := (inUse() - before) / (sessions - 1)
	t.Logf("an idle session takes %d KiB on both sides together, carrier and stacks included", each>>10)
	if each > 2*limit {
		t.Errorf("want at most %d KiB", 2*limit>>10)
	}
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
