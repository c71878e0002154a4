package channel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// actor plays a guest by hand: it reads the client's hello, answers, and continues with act.
func actor(t *testing.T, answer string, act func(conn net.Conn)) channel.Dial {
	t.Helper()
	return func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		go func() {
			if err := takeHello(theirs); err != nil {
				return
			}
			theirs.Write(hello(answer)) //nolint:errcheck // the client reports what matters
			go act(theirs)
		}()
		return ours, nil
	}
}

func hello(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte("SBXCHAN\n"), uint32(len(text))), text...)
}

func takeHello(r io.Reader) error {
	head := make([]byte, 12)
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	text := make([]byte, binary.BigEndian.Uint32(head[8:]))
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	var fields map[string]any
	return json.Unmarshal(text, &fields)
}

const goodHello = `{"version":1,"min":1,"max":1,"known":true,"a field of a later release":[1]}`

// frame returns a frame of a carrier; muxed returns a data frame with a frame of the multiplexer.
func frame(kind byte, payload ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload))), payload...)
}

func muxed(offset uint64, kind byte, flags uint16, id, length uint32) []byte {
	b := binary.BigEndian.AppendUint64(nil, offset)
	b = binary.BigEndian.AppendUint16(append(b, 0, kind), flags)
	return frame(1, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, id), length)...)
}

func TestGuestThatBreaksTheProtocolEndsItsSession(t *testing.T) {
	for name, bytes := range map[string][]byte{
		"opens a stream":               muxed(0, 1, 1, 2, 0),
		"pings the multiplexer":        muxed(0, 2, 1, 0, 7),
		"sends a long stream frame":    muxed(0, 0, 0, 1, 64<<10+1),
		"sends an unknown stream type": muxed(0, 9, 0, 1, 0),
		"skips bytes":                  muxed(1, 1, 0, 1, 0),
		"repeats a negative offset":    muxed(1<<63, 1, 0, 1, 0),
		"acknowledges what was not":    frame(2, 0, 0, 0, 0, 0, 1, 0, 0),
		"claims a long frame":          {1, 0xff, 0xff, 0xff, 0xff},
		"claims a long unknown frame":  {200, 0, 1, 0, 9},
		"sends a short data frame":     frame(1, 0, 0),
		"says goodbye":                 frame(5, []byte("no more")...),
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, actor(t, goodHello, func(conn net.Conn) {
				go io.Copy(io.Discard, conn) //nolint:errcheck // the client closes the carrier
				conn.Write(bytes)            //nolint:errcheck // the client closes the carrier
			}))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := c.Call(ctx, channel.Request{Op: channel.OpUsage}, channel.Streams{})
			if !errors.Is(err, channel.ErrLost) && (err == nil || !strings.Contains(err.Error(), "the other side")) {
				t.Errorf("%v, want %v", err, channel.ErrLost)
			}
		})
	}
}

func TestHelloOfAnotherProtocolIsNotTaken(t *testing.T) {
	for name, answer := range map[string][]byte{
		"an ssh server":    []byte("SSH-2.0-OpenSSH_9.9\r\n"),
		"a long hello":     append([]byte("SBXCHAN\n"), 0xff, 0xff, 0xff, 0xff),
		"a text not JSON":  hello("{"),
		"a future version": hello(`{"version":9,"min":1,"max":1,"known":true}`),
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, func(context.Context) (net.Conn, error) {
				ours, theirs := net.Pipe()
				t.Cleanup(func() { theirs.Close() })
				go func() {
					takeHello(theirs)    //nolint:errcheck // the answer is what matters
					theirs.Write(answer) //nolint:errcheck // the client closes the carrier
				}()
				return ours, nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := c.Call(ctx, channel.Request{Op: channel.OpUsage}, channel.Streams{}); err == nil {
				t.Error("the guest was taken")
			}
		})
	}
}

// TestCallReturnsAlthoughTheGuestTakesNothing checks that neither a full session nor a guest that stops in the middle
// of a frame can block a call.
func TestCallReturnsAlthoughTheGuestTakesNothing(t *testing.T) {
	half := muxed(0, 0, 0, 1, 1000) // without its 1000 bytes
	c := newClient(t, actor(t, goodHello, func(conn net.Conn) {
		conn.Write(half) //nolint:errcheck // the client closes the carrier
	}))
	for i := range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		_, err := c.Call(ctx, channel.Request{Op: channel.OpPut, ID: fmt.Sprint(i)},
			channel.Streams{Stdin: bytes.NewReader(make([]byte, 8<<20))})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
			t.Errorf("call %d: %v after %s", i, err, time.Since(began))
		}
		cancel()
	}
}

func TestVersionsAreNegotiated(t *testing.T) {
	for _, tt := range []struct {
		client, guest [2]int
		want          string // of the error
	}{
		{client: [2]int{1, 2}, guest: [2]int{1, 1}},
		{client: [2]int{1, 1}, guest: [2]int{1, 3}},
		{client: [2]int{2, 3}, guest: [2]int{1, 1},
			want: `this program speaks versions 2 to 3, the sandbox (release "r7") speaks version 1; the sandbox is too old`},
		{client: [2]int{1, 1}, guest: [2]int{2, 2},
			want: `this program speaks version 1, the sandbox (release "r7") speaks version 2; this program is too old`},
	} {
		g := newGuest(t, nothing, channel.ServerConfig{Release: "r7"}.WithVersions(tt.guest[0], tt.guest[1]))
		c := channel.NewClient(channel.ClientConfig{Dial: g.dial}.WithVersions(tt.client[0], tt.client[1]))
		_, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage}, channel.Streams{})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v with %v: %v, want %q", tt.client, tt.guest, err, tt.want)
		}
		c.Close() //nolint:errcheck // it always returns nil
	}
}

// TestShutdownOvertakesBulkData fills the session in both directions with many operations whose readers accept nothing.
func TestShutdownOvertakesBulkData(t *testing.T) {
	down := make(chan struct{})
	end := sync.OnceFunc(func() { close(down) }) // on a busy machine it may be called twice
	g := newGuest(t, func(ctx context.Context, r channel.Request, _ io.Reader, out *wire.Writer) wire.Result {
		if r.Op == channel.OpShutdown {
			end()
			return wire.Result{}
		}
		for ctx.Err() == nil { // it does not read its input
			if _, err := out.Stdout().Write(make([]byte, 32<<10)); err != nil {
				break
			}
		}
		return wire.Result{}
	}, channel.ServerConfig{})
	c := newClient(t, g.dial)
	ctx, cancel := context.WithCancel(t.Context())
	stuck, release := make(chan struct{}, 100), make(chan struct{})
	for i := range 100 {
		go c.Call(ctx, channel.Request{Op: channel.OpPut, ID: fmt.Sprint(i)}, channel.Streams{ //nolint:errcheck // it is given up
			Stdin: zeros{}, Stdout: writer(func([]byte) {
				select {
				case stuck <- struct{}{}:
				default:
				}
				<-release
			}),
		})
	}
	for range 100 {
		<-stuck
	}
	began := time.Now()
	if _, err := c.Call(t.Context(), channel.Request{Op: channel.OpShutdown, ID: "end"}, channel.Streams{}); err != nil {
		t.Error(err)
	}
	<-down
	took := time.Since(began)
	t.Logf("the shutdown took %s beside 100 full streams", took)
	if took > 5*time.Second {
		t.Errorf("the shutdown took %s", took)
	}
	cancel()
	close(release)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
