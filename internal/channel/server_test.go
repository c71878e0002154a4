package channel_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// hang lets operations begin, and ends them when their context ends.
func hang(began chan<- string, ended *atomic.Int64) channel.Handler {
	return func(ctx context.Context, r channel.Request, _ io.Reader, _ *wire.Writer) wire.Result {
		began <- r.ID
		<-ctx.Done()
		ended.Add(1)
		return wire.Result{}
	}
}

func TestGuestKeepsABoundedNumberOfSessions(t *testing.T) {
	began, ended := make(chan string, 10), atomic.Int64{}
	g := newGuest(t, hang(began, &ended), channel.ServerConfig{MaxSessions: 2})
	lost := make(chan error, 3)
	for i := range 3 {
		c := newClient(t, g.dial)
		go func() {
			_, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage, ID: fmt.Sprint(i)}, channel.Streams{})
			lost <- err
		}()
		<-began
	}
	if err := <-lost; !errors.Is(err, channel.ErrLost) {
		t.Errorf("%v, want %v", err, channel.ErrLost)
	}
}

func TestGuestKeepsABoundedNumberOfOperations(t *testing.T) {
	began, ended := make(chan string, 10), atomic.Int64{}
	c := newClient(t, newGuest(t, hang(began, &ended), channel.ServerConfig{MaxStreams: 2}).dial)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		go c.Call(ctx, channel.Request{Op: channel.OpUsage}, channel.Streams{}) //nolint:errcheck // it is given up
		<-began
	}
	result, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage}, channel.Streams{})
	if err != nil || result.Problem != wire.ProblemFailed {
		t.Errorf("%+v, %v, want a problem", result, err)
	}
}

func TestClientThatClosesEndsItsOperations(t *testing.T) {
	began, ended := make(chan string, 10), atomic.Int64{}
	g := newGuest(t, hang(began, &ended), channel.ServerConfig{})
	c := channel.NewClient(channel.ClientConfig{Dial: g.dial})
	gaveUp := make(chan error)
	go func() {
		_, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage}, channel.Streams{})
		gaveUp <- err
	}()
	<-began
	go c.Close() //nolint:errcheck // it always returns nil
	if err := <-gaveUp; !errors.Is(err, channel.ErrClosed) && !errors.Is(err, channel.ErrLost) {
		t.Errorf("%v, want %v", err, channel.ErrClosed)
	}
	if _, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage},
		channel.Streams{}); !errors.Is(err, channel.ErrClosed) {
		t.Errorf("after Close: %v, want %v", err, channel.ErrClosed)
	}
	g.Close() //nolint:errcheck // it always returns nil
	if ended.Load() != 1 {
		t.Error("the guest's operation did not end")
	}
}

// operation serves a handler on a connection that carries a single operation, and sends a request on it.
func operation(t *testing.T, h channel.Handler, request string, rest ...byte) (client net.Conn, served <-chan error) {
	t.Helper()
	client, theirs := pipe(t)
	return client, serveOperation(t, h, theirs, client, request, rest...)
}

// pipe returns both ends of a TCP connection.
func pipe(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // a test may have closed it
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return client, theirs
}

// serveOperation serves a handler on the server's end of a connection, and sends a request on the client's.
func serveOperation(t *testing.T, h channel.Handler, theirs, client net.Conn, request string, rest ...byte) <-chan error {
	t.Helper()
	g := newGuest(t, h, channel.ServerConfig{})
	done := make(chan error, 1)
	go func() { done <- g.ServeOperation(context.Background(), theirs) }()
	first := append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...)
	if _, err := client.Write(append(first, rest...)); err != nil {
		t.Fatal(err)
	}
	return done
}

func TestClientThatLeavesItsConnectionEndsItsOperation(t *testing.T) {
	for name, input := range map[string][]byte{
		"after the end of its input": frame(2),
		"in the middle of its input": nil,
	} {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan string, 1), atomic.Int64{}
			client, served := operation(t, hang(began, &ended), `{"op":"follow","id":"a"}`, input...)
			<-began
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-served: //nolint:errcheck // its client has left
			case <-time.After(5 * time.Second):
				t.Fatal("the operation goes on without its client")
			}
			if ended.Load() != 1 {
				t.Error("the operation did not end")
			}
		})
	}
}

// slow is a connection whose writes return some time after the client has their bytes, or when it is closed.
type slow struct {
	net.Conn
	closed context.Context
	close  context.CancelFunc
}

func (s slow) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	select {
	case <-s.closed.Done():
	case <-time.After(100 * time.Millisecond):
	}
	return n, err
}

func (s slow) Close() error {
	defer s.close()
	return s.Conn.Close()
}

func TestClientMayLeaveAsSoonAsItHasItsResult(t *testing.T) {
	client, theirs := pipe(t)
	closed, closes := context.WithCancel(t.Context())
	defer closes()
	served := serveOperation(t, echo, slow{theirs, closed, closes}, client, `{"op":"get","id":"a"}`, frame(2)...)
	var answer wire.Demux
	for _, ended := answer.Result(); !ended; _, ended = answer.Result() {
		if _, err := io.CopyN(&answer, client, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Errorf("a client that has its result: %v", err)
	}
}

func TestConnectionCarriesOneOperation(t *testing.T) {
	for name, c := range map[string]struct {
		input []byte
		want  string
	}{
		"whole input":  {append(frame(1, []byte("some text")...), frame(2)...), "some text"},
		"failed input": {append(frame(1, []byte("some text")...), frame(3, []byte("no disk")...)...), "no disk"},
	} {
		t.Run(name, func(t *testing.T) {
			client, served := operation(t, echo, `{"op":"get","id":"a"}`, c.input...)
			var stdout bytes.Buffer
			answer := wire.Demux{Stdout: &stdout}
			for _, ended := answer.Result(); !ended; _, ended = answer.Result() {
				p := make([]byte, 1<<10)
				n, err := client.Read(p)
				if err == nil {
					_, err = answer.Write(p[:n])
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			result, _ := answer.Result()
			if got := cmp.Or(result.Message, stdout.String()); !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCloseOfTheGuestEndsItsSessions(t *testing.T) {
	began, ended := make(chan string, 10), atomic.Int64{}
	g := newGuest(t, hang(began, &ended), channel.ServerConfig{})
	c := newClient(t, g.dial)
	lost := make(chan error)
	go func() {
		_, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage}, channel.Streams{})
		lost <- err
	}()
	<-began
	g.Close() //nolint:errcheck // it always returns nil
	if err := <-lost; !errors.Is(err, channel.ErrLost) {
		t.Errorf("%v, want %v", err, channel.ErrLost)
	}
	if ended.Load() != 1 {
		t.Error("the guest's operation did not end")
	}
}
